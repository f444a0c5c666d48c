"""Recurrent states: what every round commits, and who owns which state slot.

`n` the context length before a round, `m` the tokens it emits. A state is a vector: the convolution's window, then the
delta rule's matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

import msgspec

from draftproof.properties.contracts.base import Contract, nearness
from draftproof.properties.diagnosis.compare import Place, classify, differing, first_divergence, first_of
from draftproof.properties.diagnosis.lanes import explains
from draftproof.properties.diagnosis.origins import origin
from draftproof.properties.diagnosis.strides import stride
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Datum, Owner, StatePoolReport
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence

_BY_ROW = ("commit.state", "commit.intermediate")


def _hybrid(evidence: Evidence) -> bool:
    return evidence.hybrid


def _commits(how: str, evidence: Evidence) -> bool:
    return evidence.hybrid and evidence.scenario.states.commit == how


def _checkpoints(evidence: Evidence) -> bool:
    return evidence.hybrid and evidence.scenario.states.checkpoint > 0


def _equals(name: str, channels: tuple[str, ...], evidence: Evidence) -> Iterator[Divergence]:
    """Every value is the reference's; a wrong state of a row says whose it is."""
    for channel in channels:
        expected, got = evidence.pair(channel)
        near = nearness(evidence, channel)
        found = first_divergence(name, channel, expected, got, near=near)
        if found and channel in _BY_ROW:
            wrong = differing(expected, got, near)
            step = _first_wrong(evidence, wrong)
            yield _explained(evidence, _at(evidence, found, wrong, step), got, step)
        elif found:
            yield found


def _first_wrong(evidence: Evidence, wrong: list[Key]) -> int:
    """The first engine step whose decode batch has a wrong state; -1 if none has. What comes later may follow."""
    return min(
        (evidence.schedule.decode_steps[key[:2]] for key in wrong if key[:2] in evidence.schedule.decode_steps),
        default=-1,
    )


def _at(evidence: Evidence, found: Divergence, wrong: list[Key], step: int) -> Divergence:
    """A divergence of decode rounds at the first place of an engine step: of two requests, the rounds of one may come
    later than those of the other."""
    there = [key for key in wrong if evidence.schedule.decode_steps.get(key[:2]) == step]
    if not found.round or not there:
        return found
    expected, got = evidence.pair(found.channel)
    key = min(there, key=lambda key: Observation(found.channel, key, 0).order)
    relation = classify(found.channel, key, expected, got)
    place = Place(found.channel, key, expected.get(key), got.get(key), relation)
    return place.divergence(found.contract, count=found.count, extent=found.extent)


def _explained(evidence: Evidence, found: Divergence, got: Mapping[Key, Datum], step: int) -> Divergence:
    """A wrong stride explains more than whatever lies where it leads; what is stale or poison is no other row's."""
    if found.relation in ("missing", "surplus"):
        return found
    channel, key = found.channel, Key(found.request, found.round, found.step, found.layer, found.row)
    strided = stride(evidence, channel, step, got)
    if strided:
        relation, at = strided
        place = Place(channel, at, evidence.reference.channel(channel).get(at), got[at], relation)
        return place.divergence(found.contract, count=found.count, extent=found.extent)
    if not found.relation.startswith(("different", "another row")):
        return found
    relation = origin(evidence, key, got[key]) or _partly(evidence, channel, key, got)
    return msgspec.structs.replace(found, relation=relation) if relation else found


def _partly(evidence: Evidence, channel: str, key: Key, got: Mapping[Key, Datum]) -> str:
    """Another round of the request that one of the two parts of a state is of."""
    value, expected = got[key], evidence.reference.channel(channel)
    rounds = [
        other.round
        for other, state in expected.items()
        if other._replace(round=key.round) == key and other != key and explains(state, value, expected.get(key))
    ]
    if not rounds:
        return ""
    near = min(rounds, key=lambda number: abs(number - key.round))
    return f"{'stale: ' if near < key.round else ''}value of round {near}, in part"


def _slots(evidence: Evidence) -> Iterator[Divergence]:
    """One owner a state slot at a time, one for all of a request; owned is what the requests that go on reported."""
    found = first_of("state.ownership", _reported(evidence))
    if found:
        yield found
    expected: dict[Key, Datum] = {}
    for step in range(evidence.schedule.last_step + 2):
        expected[Key(-1, step)] = tuple(sorted(Owner(slot, request) for request, slot in _live(evidence, step).items()))
    got = {key: report.owners for key, report in evidence.subject.typed("pool.states", StatePoolReport).items()}
    found = first_divergence("state.ownership", "pool.states", expected, got)
    if found:
        yield found


def _live(evidence: Evidence, step: int) -> dict[int, int]:
    """request -> state slot of those that go on after an engine step, by what they reported first."""
    live: dict[int, int] = {}
    for row in evidence.schedule.rows:
        first, last = evidence.schedule.spans[row.request]
        slot = evidence.tables.state_slot(row.request, row.round)
        if row.step <= step and first <= step < last and slot is not None:
            live.setdefault(row.request, slot)
    return live


def _reported(evidence: Evidence) -> Iterator[Place]:
    reported = dict(evidence.subject.channel("round.state"))
    most = evidence.scenario.memory.request_slots
    first: dict[int, int] = {}
    for key in dict.fromkeys(Key(row.request, row.round) for row in evidence.schedule.rows):
        slot = reported.pop(key, None)
        if not isinstance(slot, int):
            yield Place("round.state", key, "a state slot", None, "missing")
            continue
        if not 1 <= slot <= most:
            yield Place("round.state", key, f"1 .. {most}", slot, "out of range")
        if first.setdefault(key.request, slot) != slot:
            yield Place("round.state", key, first[key.request], slot, "moved")
    for key, slot in reported.items():
        yield Place("round.state", key, None, slot, "surplus")
    yield from _shared(evidence, first)


def _shared(evidence: Evidence, slots: Mapping[int, int]) -> Iterator[Place]:
    """The owner of a slot must have ended in an earlier step than the next one gets it."""
    by_start = sorted(slots, key=lambda request: evidence.schedule.spans[request])
    for slot in sorted(set(slots.values())):
        owners = [request for request in by_start if slots[request] == slot]
        for one, other in pairwise(owners):
            if evidence.schedule.spans[other][0] <= evidence.schedule.spans[one][1]:
                relation = f"another row: request {one}"
                yield Place("round.state", Key(other, 0), "a state slot of its own", slot, relation)


def _balance(evidence: Evidence) -> Iterator[Divergence]:
    """Free and owned state slots together are all; at the end everything is back."""
    slots = evidence.scenario.memory.request_slots
    expected: dict[Key, Datum] = {Key(-1, step): slots for step in range(evidence.schedule.last_step + 2)}
    got: dict[Key, Datum] = {}
    for key, report in evidence.subject.typed("pool.states", StatePoolReport).items():
        if key.round <= evidence.schedule.last_step:
            expected[key] = slots - len(report.owners)
        got[key] = report.free_slots
    found = first_divergence("state.balance", "pool.states", expected, got)
    if found:
        yield found


def _bounds(evidence: Evidence) -> Iterator[Divergence]:
    """Every index within what it indexes."""
    allowed = {
        "round.state": (1, evidence.scenario.memory.request_slots),
        "commit.step_index": (0, evidence.scenario.steps),
        "commit.pending": (0, evidence.scenario.steps + 1),
    }
    for channel, (low, high) in allowed.items():
        places = (
            Place(channel, key, f"{low} .. {high}", value, "out of range")
            for key, value in evidence.subject.channel(channel).items()
            if not isinstance(value, int) or not low <= value <= high
        )
        found = first_of("state.bounds", places)
        if found:
            yield found


def _contract(name: str, channels: tuple[str, ...] = (), concerns=_hybrid, **minimum: int) -> Contract:
    channels = channels or (name,)
    return Contract(
        name=name,
        needs=frozenset(channels),
        minimum={"hybrid_scenarios": 1, **minimum},
        check=partial(_equals, name, channels),
        concerns=concerns,
    )


_BOUNDED = frozenset({"round.state", "commit.step_index", "commit.pending"})

CONTRACTS = (
    _contract("commit.step_index", states_committed_none=1, states_committed_partial=1, states_committed_all=1),
    _contract(
        "commit.state",
        states_committed_none=1,
        states_committed_partial=1,
        states_committed_all=1,
        states_committed_without_drafts=1,
        states_alternating=1,
        state_slot_reuses=1,
        states_started=1,
        hybrid_padded_replays=1,
    ),
    _contract(
        "commit.intermediate", concerns=partial(_commits, "snapshot"), snapshot_rounds=1, states_committed_partial=1
    ),
    _contract(
        "commit.pending",
        ("commit.pending", "commit.base"),
        concerns=partial(_commits, "replay"),
        replays_folded=1,
        states_committed_partial=1,
    ),
    _contract(
        "commit.checkpoint",
        concerns=_checkpoints,
        checkpoints_snapshot=1,
        checkpoints_replay=1,
        checkpoints_two_at_once=1,
        checkpoints_kept=1,
    ),
    _contract("commit.final", ("commit.final", "commit.unfolded"), finals=1, finals_flushed=1),
    Contract(
        name="state.ownership",
        needs=frozenset({"round.state", "pool.states"}),
        reads=frozenset({"round.rows"}),
        minimum={"hybrid_scenarios": 1, "state_slot_reuses": 1},
        check=_slots,
        concerns=_hybrid,
    ),
    Contract(
        name="state.balance",
        needs=frozenset({"pool.states"}),
        reads=frozenset({"round.rows"}),
        minimum={"hybrid_scenarios": 1, "state_slot_reuses": 1},
        check=_balance,
        concerns=_hybrid,
    ),
    Contract(
        name="state.bounds",
        needs=_BOUNDED,
        minimum={"hybrid_scenarios": 1, "replays_folded": 1},
        check=_bounds,
        partial=_BOUNDED,
        concerns=_hybrid,
    ),
)
