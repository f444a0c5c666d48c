"""A live SGLang as a subject, up to where it needs a GPU, and the driver on a scheduler made by hand."""

from __future__ import annotations

import json
import sys
from collections import deque
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors import torch as torch_file
from safetensors.numpy import load_file, save_file

from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, States
from draftproof.properties.values.script import RequestScript, RoundScript, Script
from draftproof.subjects.making import SettingError
from draftproof.subjects.sglang import sglang
from draftproof.subjects.sglang.live import driving, engine, heads, native
from draftproof.subjects.sglang.live.pools import StatePool
from draftproof.subjects.sglang.live.taps import GraphTaps, TappedForward
from tests.named import named

STEPS, PAGES, VOCAB = 2, 64, 50
SWITCHES = {"graphs": True, "overlap": True, "radix": False, "kernels": "native"}


def write_head(folder: Path, architecture: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "hidden_size": 4}))
    save_file({"fc.weight": np.ones((4, 8), np.float32)}, folder / "model.safetensors")
    return folder


def test_head_becomes_one_of_sglang(tmp_path: Path) -> None:
    made = Path(heads.published(str(write_head(tmp_path / "head", "LlamaForCausalLM")), "eagle"))
    assert json.loads((made / "config.json").read_text())["architectures"] == ["LlamaForCausalLMEagle"]
    np.testing.assert_array_equal(load_file(made / "model.safetensors")["fc.bias"], np.zeros(4, np.float32))


def test_head_in_bfloat16_becomes_one_of_sglang(tmp_path: Path) -> None:
    head = write_head(tmp_path / "head", "LlamaForCausalLM")
    torch_file.save_file({"fc.weight": torch.ones(4, 8, dtype=torch.bfloat16)}, head / "model.safetensors")
    bias = torch_file.load_file(Path(heads.published(str(head), "eagle")) / "model.safetensors")["fc.bias"]
    assert bias.tolist() == [0.0] * 4
    assert bias.dtype == torch.bfloat16


def test_head_of_sglang_stays(tmp_path: Path) -> None:
    given = str(write_head(tmp_path / "head", "LlamaForCausalLMEagle"))
    assert heads.published(given, "eagle") == given


def test_head_of_eagle3_becomes_one_of_sglang(tmp_path: Path) -> None:
    made = Path(heads.published(str(write_head(tmp_path / "head", "LlamaForCausalLM")), "eagle3"))
    assert json.loads((made / "config.json").read_text())["architectures"] == ["LlamaForCausalLMEagle3"]
    assert set(load_file(made / "model.safetensors")) == {"fc.weight"}


def test_release_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.5.11.paths").write_text("/nowhere\n")
    with pytest.raises(engine.SglangStartError, match=r"no release '0.5.13' in .*engines unpack.*\(0\.5\.11\)"):
        sglang(release="0.5.13", engines=str(tmp_path))


def test_release_is_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["old"])
    (tmp_path / "0.5.13.paths").write_text("/engine\n/base\n")
    assert sglang(release="0.5.13", engines=str(tmp_path)).name == "sglang 0.5.13"
    assert sys.path == ["/engine", "/base", "old"]


def test_setting_out_of_range() -> None:
    with pytest.raises(SettingError, match=r"invalid --set steps=0: expected a whole number, 1 \.\. 16"):
        sglang(steps="0")


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")
def test_without_a_gpu() -> None:
    spec = engine.SglangSpec("m", "float32", "EAGLE", "", 3, 1, 64, **SWITCHES)
    with pytest.raises(engine.SglangStartError, match=r"SGLang needs a GPU, and torch finds none"):
        engine.start(spec)


class Scheduler:
    """An SGLang of one request at a time, whose draft proposes 7 and whose target counts on: token + 1.

    With `lags` results are processed a step late, as with an overlap.
    """

    def __init__(self, lags: bool) -> None:
        self.lags, self.last_batch, self.queue = lags, None, deque()
        self.table = torch.zeros(2, 128, dtype=torch.int32)
        self.table[1] = torch.arange(1, 129)
        self.req_to_token_pool = SimpleNamespace(req_to_token=self.table)
        pool = SimpleNamespace(k_buffer=[torch.zeros(200, 1, 2)], v_buffer=[torch.zeros(200, 1, 2)])
        self.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(token_to_kv_pool=pool))
        drafter = SimpleNamespace(draft=self.draft, draft_runner=self.tp_worker.model_runner)
        self.draft_worker = SimpleNamespace(draft_worker=drafter)
        self.send_to_detokenizer = SimpleNamespace()
        self.forwards: list[TappedForward] = []
        self.req, self.length, self.cached = None, 0, 0

    def flush_cache(self, *, empty_cache: bool) -> None:
        self.req = None

    def draft(self, batch):
        first = torch.tensor([self.pending, 7, 7])
        return SimpleNamespace(draft_token=first)

    def run_event_loop(self) -> None:
        while True:
            for given in self.recv_requests():
                self.req = SimpleNamespace(
                    rid=given.rid, req_pool_idx=1, output_ids=[], given=given, finished=lambda: False, finished_len=None
                )
                self.length, self.ran = 0, False
            batch = self.batch()
            if batch:
                self.queue.append((batch, self.run_batch(batch)))
            if self.queue and (not self.lags or self.last_batch):
                self.process_batch_result(*self.queue.popleft())
            self.last_batch = batch

    def batch(self):
        if self.req is None or self.req.finished():
            return None
        prompt = self.req.given.prompt
        mode = SimpleNamespace(is_extend=lambda: not self.ran, is_idle=lambda: False)
        cached = self.cached
        lens = {"prefix_lens": [cached], "extend_lens": [len(prompt) - cached], "req_pool_indices": torch.tensor([1])}
        return SimpleNamespace(reqs=[self.req], forward_mode=mode, seq_lens=torch.tensor([self.length]), **lens)

    def run_batch(self, batch):
        if not self.ran:
            self.ran, prompt = True, self.req.given.prompt
            self.length, self.pending = len(prompt), prompt[-1] + 1
            self.seen(False, "EXTEND", ids=list(prompt), logits=[self.pending])
            return SimpleNamespace(copy_done=None, next_draft_input=None, tokens=[self.pending])
        ids = self.draft_worker.draft_worker.draft(batch).draft_token
        chosen = ids + 1
        count = 1 + int((ids[1:] == chosen[:-1]).int().cumprod(0).sum())
        self.seen(False, "TARGET_VERIFY", ids=ids.tolist(), logits=chosen.tolist())
        self.length += count
        self.pending = int(chosen[count - 1])
        lengths = torch.tensor([self.length])
        return SimpleNamespace(
            copy_done=None,
            accept_lens=torch.tensor([count]),
            next_token_ids=chosen,
            new_seq_lens=lengths,
            tokens=chosen[:count].tolist(),
        )

    def seen(self, is_draft, mode, ids, logits):
        rows = torch.eye(VOCAB)[torch.tensor(logits)].numpy()
        tensors = {"ids": np.array(ids), "positions": np.arange(len(ids)), "logits": rows}
        self.forwards.append(TappedForward(is_draft, mode, tensors))

    def process_batch_result(self, batch, result):
        (req,) = batch.reqs
        if req.finished():
            return
        req.output_ids += result.tokens
        if len(req.output_ids) >= req.given.budget:
            req.finished, req.finished_len = lambda: True, req.given.budget


@pytest.fixture(params=[False, True], ids=["serial", "overlapped"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> driving.SglangDriver:
    scheduler = Scheduler(request.param)
    monkeypatch.setattr(GraphTaps, "install", lambda self: None)
    monkeypatch.setattr(GraphTaps, "take", lambda self: [scheduler.forwards.pop(0) for _ in scheduler.forwards[:]])
    monkeypatch.setattr(engine, "start", lambda spec: scheduler)
    monkeypatch.setattr(
        engine, "request_of", lambda rid, prompt, budget, stop: SimpleNamespace(rid=rid, prompt=prompt, budget=budget)
    )
    monkeypatch.setattr(driving.SglangDriver, "_begin", lambda self, scenario: None)
    return driving.SglangDriver(engine.SglangSpec("m", "float32", "EAGLE", "", STEPS, 1, 64, **SWITCHES))


def test_a_worker_v1_is_not_driven() -> None:
    with pytest.raises(engine.SglangStartError, match=r"worker v1 where overlap scheduling is off.*--set overlap=yes"):
        driving._drafter(SimpleNamespace(draft=None, draft_model_runner=None))


class RingOfResults:
    """As `FutureMap` of SGLang 0.5.12."""

    def __init__(self, rows, chunk, length, device, algorithm):
        self.future_limit = rows * (3 + -(-length // chunk))


def test_a_ring_of_results_has_room_for_the_chunks_of_a_scenario() -> None:
    """With that of the start, 32 rows, a first verify of live 0.5.11 began from a later launch."""
    scheduler = SimpleNamespace(
        max_running_requests=8,
        chunked_prefill_size=1,
        model_config=SimpleNamespace(context_len=512),
        device="cpu",
        spec_algorithm=None,
        future_map=RingOfResults(8, 512, 512, "cpu", None),
    )
    assert scheduler.future_map.future_limit == 32
    driving._fit_ring(scheduler)
    assert scheduler.future_map.future_limit == 4120
    driving._fit_ring(SimpleNamespace(future_map=SimpleNamespace()))


def asked(forced: tuple[int, ...] | None):
    scenario = named("eagle_padded")
    one = replace(scenario.requests[0], prompt=(10, 11, 12), budget=6, arrival=0)
    rounds = (RoundScript(context=-1, drafts=-1, forced=forced, correct_len=-1, emitted=()),)
    return replace(scenario, requests=(one,)), Script(requests=(RequestScript(tokens=(), stop=(), rounds=rounds),))


def of(observations, channel):
    return {(one.key.round, one.key.row): one.value for one in observations if one.channel == channel}


def test_forced_drafts_take_the_place_of_proposals(driver: driving.SglangDriver) -> None:
    seen = driver.run(*asked((14, 15)))
    assert of(seen, "propose.tokens")[1, -1] == (7, 7)
    assert of(seen, "round.drafts")[1, -1] == (14, 15)
    assert of(seen, "accept.correct_len") == {(1, -1): 2, (2, -1): 0, (3, -1): 0}
    # Its budget cuts nothing here: one token of the prompt, three, one and one.
    assert of(seen, "accept.emitted") == {(0, -1): (13,), (1, -1): (14, 15, 16), (2, -1): (17,), (3, -1): (18,)}
    assert of(seen, "commit.length") == {(0, -1): 3, (1, -1): 6, (2, -1): 7, (3, -1): 8}


def test_what_is_not_forced_is_the_drafts_own(driver: driving.SglangDriver) -> None:
    seen = driver.run(*asked(None))
    assert set(of(seen, "round.drafts").values()) == {(7, 7)}
    assert [one.step for one in of(seen, "round.rows").values()] == [0, 1, 2, 3, 4, 5]


def test_a_draft_that_was_not_verified_shows(driver: driving.SglangDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported as verified is read from the verify, and not from what was forced."""
    monkeypatch.setattr(driver, "_proposing", driver._propose)
    driver._scheduler.draft_worker.draft_worker.draft = driver._propose
    assert set(of(driver.run(*asked((14, 15))), "round.drafts").values()) == {(7, 7)}


def test_a_draft_of_few_tokens_proposes_ids_of_the_target(driver: driving.SglangDriver) -> None:
    scheduler = driver._scheduler

    def proposed(batch):
        scheduler.seen(True, "DECODE", ids=[scheduler.pending], logits=[4])
        return Scheduler.draft(scheduler, batch)

    driver._propose = proposed
    assert {value[0] for value in of(driver.run(*asked(None)), "draft.step.proposal").values()} == {4}
    driver._draft_ids = 3 * np.arange(VOCAB)
    assert {value[0] for value in of(driver.run(*asked(None)), "draft.step.proposal").values()} == {12}


def test_what_a_prefix_cache_served(driver: driving.SglangDriver) -> None:
    """Entries of the whole prompt are read, although one token of three was run."""
    driver._scheduler.cached = 2
    seen = driver.run(*asked(None))
    assert of(seen, "round.cached") == {(0, -1): 2}
    (rows,) = [one.value for one in seen if one.channel == "round.rows" and one.key.round == 0]
    assert rows.count == 1
    assert [row for number, row in of(seen, "commit.kv") if not number] == [0, 1, 2]


def test_slots_of_a_prompt_are_those_that_it_was_written_to(driver: driving.SglangDriver) -> None:
    """A radix cache moves a prompt to slots of another request as soon as it ran: live 0.5.13 did so between chunks."""
    scheduler, run = driver._scheduler, driver._run_batch

    def running(batch):
        result = run(batch)
        scheduler.table[1, :2] = torch.tensor([91, 92])
        return result

    driver._run_batch = running
    table = of(driver.run(*asked(None)), "round.table")
    assert [table[0, column] for column in range(3)] == [1, 2, 3]
    assert [table[1, column] for column in range(3)] == [91, 92, 3]


def test_no_radix_cache_of_a_hybrid(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"linear_conv_kernel_dim": 4}))
    scenario = named("eagle_padded")
    made = replace(
        scenario, model=Checkpoint(path=str(tmp_path), vocab=VOCAB), draft=CheckpointDraft(path="", built_in=True)
    )
    with pytest.raises(engine.SglangStartError, match="radix cache of a hybrid is not driven"):
        sglang(radix="yes").run(made, Script(requests=()))


def test_an_engine_that_did_not_start_says_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(spec: engine.SglangSpec):
        raise ValueError("no such kernel")

    monkeypatch.setattr(engine, "start", start)
    monkeypatch.setattr(GraphTaps, "install", lambda self: None)
    subject = sglang()
    monkeypatch.setattr(subject, "_spec_of", lambda scenario: None)
    with pytest.raises(ValueError, match="no such kernel"):
        subject.run(*asked(None))
    with pytest.raises(engine.SglangStartError, match="SGLang did not start before: ValueError: no such kernel"):
        subject.run(*asked(None))


LAYERS, SLOTS, ROWS, KEY, VALUE, CHANNELS = (0, 2), 5, 3, 2, 3, 4


def state_requests():
    """SGLang's table of requests with a pool of states, each number of which says where it is."""
    layers, width = len(LAYERS), STEPS + 1
    shapes = {
        "conv": (layers, SLOTS, CHANNELS, 3),
        "temporal": (layers, SLOTS, 1, VALUE, KEY),
        "intermediate_conv_window": (layers, ROWS, width, CHANNELS, 3),
        "intermediate_ssm": (layers, ROWS, width, 1, VALUE, KEY),
    }
    made = {name: torch.arange(float(np.prod(shape))).view(shape) for name, shape in shapes.items()}
    cache = SimpleNamespace(**{name: [x] if "conv" in name else x for name, x in made.items()})
    return SimpleNamespace(
        mamba_pool=SimpleNamespace(mamba_cache=cache),
        mamba_map={layer: place for place, layer in enumerate(LAYERS)},
        get_mamba_indices=lambda rows: 4 - rows,
    ), made


def test_states_are_read_as_they_are_defined() -> None:
    """The window with the oldest input first, then the matrix of each head with keys first (S-GDN-8)."""
    requests, made = state_requests()
    states = StatePool(requests)
    assert states.layers == LAYERS
    got = states.committed(states.slots(torch.tensor([1, 3])))
    assert got.shape == (2, 2, 3 * CHANNELS + KEY * VALUE)
    assert got[1, 0, CHANNELS + 2] == made["conv"][1, 3, 2, 1]
    assert got[1, 1, 3 * CHANNELS + VALUE + 2] == made["temporal"][1, 1, 0, 2, 1]
    rows = states.intermediate(2)
    assert rows.shape == (2, 2, STEPS + 1, 3 * CHANNELS + KEY * VALUE)
    assert rows[0, 1, 2, 3 * CHANNELS + 1] == made["intermediate_ssm"][0, 1, 2, 0, 1, 0]
    states.poison()
    assert {float(x.min()) for x in made.values()} == {997.0}


def test_states_of_a_launch(driver: driving.SglangDriver) -> None:
    """They are read after each launch, with the verify row that was committed, as SGLang told its backend."""
    scheduler = driver._scheduler
    requests, made = state_requests()
    driver._states = StatePool(requests)
    scheduler.forward_stream_ctx = nullcontext()
    backend = SimpleNamespace(update_mamba_state_after_mtp_verify=lambda **named: None)
    driver._watch_commits(backend)
    run_batch = driver._run_batch

    def committing(batch):
        result = run_batch(batch)
        made["temporal"] += 1
        if hasattr(result, "accept_lens"):
            backend.update_mamba_state_after_mtp_verify(last_correct_step_indices=result.accept_lens - 1)
        return result

    driver._run_batch = committing
    seen = driver.run(*asked((14, 15)))
    assert of(seen, "commit.step_index") == {(1, -1): 2, (2, -1): 0, (3, -1): 0}
    states = {(one.key.round, one.key.layer): one.value for one in seen if one.channel == "commit.state"}
    assert {layer for _, layer in states} == set(LAYERS)
    assert [states[r, 0][-1] - states[0, 0][-1] for r in range(4)] == [0, 1, 2, 3]
    rows = {one.key.row for one in seen if one.channel == "commit.intermediate" and one.key.round == 1}
    assert rows == set(range(STEPS + 1))


@pytest.mark.parametrize("place", ["sglang.srt.layers.attention.fla", "sglang.kernels.ops.attention.fla"])
def test_prompts_run_in_the_recurrent_kernel(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    given = {}

    def kernel(q, k, v, g, beta, **named):
        given.update(named, is_contiguous=q.is_contiguous())
        return v

    module = SimpleNamespace(fused_recurrent_gated_delta_rule_update_fwd=kernel)
    monkeypatch.setitem(sys.modules, f"{place}.fused_recurrent", module)
    parts = place.split(".")
    for count in range(1, len(parts) + 1):
        package = SimpleNamespace(__path__=[], __spec__=object(), fused_recurrent=module)
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), package)
    q = torch.zeros(1, 16, 2, 4).transpose(1, 2)
    made = native.recurrent(
        q, q, q, q[..., 0], q[..., 0], initial_state=7, initial_state_indices=8, cu_seqlens=9,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    assert made[0].is_contiguous()
    assert made[1:] == (None, None)
    assert given == {
        "scale": 0.5,
        "initial_state_source": 7,
        "initial_state_indices": 8,
        "cu_seqlens": 9,
        "use_qk_l2norm_in_kernel": True,
        "is_contiguous": True,
    }


def test_rows_of_states_are_told_where_they_are_defined(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"linear_conv_kernel_dim": 4}))
    scenario = named("eagle_padded")
    scenario = replace(scenario, model=Checkpoint(path=str(tmp_path), vocab=VOCAB))
    snapshot, replay = (replace(scenario, states=States(commit=commit)) for commit in ("snapshot", "replay"))
    subject = sglang()
    assert subject.channels(snapshot) - subject.channels(replay) == {"commit.intermediate"}
    assert {"commit.state", "commit.step_index"} < subject.channels(replay)
