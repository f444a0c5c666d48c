"""FP8 entries from end to end: right engines pass, wrong scales are found, and what cannot be is refused."""

import re
from pathlib import Path

import msgspec
import pytest

from draftproof.cli.app import run
from draftproof.engine.models import fp8
from draftproof.engine.subject import EngineSubject
from draftproof.harness import checkpoint_scenarios
from draftproof.harness.checkpoint_scenarios import KvDtypes, one_draft
from draftproof.harness.lockstep import evidence
from draftproof.properties.fit import UnfitError, fit
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.tree import Tree
from tests.checkpoints import tiny_deepseek_v3, tiny_llama
from tests.named.real import real
from tests.reference.test_fp8 import with_scales

FP8 = "fp8_e4m3"
NAMES = ("eagle_padded", "hybrid_snapshot", "logprobs", "five_in_graphs", "preempted", "prefix_cached_hybrid")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_scales(tiny_llama(tmp_path_factory.mktemp("llama")))


def scenarios(model: Path, *, target: str = FP8, draft: str = FP8, count: int = 3) -> list[Scenario]:
    dtypes = KvDtypes(target, draft)  # type: ignore[arg-type]
    made = one_draft(model, "standalone", model, 0, kv_dtypes=dtypes)
    return real(model, NAMES[:count], made, kv_cache_dtype=dtypes.target)


@pytest.mark.parametrize(("target", "draft"), [(FP8, FP8), (FP8, "auto"), ("auto", FP8)])
def test_any_two_formats_pass(model: Path, target: str, draft: str):
    for scenario in scenarios(model, target=target, draft=draft):
        found = judge(evidence(EngineSubject(), scenario))
        assert found.passed, found.first


def test_a_check_passes(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    made = one_draft(model, "eagle", None, 0, kv_dtypes=KvDtypes(FP8, FP8))

    def generated(*given: object) -> list[Scenario]:
        assert given == (model, [made], 0, 2, FP8)
        return real(model, NAMES[:2], made, kv_cache_dtype=FP8)

    monkeypatch.setattr(checkpoint_scenarios, "generated_real", generated)
    options = ["--draft", "eagle", "--kv-cache-dtype", FP8, "--draft-kv-cache-dtype", FP8, "--examples", "2"]
    assert run(["check", "--model", str(model), *options, "--contract", "commit.kv", "--contract", "extend.kv"]) in (
        0,
        125,
    )
    told = capsys.readouterr().out
    assert f"--kv-cache-dtype {FP8} --draft-kv-cache-dtype {FP8}" in told
    assert "FAIL" not in told
    assert re.search(r"commit +1 PASS", told), told


def test_a_wrong_scale_is_found_where_it_is(model: Path, monkeypatch: pytest.MonkeyPatch):
    """Values of one layer have a scale that is off by a thousandth."""
    read = fp8._scale

    def wrong(tensors: object, prefix: str, part: str) -> float:
        scale = read(tensors, prefix, part)  # type: ignore[arg-type]
        return scale * 1.001 if prefix.endswith("1.self_attn") and part == "v" else scale

    monkeypatch.setattr(fp8, "_scale", wrong)
    first = judge(evidence(EngineSubject(), scenarios(model, draft="auto")[1])).first
    assert first is not None
    assert (first.contract, first.channel, first.key.layer) == ("commit.kv", "commit.kv", 1)


def test_scenarios_without_the_option_stay_what_they_were(model: Path):
    plain = scenarios(model, target="auto", draft="auto", count=6)
    kept = scenarios(model, count=6)
    pairs = zip(kept, plain, strict=True)
    assert plain == [msgspec.structs.replace(one, model=other.model, draft=other.draft) for one, other in pairs]


def refuses(scenario: Scenario, match: str) -> None:
    with pytest.raises(InvalidScenarioError, match=match):
        validate(scenario)


def test_what_is_not_defined_is_refused(model: Path):
    scenario = scenarios(model)[0]
    mtp = CheckpointDraft(algorithm="mtp", built_in=True, kv_cache_dtype="fp8_e4m3")
    built_in = msgspec.structs.replace(scenario, draft=mtp)
    refuses(built_in, r"draft\.kv_cache_dtype 'fp8_e4m3' of draft 'mtp'.*expected auto")
    eagle = CheckpointDraft(kv_cache_dtype="fp8_e4m3")
    tree = msgspec.structs.replace(scenario, draft=eagle, adaptive_steps=None, steps=2, tree=Tree(topk=2, nodes=3))
    schedule = msgspec.structs.replace(scenario.schedule, draft_batch=0, preemption=False)
    refuses(msgspec.structs.replace(tree, schedule=schedule), r"draft\.kv_cache_dtype 'fp8_e4m3' beside a tree")
    with pytest.raises(UnfitError, match=r"kv_cache_dtype 'fp8_e4m3'.*expected auto"):
        fit(scenario, Limits())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kv-cache-dtype", "fp8_e5m2"), "invalid --kv-cache-dtype 'fp8_e5m2': expected auto, fp8_e4m3"),
        (("--draft", "mtp", "--draft-kv-cache-dtype", FP8), "expected auto; fp8_e4m3 is for eagle, standalone, eagle3"),
    ],
)
def test_wrong_options_are_refused(model: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]):
    assert run(["check", "--model", str(model), *words]) == 2
    assert told in capsys.readouterr().err


def test_other_architectures_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tiny_deepseek_v3(tmp_path)
    assert run(["check", "--model", str(path), "--kv-cache-dtype", FP8, "--examples", "1"]) == 2
    told = capsys.readouterr().err
    assert "invalid model.kv_cache_dtype 'fp8_e4m3' of DeepseekV3ForCausalLM" in told
    assert "LlamaForCausalLM and Qwen3ForCausalLM" in told


def test_it_is_for_models_only(capsys: pytest.CaptureFixture[str]):
    assert run(["check", "--kv-cache-dtype", FP8]) == 2
    assert "invalid --kv-cache-dtype 'fp8_e4m3': expected only together with --model" in capsys.readouterr().err
