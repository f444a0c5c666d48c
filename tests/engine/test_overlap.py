"""Streams, shared buffers and the relay of an engine whose host is a step behind."""

from __future__ import annotations

import torch

from draftproof.engine.probes import Probes
from draftproof.engine.relay import Relay
from draftproof.engine.stages import BufferUse
from draftproof.engine.staging import DEPTH, Staging
from draftproof.engine.streams import HostStream, stream_of

CPU = torch.device("cpu")


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
    relay, rows = Relay(4, 10, CPU), torch.tensor([3, 1])
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
    relay, row = Relay(2, 10, CPU), torch.tensor([1])
    relay.begin(row, torch.tensor([9]), torch.tensor([4]))
    assert relay.inputs(row, torch.tensor([3]), torch.tensor([9]))["num_drafts"].tolist() == [0]
    relay.advance(row, torch.tensor([0]), torch.tensor([5]))
    assert relay.inputs(row, torch.tensor([3]), torch.tensor([9]))["num_drafts"].tolist() == [-1]
    relay.advance(row, torch.tensor([-1]), torch.tensor([0]))
    assert (relay.seq_len[1].item(), relay.pending_token[1].item()) == (10, 5)
