"""The list of checks for released engines on a GPU, up to where it needs one."""

from __future__ import annotations

import importlib.util
import json
import sys
import weakref
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from draftproof.faults import engine_checkpoints
from draftproof.reference.run import ReferenceSubject
from draftproof.reference.solved import solved
from draftproof.subjects.sglang.live.subject import SglangEngine
from tests import engines_gpu, mistakes_gpu
from tests.engines_gpu import CHECKS, GRAPHS, MENDED, MISTAKES, Check, Ended, Run, is_bad, listed, outcome, words
from tests.named import named


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, engines_gpu.OTHER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"


@pytest.fixture(scope="module")
def mistaken() -> ModuleType:
    return loaded("mistaken_sglang")


@pytest.fixture(scope="module")
def mended() -> ModuleType:
    return loaded("mended_sglang")


def test_every_mistake_is_in_the_list(mistaken: ModuleType) -> None:
    assert {name for one in MISTAKES for name in one.mistakes} == set(mistaken.MISTAKES)
    hybrid = {name for one in MISTAKES if one.kind == "hybrid" for name in one.mistakes}
    assert hybrid == {name for name in mistaken.MISTAKES if name.startswith("state")}


def test_checkpoints_of_the_list_are_written() -> None:
    source = Path(engine_checkpoints.__file__).read_text(encoding="utf-8")
    for target, _, head in engines_gpu.DRAFTS.values():
        assert f'"{target}"' in source
        assert not head or f'"{head}"' in source


STOP, IDS = "accept.emitted", "verify.ids"


@pytest.mark.parametrize(
    ("release", "check", "code", "failed", "bad"),
    [
        *(("0.5.13", CHECKS[0], 0, (), False), ("0.5.13", CHECKS[0], 125, (), False)),
        *(("0.5.13", CHECKS[0], 1, (STOP,), False), ("0.5.13", CHECKS[0], 1, (STOP, IDS), True)),
        *(("0.5.13", CHECKS[0], 1, (), True), ("0.5.13", CHECKS[1], 1, (IDS,), False)),
        *(("0.5.11", CHECKS[0], 1, (IDS,), False), ("0.5.11", CHECKS[0], 3, (), True)),
        *(("0.5.13", CHECKS[0], None, (), True), ("0.5.13", MISTAKES[0], None, (), True)),
        *(("0.5.13", MISTAKES[0], 0, (), False), ("0.5.13", MISTAKES[0], 1, (), True)),
        *(("0.5.13", MENDED[0], 0, (), False), ("0.5.13", MENDED[0], 1, (STOP,), True)),
    ],
)
def test_a_list_fails_by_what_is_not_as_documented(
    release: str, check: Check, code: int | None, failed: tuple[str, ...], bad: bool
) -> None:
    assert is_bad(Ended(release, check, code, 1.0, "", frozenset(failed))) is bad


@pytest.mark.parametrize(
    ("firsts", "missed"),
    [
        ([("none", ""), ("a", "x.y"), ("a", "")], []),
        ([("none", ""), ("a", "x.y"), ("b", ""), ("b", "")], ["b"]),
        ([("none", ""), ("none", "x.y"), ("a", "x.y")], ["none"]),
    ],
)
def test_a_mistake_is_missed_if_no_scenario_shows_it(firsts: list[tuple[str, str]], missed: list[str]) -> None:
    assert mistakes_gpu.missed([{"mistake": name, "first": first} for name, first in firsts]) == missed


def test_forty_scenarios_of_each_kind_run_in_graphs() -> None:
    counts = Counter(dict.fromkeys(("eagle", "hybrid", "mimo"), 0))
    for check in GRAPHS:
        assert not check.settings
        counts[check.kind] += check.examples
    assert set(counts.values()) == {40}


def test_releases_take_turns_and_mistakes_come_before_what_is_not_in_graphs() -> None:
    found = listed(["0.5.11", "0.5.13"], "", 40)
    assert [(release, check.name) for release, check in found[:3]] == [
        *(("0.5.11", "eagle-1"), ("0.5.13", "eagle-1"), ("0.5.11", "hybrid-1"))
    ]
    places = {check.name: place for place, (_, check) in enumerate(found)}
    assert places["eagle-2"] < places["mistakes-of-states"] < places["eagle-eager"]


def test_words_of_a_check(tmp_path: Path) -> None:
    check = Check("eagle-eager", "eagle", 3, 8, ("graphs=no",))
    line = words(check, "0.5.13", Path("ck"), Path("engines"), tmp_path)
    assert line[4:10] == ["check", "--model", "ck/llama", "--draft", "eagle", "--draft-model"]
    settings = [line[place + 1] for place, word in enumerate(line) if word == "--set"]
    assert settings == ["release=0.5.13", "engines=engines", "graphs=no"]
    (states,) = (one for one in MISTAKES if one.name == "mistakes-of-states")
    line = words(states, "0.5.13", Path("ck"), Path("engines"), tmp_path)
    assert line[2:6] == [str(Path(engines_gpu.__file__).with_name("mistakes_gpu.py")), "hybrid", "ck", "0.5.13"]
    assert line[-1] == "state-told-one-less"
    line = words(MENDED[0], "0.5.13", Path("ck"), Path("engines"), tmp_path)
    assert line[line.index("--subject") + 1] == "mended_sglang:Mended"


def test_mistakes_and_mends_are_of_one_release() -> None:
    found = listed(["0.5.11", "0.5.13"], "", 6)
    assert [check.name for release, check in found if release == "0.5.11"] == [one.name for one in CHECKS]
    assert max(check.examples for _, check in found) == 6
    assert [check.name for _, check in listed(["0.5.13"], "mimo,states", 6)] == [
        *("mimo-1", "mimo-2", "mistakes-of-states", "mimo-1-mended")
    ]


def test_outcome_of_a_result(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert outcome(path) == ""
    contracts = [{"name": "runs", "verdict": "PASS"}, {"name": "verify.ids", "verdict": "FAIL"}]
    path.write_text(json.dumps({"contracts": contracts}))
    assert outcome(path) == "FAIL verify.ids"
    assert engines_gpu.failed(path) == {"verify.ids"}
    path.write_text(
        json.dumps([{"mistake": "a", "first": ""}, {"mistake": "b", "first": ""}, {"mistake": "b", "first": "x.y"}])
    )
    assert outcome(path) == "a: nothing, b: x.y"


def test_a_run_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose time is over is ended, and said to be."""
    began: list[str] = []

    def draftproof(*given: str) -> list[str]:
        began.append(given[0])
        name = next((Path(word).stem for word in given if word.endswith(".json")), "")
        sleeps = "import time; time.sleep(60)" if "slow" in name else ""
        shown = f"import os; print({name!r}, os.environ.get('CUDA_VISIBLE_DEVICES'))"
        return [sys.executable, "-c", f"{shown}; {sleeps}"]

    monkeypatch.setattr(engines_gpu, "draftproof", draftproof)
    monkeypatch.setattr(engines_gpu, "_HEAD_START", 0.5)
    run = Run(tmp_path, tmp_path, 3.0, 2)
    checks = [("r", Check(name, "eagle", 1, 1)) for name in ("slow", "first", "quick")]
    ended = run.all_of(checks, 2)
    assert [(one.check.name, one.code) for one in ended] == [("slow", None), ("first", 0), ("quick", 0)]
    assert began == ["lab", "lab", "check", "check", "check"]
    assert [(tmp_path / f"r-{name}.log").read_text() for name in ("first", "quick")] == ["r-first 1\n", "r-quick 0\n"]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("draft-positions-one-ahead", {"positions": [4, 9]}),
        ("draft-hidden-of-the-row-before", {"hidden": [2.0, 1.0]}),
        ("draft-slots-of-the-row-before", {"slots": [20, 21, 10, 11]}),
        ("draft-ids-of-the-row-before", {"ids": [6, 5]}),
    ],
)
def test_a_mistake_changes_what_it_says(
    mistaken: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, changed: dict[str, list[float]]
) -> None:
    """What a draft's decode is given while it is on, and what is right before and after."""
    seen: list[dict[str, list[float]]] = []

    class EagleDraftWorker:
        def draft_forward(self, batch: SimpleNamespace) -> None:
            spec = batch.spec_info
            given = {"positions": batch.positions, "slots": batch.out_cache_loc}
            given |= {"hidden": spec.hidden_states[:, 0], "ids": spec.topk_index[:, 0]}
            seen.append({name: x.tolist() for name, x in given.items()})

    module = SimpleNamespace(EagleDraftWorker=EagleDraftWorker)
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative.eagle_worker_v2", module)
    for part in ("sglang", "sglang.srt", "sglang.srt.speculative"):
        monkeypatch.setitem(sys.modules, part, SimpleNamespace(__path__=[]))
    mistake = mistaken.MISTAKES[name]
    mistake.patch("cpu")
    for on in (False, True, False):
        mistake.turn(on=on)
        spec = SimpleNamespace(hidden_states=torch.tensor([[1.0], [2.0]]), topk_index=torch.tensor([[5], [6]]))
        places = {"positions": torch.tensor([3, 8]), "out_cache_loc": torch.tensor([10, 11, 20, 21])}
        batch = SimpleNamespace(**places, spec_info=spec)
        EagleDraftWorker().draft_forward(batch)
        assert batch.positions.tolist() == [3, 8]
    right = {"positions": [3, 8], "slots": [10, 11, 20, 21], "hidden": [1.0, 2.0], "ids": [5, 6]}
    assert seen == [right, right | changed, right]


def test_mistakes_of_the_host(mistaken: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 is the root of each request's rows; -1 says that nothing was accepted there."""

    class EagleVerifyInput:
        def sample(self) -> tuple[object, torch.Tensor, torch.Tensor]:
            return "tokens", torch.tensor([3, 1]), torch.tensor([[0, 1, 2], [3, -1, -1]])

    for part in ("sglang", "sglang.srt", "sglang.srt.speculative"):
        monkeypatch.setitem(sys.modules, part, SimpleNamespace(__path__=[]))
    module = SimpleNamespace(EagleVerifyInput=EagleVerifyInput)
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative.eagle_info", module)
    less, behind = (mistaken.MISTAKES[name] for name in ("accepted-one-less", "accept-index-one-behind"))
    for one in (less, behind):
        one.patch("cpu")
    assert EagleVerifyInput().sample()[1].tolist() == [3, 1]
    less.turn(on=True)
    assert EagleVerifyInput().sample()[1].tolist() == [2, 1]
    behind.turn(on=True)
    assert EagleVerifyInput().sample()[2].tolist() == [[0, 0, 1], [3, -1, -1]]


def put(monkeypatch: pytest.MonkeyPatch, module: str, **content: object) -> None:
    """Have a module of SGLang with this in it."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**content))


@pytest.mark.parametrize(
    ("tokens", "count", "released", "right"),
    [
        ([9, 23, 1], 2, 3, 2),  # a stop, and behind it what reaches the budget
        ([9, 8, 1], 2, 3, 3),
        ([9, 8, 1, 23], 3, 3, 3),  # a stop behind the budget
        ([9, 23], 1, 2, 2),
        ([9, 8], 1, None, None),
    ],
)
def test_a_stop_is_looked_for_before_the_budget(
    mended: ModuleType, monkeypatch: pytest.MonkeyPatch, tokens: list[int], count: int, released: object, right: object
) -> None:
    class Req:
        def __init__(self) -> None:
            self.sampling_params = SimpleNamespace(max_new_tokens=3)
            self.finished_reason = self.finished_len = None

        def finished(self) -> bool:
            return self.finished_reason is not None

        def update_finish_state(self, new_accepted_len: int) -> None:
            if len(tokens) >= self.sampling_params.max_new_tokens:
                self.finished_reason, self.finished_len = "length", self.sampling_params.max_new_tokens
            elif 23 in tokens[-new_accepted_len:]:
                self.finished_reason, self.finished_len = "stop", tokens.index(23) + 1

    one = Req()
    one.update_finish_state(count)
    assert one.finished_len == released
    put(monkeypatch, "sglang.srt.managers.schedule_batch", Req=Req)
    for patch in mended.MENDS["stops"]:
        patch.apply()
    one = Req()
    one.update_finish_state(count)
    assert one.finished_len == right
    assert one.sampling_params.max_new_tokens == 3


def test_states_are_cleared_before_a_prompt_alone(mended: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[object] = []

    class MambaAttnBackendBase:
        def _execute_deferred_mamba_cow_and_clear(self, batch: SimpleNamespace) -> None:
            cleared.append(batch.name)

    put(monkeypatch, HYBRID, MambaAttnBackendBase=MambaAttnBackendBase)
    for patch in mended.MENDS["states"]:
        patch.apply()
    for name in ("prompt", "verify"):
        mode = SimpleNamespace(is_target_verify=lambda name=name: name == "verify")
        MambaAttnBackendBase()._execute_deferred_mamba_cow_and_clear(SimpleNamespace(name=name, forward_mode=mode))
    assert cleared == ["prompt"]


def test_buffers_that_graphs_captured_stay(mended: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class ModelRunner:
        def _ensure_eager_registry(self, cache: SimpleNamespace, rows: int) -> torch.Tensor:
            cache.registry = torch.zeros(rows)
            return cache.registry

    put(monkeypatch, "sglang.srt.model_executor.model_runner", ModelRunner=ModelRunner)
    for patch in mended.MENDS["buffers"]:
        patch.apply()
    cache = SimpleNamespace(registry=None)
    captured = weakref.ref(ModelRunner()._ensure_eager_registry(cache, 4))
    ModelRunner()._ensure_eager_registry(cache, 8)
    assert captured() is not None


def test_rows_of_one_token_are_no_padding(mended: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows, one of them of one token, in a graph of four."""
    seen: list[list[int]] = []

    class CudaGraphRunner:
        def replay_prepare(self, batch: SimpleNamespace) -> None:
            MambaAttnBackendBase()._replay_metadata(4, None, None, None, torch.tensor([9, 1, 14, 1]))

    class MambaAttnBackendBase:
        def _replay_metadata(self, bs: int, requests: None, mode: None, spec: None, lengths: torch.Tensor) -> None:
            seen.append((lengths == 1).tolist())

    put(monkeypatch, "sglang.srt.model_executor.cuda_graph_runner", CudaGraphRunner=CudaGraphRunner)
    put(monkeypatch, HYBRID, MambaAttnBackendBase=MambaAttnBackendBase)
    for patch in mended.MENDS["padding"]:
        patch.apply()
    CudaGraphRunner().replay_prepare(SimpleNamespace(batch_size=3))
    assert seen == [[False, False, False, True]]


def test_a_control_has_nothing_to_be_found() -> None:
    told = mistakes_gpu.found(ReferenceSubject(), named("eagle_padded"), solved)
    assert (told["first"], told["all"]) == ("", [])


def test_scenarios_of_mistakes(tmp_path: Path) -> None:
    """They have cut prompts, and more rows in a batch than one."""
    engine_checkpoints.write_all(tmp_path, 2)
    for kind in mistakes_gpu.TARGETS:
        found = mistakes_gpu.scenarios(kind, tmp_path, SglangEngine().limits)
        assert len(found) == mistakes_gpu.TAKEN
        for one in found:
            assert one.schedule.max_batch > 1
            assert any(len(request.prompt) > one.schedule.chunk for request in one.requests)
