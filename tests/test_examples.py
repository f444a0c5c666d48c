"""The example of an engine of one's own passes what it can be held to, and fails when its engine is wrong."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import draftproof
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import Judgement, summarise
from draftproof.reference.solved import solved
from draftproof.subject import Scenario, Subject
from tests.named.real import real
from tests.warm import Warm

FILE = Path(__file__).resolve().parent.parent / "examples/own_engine.py"
LOSSLESS = "output.lossless"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("own_engine", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


own_engine = load()


@pytest.mark.parametrize("name", ["own_engine", "smollm2", "train_tiny"])
def test_an_example_says_in_a_sentence_what_it_lacks(name: str, warm: Warm):
    code = f"import sys, runpy; sys.modules['transformers'] = None; runpy.run_path({str(FILE.with_stem(name))!r})"
    done = warm.run([sys.executable, "-P", "-c", code])
    assert done.returncode == 1
    assert ": this example " in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_engine.write_checkpoint(tmp_path_factory.mktemp("own") / "llama")


@pytest.fixture(scope="module")
def scenarios(checkpoint: Path) -> list[Scenario]:
    return real(checkpoint, ("ngram_matches", "eagle_padded", "alone_preempted", "ends", "budgeted"), "ngram")


reference = cache(solved)


def judged(subject: Subject, scenario: Scenario) -> Judgement:
    return draftproof.judge(evidence(subject, scenario, reference))


def test_lossless_passes_and_the_rest_is_skipped_or_inconclusive(scenarios: list[Scenario]):
    subject = own_engine.PromptLookup()
    ran = [evidence(subject, scenario, reference) for scenario in scenarios]
    verdicts = summarise([draftproof.judge(one) for one in ran], [counts(one) for one in ran])
    outcomes = {verdict.name: verdict.verdict for verdict in verdicts}
    assert outcomes[LOSSLESS] is draftproof.Outcome.PASS
    assert set(outcomes.values()) <= {draftproof.Outcome.PASS, draftproof.Outcome.SKIP, draftproof.Outcome.INCONCLUSIVE}
    assert outcomes["verify.positions"] is draftproof.Outcome.SKIP


def test_its_traces_have_the_published_form(scenarios: list[Scenario]):
    scenario = scenarios[0]
    assert draftproof.conformance(own_engine.PromptLookup(), scenario, reference(scenario).script) == []


def test_as_a_script_it_prints_a_verdict_a_line(checkpoint: Path, capsys: pytest.CaptureFixture[str]):
    own_engine.main(checkpoint, count=1)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[1] == "runs" for line in lines)
    assert any(line.split()[1] == LOSSLESS for line in lines)
    assert "at the level of host; " in lines[-1]


class DropsToken(own_engine.PromptLookup):  # type: ignore[name-defined,misc]
    """The last token of a request gets lost."""

    def decode(self, *arguments: Any) -> list[Any]:
        *rounds, last = super().decode(*arguments)
        return [*rounds, last._replace(emitted=last.emitted[:-1])]


class EmitsOther(own_engine.PromptLookup):  # type: ignore[name-defined,misc]
    """The first round emits another token than the bonus."""

    def decode(self, scenario: Any, request: Any, script: Any) -> list[Any]:
        first, *rounds = super().decode(scenario, request, script)
        for i, one in enumerate(rounds[:1]):
            *before, bonus = one.emitted
            rounds[i] = one._replace(emitted=(*before, (bonus + 1) % scenario.model.vocab))
        return [first, *rounds]


class IgnoresStop(own_engine.PromptLookup):  # type: ignore[name-defined,misc]
    """Decoding goes on behind a stop token."""

    def decode(self, scenario: Any, request: Any, script: Any) -> list[Any]:
        return super().decode(scenario, request, msgspec.structs.replace(script, stop=()))


class ProposesOther(own_engine.PromptLookup):  # type: ignore[name-defined,misc]
    """All proposals are other tokens than what followed first."""

    def decode(self, scenario: Any, request: Any, script: Any) -> list[Any]:
        rounds = super().decode(scenario, request, script)
        return [
            one._replace(proposed=tuple((token + 1) % scenario.model.vocab for token in one.proposed)) for one in rounds
        ]


def test_wrong_proposals_fail(scenarios: list[Scenario]):
    first = next((found for one in scenarios if (found := judged(ProposesOther(), one).first)), None)
    assert first is not None
    assert (first.contract, first.channel) == ("draft.proposed", "propose.tokens")


COUNTS: dict[str, Any] = {
    "always 0": lambda _right, _drafts: 0,
    "one too low": lambda right, _drafts: max(0, right - 1),
    "always all": lambda _right, drafts: drafts,
}


@pytest.mark.parametrize("told", COUNTS)
def test_a_number_of_accepted_drafts_that_the_text_gives_the_lie_fails(told: str, scenarios: list[Scenario]):
    class Miscounts(own_engine.PromptLookup):  # type: ignore[name-defined,misc]
        def decode(self, scenario: Any, *rest: Any) -> list[Any]:
            rounds = super().decode(scenario, *rest)
            return [one._replace(correct_len=COUNTS[told](one.correct_len, scenario.steps)) for one in rounds]

    firsts = [judged(Miscounts(), one).results["accept.counted"] for one in scenarios]
    found = next(one for one in firsts if one)
    assert found.channel == "accept.correct_len"
    assert "as the round emits" in found.expected


@pytest.mark.parametrize("wrong", [DropsToken, EmitsOther, IgnoresStop])
def test_a_wrong_engine_fails(wrong: Any, scenarios: list[Scenario]):
    found = next((found for one in scenarios if (found := judged(wrong(), one).results[LOSSLESS])), None)
    assert found is not None
    assert found.channel == "accept.emitted"


def test_a_cache_that_keeps_a_rejected_entry_fails(monkeypatch: pytest.MonkeyPatch, scenarios: list[Scenario]):
    from transformers.cache_utils import DynamicLayer

    real = DynamicLayer.crop

    def crop(layer: Any, max_length: int) -> None:
        keys, values = layer.keys.clone(), layer.values.clone()
        real(layer, max_length)
        kept = layer.keys.shape[-2]
        if kept < keys.shape[-2]:  # the last entry that stays is overwritten by the first that goes
            layer.keys[..., kept - 1, :], layer.values[..., kept - 1, :] = keys[..., kept, :], values[..., kept, :]

    monkeypatch.setattr(DynamicLayer, "crop", crop)
    subject = own_engine.PromptLookup()
    assert any(judged(subject, one).results[LOSSLESS] for one in scenarios)
