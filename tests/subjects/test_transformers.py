"""transformers as a subject: each of its ways to propose passes, and a wrong one of each kind does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from transformers.generation import candidate_generator as generators

import draftproof
from draftproof.harness.checkpoint_scenarios import one_draft
from draftproof.harness.lockstep import evidence
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.script import steering
from draftproof.properties.values.subject import Subject
from draftproof.reference.solved import solved
from draftproof.subjects.transformers import TransformersSubject, hooks
from draftproof.subjects.transformers.taps import TargetTaps
from tests.checkpoints import tiny_dflash, tiny_glm4_moe, tiny_llama, tiny_qwen3
from tests.named.real import real


class Tiny(NamedTuple):
    """A target, and what goes with it."""

    target: Path
    draft: Path | None = None


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tiny]:
    base = tmp_path_factory.mktemp("transformers")
    llama = tiny_llama(base / "llama")
    return {
        "ngram": Tiny(llama),
        "standalone": Tiny(llama, tiny_llama(base / "small", seed=5, num_hidden_layers=1)),
        "mtp": Tiny(tiny_glm4_moe(base / "glm", mtp=3)),
        "dflash": Tiny(tiny_qwen3(base / "qwen3"), tiny_dflash(base / "dflash")),
    }


@pytest.fixture(scope="session")
def subject() -> TransformersSubject:
    return TransformersSubject()


@pytest.fixture(scope="session")
def drawn(tiny: dict[str, Tiny], subject: TransformersSubject) -> Callable[[str], list[Scenario]]:
    """Two scenarios of a draft: the rounds of one are forced, those of the other its own."""

    @cache
    def draw(name: Any) -> list[Scenario]:
        draft = one_draft(tiny[name].target, name, tiny[name].draft, 0)
        (scenario,) = real(tiny[name].target, ["mtp_chain_partial"], draft, subject.limits)
        assert scenario.steps > 2
        assert scenario.requests[0].budget > 8
        request, steps = msgspec.structs.replace(scenario.requests[0], stop_at=-1, stops=()), scenario.steps
        forced = tuple(RoundPlan(num_drafts=steps, num_correct=correct) for correct in (steps, 0, 1))
        own = (RoundPlan(num_drafts=steps, num_correct=-1),)
        return [
            msgspec.structs.replace(scenario, requests=(msgspec.structs.replace(request, rounds=plans),))
            for plans in (forced, own)
        ]

    return draw


reference = cache(solved)


def failed(subject: Subject, scenarios: list[Scenario]) -> set[str]:
    """Return the names of the contracts that fail."""
    return {
        name
        for scenario in scenarios
        for name, found in draftproof.judge(evidence(subject, scenario, reference)).results.items()
        if found
    }


@pytest.mark.parametrize("name", ["ngram", "standalone", "mtp", "dflash"])
def test_each_way_to_propose_passes(name, drawn, subject):
    scenarios = drawn(name)
    assert {algorithm(one.draft) for one in scenarios} == {name}
    judged = [draftproof.judge(evidence(subject, one, reference)) for one in scenarios]
    assert [one.first for one in judged] == [None, None]
    expected = {"draft.proposed", "verify.ids", "verify.positions", "verify.hidden", "accept.greedy", "commit.kv"}
    expected |= {"draft.ids", "draft.positions", "draft.proposal"} if name == "standalone" else set()
    assert expected <= judged[0].results.keys()
    script = steering(reference(scenarios[0]).script)
    assert draftproof.conformance(subject, scenarios[0], script) == []


def test_a_position_one_ahead_is_found(drawn, subject, monkeypatch):
    right = TargetTaps._positions

    def ahead(self: TargetTaps, module: Any, args: Any, kwargs: Any) -> None:
        kwargs = dict(zip(("x", "position_ids"), args, strict=False)) | kwargs
        right(self, module, (), {**kwargs, "position_ids": kwargs["position_ids"] + 1})

    monkeypatch.setattr(TargetTaps, "_positions", ahead)
    assert failed(subject, drawn("ngram")) == {"verify.positions"}


def test_a_lookup_that_proposes_other_tokens_is_found(drawn, subject, monkeypatch):
    right = generators.PromptLookupCandidateGenerator.get_candidates

    def shifted(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        found, logits = right(self, input_ids, **given)
        found = found.clone()
        found[:, input_ids.shape[1] :] += 1
        return found, logits

    monkeypatch.setattr(generators.PromptLookupCandidateGenerator, "get_candidates", shifted)
    assert "draft.proposed" in failed(subject, drawn("ngram"))


def test_an_assistant_forgets_what_it_proposed_where_other_drafts_were_accepted(drawn, subject, monkeypatch):
    """By how much its choices are the best: with entries of tokens that are not there it is by another number."""

    def furthest() -> float:
        ran = evidence(subject, drawn("standalone")[0], reference)
        expected = ran.reference.choices("draft.step.proposal")
        return max(
            abs(margin - expected[key][1]) for key, (_, margin) in ran.subject.choices("draft.step.proposal").items()
        )

    assert furthest() < 1e-3
    monkeypatch.setattr("draftproof.subjects.transformers.own.AssistantGenerator._forget", lambda *_: None)
    assert furthest() > 1e-2


def test_its_hooks_are_found(subject):
    found = {hook.name: hook.found for hook in subject.hooks()}
    drafts = (f"draft {name}" for name in subject.limits.drafts)
    assert found == dict.fromkeys(("candidates", *drafts, "rotary_emb", "norm", "cache"), True)


def test_a_release_without_a_hook_loses_its_channels(drawn, subject, monkeypatch):
    scenario = drawn("ngram")[0]
    missing = next(hook for hook in subject.hooks() if hook.name == "cache")
    monkeypatch.setattr(hooks, "_of_models", lambda: (msgspec.structs.replace(missing, found=False),))
    assert "commit.kv" not in subject.channels(scenario)
    assert failed(subject, [scenario]) == set()
