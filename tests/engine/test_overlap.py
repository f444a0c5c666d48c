"""Streams, shared buffers and the relay of an engine whose host is a step behind."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from draftproof.engine.config import Delay
from draftproof.engine.engine import Engine
from draftproof.engine.future_map import FutureMap
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.overlap import OverlapEngine
from draftproof.engine.probes import Probes
from draftproof.engine.stages import BufferUse, StepPlan
from draftproof.engine.staging import DEPTH, Staging
from draftproof.engine.streams import HostStream, stream_of
from draftproof.engine.subject import build
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solve import solve
from tests.named import named

CPU = torch.device("cpu")


BEHIND = ("overlapped_stop", "overlapped_hybrid", "five_in_graphs", "mtp_chain_partial")
"""Scenarios of greedy requests: some that are planned ahead by themselves, and others."""


def _backend(device: torch.device) -> Backend:
    if device.type == "cpu":
        return HostBackend()
    from draftproof.engine.graphs.cuda import CudaBackend

    return CudaBackend(device)


def served(
    scenario: Scenario, device: torch.device, overlap: tuple[Delay, ...], probes: Probes | None = None
) -> dict[int, tuple[int, ...]]:
    """Return what an engine that nobody else observes, and nobody steers, emits of each request."""
    models, config = build.models(scenario, device), replace(build.config(scenario), overlap=overlap)
    with torch.no_grad():
        engine = (OverlapEngine if overlap else Engine)(models.target, models.draft, config, device, probes)
        if scenario.graphs.sizes and scenario.graphs.capture:
            engine.capture(_backend(device))
        texts = dict[int, tuple[int, ...]]()
        for request in build.requests(scenario, solve(scenario)):
            engine.add(request)
        while not engine.idle:
            for commit in engine.step():
                texts[commit.request] = (*texts.get(commit.request, ()), *commit.emitted)
    return texts


@cache
def waited_for(name: str, device: torch.device) -> dict[int, tuple[int, ...]]:
    """Return what such an engine emits where the host waits for every step."""
    return served(named(name), device, ())


ON = (pytest.param(CPU, id="cpu"), pytest.param(torch.device("cuda"), id="cuda", marks=pytest.mark.gpu))


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("overlap", [("late",), ("early",), ("late", "early", "none")], ids=" ".join)
@pytest.mark.parametrize("name", BEHIND)
def test_nobody_has_to_look_for_texts_to_be_the_same(
    name: str, overlap: tuple[Delay, ...], device: torch.device
) -> None:
    """On a GPU nothing waits for the device here but the host that processes results."""
    if device.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device: run by make test-gpu on a GPU machine")
    assert served(named(name), device, overlap) == waited_for(name, device)


class _Runs(Probes):
    """In which engine step the device began each step."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.began = -1, dict[int, int]()

    def on_plan(self, plan: StepPlan) -> None:
        self.now = plan.step

    def on_run(self, plan: StepPlan) -> None:
        self.began.setdefault(plan.step, self.now)


@pytest.mark.parametrize("overlap", [("late",), ("early",), ("late", "early", "none")], ids=" ".join)
@pytest.mark.parametrize("name", BEHIND)
def test_a_device_begins_a_late_step_in_the_next_one_and_others_at_once(name: str, overlap: tuple[Delay, ...]) -> None:
    """Were none late, nothing of what late steps are to show would show (S-OVERLAP-1)."""
    served(named(name), CPU, overlap, probes := _Runs())
    assert probes.began == {step: step + (overlap[step % len(overlap)] == "late") for step in probes.began}
    assert len(probes.began) > len(overlap)


def test_early_work_runs_as_it_is_given_and_late_work_when_it_is_waited_for() -> None:
    stream, ran = HostStream(), list[str]()
    stream.run(lambda: ran.append("early"), late=False)
    assert ran == ["early"]
    stream.run(lambda: ran.append("late"), late=True)
    assert ran == ["early"]
    assert (stream.given, stream.waited) == (2, 0)
    stream.wait(1)
    assert ran == ["early"], "the event of an earlier work says nothing of a later one"
    stream.wait(2)
    assert ran == ["early", "late"]
    assert stream.waited == 2


def test_work_runs_in_the_order_in_which_it_is_given() -> None:
    stream, ran = HostStream(), list[int]()
    for number in (1, 2, 3):
        stream.run(lambda number=number: ran.append(number), late=True)  # type: ignore[misc]
    stream.wait(2)
    assert ran == [1, 2]
    stream.run(lambda: ran.append(4), late=False)
    assert ran == [1, 2, 3, 4]
    assert stream.waited == 2, "who runs early is not waited for"


def test_a_cpu_has_a_host_stream() -> None:
    assert isinstance(stream_of(CPU), HostStream)


class _Uses(Probes):
    def __init__(self) -> None:
        super().__init__()
        self.uses = list[BufferUse]()

    def on_buffer(self, use: BufferUse) -> None:
        self.uses.append(use)


def test_buffers_of_a_kind_take_turns_and_tell_who_uses_them() -> None:
    probes, stream = _Uses(), HostStream()
    staging = Staging("inputs", 4, stream, CPU, probes)
    own = [staging.of_host(work) for work in range(1, DEPTH + 2)]
    assert own[0] is own[DEPTH]
    assert len({id(one) for one in own}) == DEPTH
    assert staging.of_device(1) is own[0]
    stream.run(lambda: None, late=True)
    stream.wait(1)
    staging.of_host(3)
    assert probes.uses[-2:] == [BufferUse("inputs", 1, True, 1, 0), BufferUse("inputs", 1, False, 3, 1)]


def test_the_relay_hands_on_lengths_and_tokens_by_request_row() -> None:
    relay, rows = FutureMap(4, 10, CPU), torch.tensor([3, 1])
    relay.begin(rows, torch.tensor([5, 7]), torch.tensor([40, 41]))
    limits = torch.tensor([8, 8])
    inputs = relay.inputs(rows.flip(0), torch.tensor([3, 2]), limits)
    assert {name: value.tolist() for name, value in inputs.items()} == {
        "positions": [7, 5],
        "pending_tokens": [41, 40],
        "num_drafts": [1, 2],
    }
    relay.advance(rows, torch.tensor([2, 0]), torch.tensor([50, 51]))
    assert relay.seq_len.tolist() == [0, 8, 0, 8]
    assert relay.pending_token.tolist() == [0, 51, 0, 50]


def test_who_has_no_position_left_is_padding_and_stays_as_it_is() -> None:
    relay, row = FutureMap(2, 10, CPU), torch.tensor([1])
    relay.begin(row, torch.tensor([9]), torch.tensor([4]))
    assert relay.inputs(row, torch.tensor([3]), torch.tensor([9]))["num_drafts"].tolist() == [0]
    relay.advance(row, torch.tensor([0]), torch.tensor([5]))
    assert relay.inputs(row, torch.tensor([3]), torch.tensor([9]))["num_drafts"].tolist() == [-1]
    relay.advance(row, torch.tensor([-1]), torch.tensor([0]))
    assert (relay.seq_len[1].item(), relay.pending_token[1].item()) == (10, 5)
