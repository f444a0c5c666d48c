"""What a script forces, and a recorder that from some moment on does no more than that."""

import inspect
from typing import Any

import msgspec
import pytest
import torch

from draftproof.engine.probes import Probes, Taps
from draftproof.engine.stages import DecodeRow, Proposal
from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.probe_switch import ProbeSwitch
from draftproof.engine.subject.steering import SilentRecorder, Steering
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.script import Script
from draftproof.reference.solved import solved
from tests.engine.scenarios import generation
from tests.properties.evidence import DISAGGREGATED, OVERLAPPED, STATIC

CALLS = [name for name, value in vars(Probes).items() if inspect.isfunction(value) and name != "__init__"]


class Noting(Probes):
    """Notes every call; what it returns is told from all else."""

    def __init__(self) -> None:
        super().__init__(Taps())
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in CALLS:
            return super().__getattribute__(name)

        def note(*arguments: Any) -> str:
            self.calls.append((name, arguments))
            return f"{name} returned"

        return note


def test_a_switch_passes_every_call_on_to_who_is_there() -> None:
    first, second = Noting(), Noting()
    switch = ProbeSwitch(first)
    assert len(CALLS) > 20
    for name in CALLS:
        switch.turn_to(first)
        arguments = tuple(range(len(inspect.signature(getattr(Probes, name)).parameters) - 1))
        assert getattr(switch, name)(*arguments) == f"{name} returned"
        assert first.calls[-1] == (name, arguments)
        switch.turn_to(second)
        getattr(switch, name)(*arguments)
        assert second.calls[-1] == (name, arguments)
    assert len(first.calls) == len(second.calls) == len(CALLS)
    assert switch.taps is first.taps


def test_a_silent_recorder_does_nothing_but_steer() -> None:
    assert {name for name in vars(SilentRecorder) if not name.startswith("_")} == {"on_known", "steer"}


def row_of(script: Script, request: int, round_: int, count: int) -> DecodeRow:
    context = script.requests[request].rounds[round_ - 1].context
    return DecodeRow(generation(request), 0, round_, seq_len=context, pending_token=0, num_drafts=count)


def proposal(*rows: tuple[int, ...]) -> Proposal:
    return Proposal(torch.tensor(rows), tuple(map(len, rows)))


def test_what_is_forced_is_verified_in_place_of_what_is_proposed() -> None:
    script = solved(STATIC).script
    drafts = script.requests[0].rounds[0].forced
    assert drafts
    steering, proposed = Steering(STATIC, script), proposal((40,) * len(drafts))
    batch = (row_of(script, 0, 1, len(drafts)),)
    for steered in (steering.steered(batch, proposed), SilentRecorder(steering).steer(batch, proposed)):
        assert steered.draft_tokens.tolist() == [list(drafts)]
        assert steered.num_drafts == (len(drafts),)
    assert (proposed.draft_tokens == 40).all(), "the proposal stays as it was"


def test_a_round_with_room_for_more_than_is_forced_verifies_what_is_proposed() -> None:
    """A text that went another way begins its rounds elsewhere, and K is what S-LIMIT-4 says there."""
    script = solved(STATIC).script
    drafts = script.requests[0].rounds[0].forced
    assert drafts
    short = msgspec.structs.replace(script.requests[0].rounds[0], forced=drafts[:-1])
    requests = (msgspec.structs.replace(script.requests[0], rounds=(short,), chains=()), *script.requests[1:])
    script = msgspec.structs.replace(script, requests=requests)
    for count in (len(drafts), len(drafts) - 1):
        proposed = proposal((40,) * count)
        steered = Steering(STATIC, script).steered((row_of(script, 0, 1, count),), proposed)
        assert (steered is proposed) == (count == len(drafts))


def test_what_is_not_forced_goes_on_as_it_is() -> None:
    plan = RoundPlan(num_drafts=1, num_correct=-1)
    requests = tuple(msgspec.structs.replace(one, rounds=(plan,)) for one in STATIC.requests)
    free = msgspec.structs.replace(STATIC, requests=requests)
    script, proposed = solved(free).script, proposal((40,))
    assert Steering(free, script).steered((row_of(script, 0, 1, 1),), proposed) is proposed


@pytest.mark.parametrize("scenario", [STATIC, OVERLAPPED, DISAGGREGATED], ids=["plain", "overlapped", "disaggregated"])
def test_what_is_served_again_is_not_recorded(scenario: Scenario) -> None:
    """Not by the recorder of a prefill engine either."""
    once, twice = (put_in(scenario, "schedule", services=count) for count in (1, 2))
    script = solved(once).script
    first, both = (EngineSubject().run(one, script).observations for one in (once, twice))
    assert sum(one.channel == "pool.reachable" for one in both) == 2
    assert [one for one in both if one.channel != "pool.reachable"] == list(first)
