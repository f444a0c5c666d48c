"""Recurrent states: what every round commits, and which request owns which state slot.

`n` the context length before a round, `m` the tokens it emits. A state is a vector: the convolution's window, then the
delta rule's matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

from draftproof.properties.contracts.base import Concerns, Contract, Differences, contract, ends
from draftproof.properties.contracts.slots import outside
from draftproof.properties.diagnosis.compare import Mismatch, differing, first_divergence, first_of, mismatch, of_round
from draftproof.properties.diagnosis.lanes import explains
from draftproof.properties.diagnosis.origins import origin
from draftproof.properties.diagnosis.strides import stride
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Datum, Owner, StatePoolReport
from draftproof.properties.values.relations import Different, Missing, Moved, OtherRow, OutOfRange, Relation, Surplus
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence

_BY_ROW = ("commit.state", "commit.intermediate")


def _hybrid(evidence: Evidence) -> bool:
    return evidence.hybrid


def _commits(how: str, evidence: Evidence) -> bool:
    return evidence.hybrid and evidence.scenario.states.commit == how


def _equals(name: str, channels: tuple[str, ...], evidence: Evidence) -> Differences:
    """Compare states with the reference; explain a wrong state by naming the row that it belongs to."""
    for channel in channels:
        expected, got = evidence.pair(channel)
        near = evidence.near(channel)
        found = first_divergence(name, channel, expected, got, near=near, order=evidence.order)
        if found and channel in _BY_ROW:
            found = _explained(evidence, found, differing(expected, got, near))
        yield found


def _explained(evidence: Evidence, found: Divergence, wrong: list[Key]) -> Divergence:
    """Explain wrong states by a stride, if one explains them, or else by the row or round that the state belongs to."""
    expected, got = evidence.pair(found.channel)
    key, step = _first_wrong(evidence, found, wrong)
    at = mismatch(found.channel, key, expected, got)
    relation: Relation | None = None
    if not isinstance(at.relation, Missing | Surplus):
        strided = stride(evidence, found.channel, step, got)
        if strided:
            relation, key = strided
        elif isinstance(at.relation, Different | OtherRow):
            relation = origin(evidence, key, got[key]) or _partly(evidence, found.channel, key, got[key])
    at = mismatch(found.channel, key, expected, got)
    return replace(at, relation=relation or at.relation).divergence(
        found.contract, count=found.count, total=found.total
    )


def _first_wrong(evidence: Evidence, found: Divergence, wrong: list[Key]) -> tuple[Key, int]:
    """Return the first wrong key, and the first engine step with a wrong state in its decode batch (-1: none has one).

    A round of one request may have a lower number and still run later than a round of another: for decode rounds the
    step decides.
    """
    step = min(
        (evidence.schedule.decode_steps[key[:2]] for key in wrong if key[:2] in evidence.schedule.decode_steps),
        default=-1,
    )
    there = [key for key in wrong if evidence.schedule.decode_steps.get(key[:2]) == step]
    first = found.key
    if not found.round or not there:
        return first, step
    return min(there, key=lambda key: Observation(found.channel, key, 0).order), step


def _partly(evidence: Evidence, channel: str, key: Key, value: Datum) -> Relation | None:
    """Return another round of the request that one of the two parts of a state is of."""
    expected = evidence.reference.channel(channel)
    rounds = [
        other.round
        for other, state in expected.items()
        if other._replace(round=key.round) == key and other != key and explains(state, value, expected.get(key))
    ]
    nearest = min(rounds, key=lambda number: abs(number - key.round), default=None)
    return None if nearest is None else of_round(nearest, key.round, in_part=True)


def _slots(evidence: Evidence) -> Differences:
    """Check that a state slot has one owner at a time, and a request one slot, by what live requests report."""
    yield first_of("state.ownership", _reported(evidence))
    expected: dict[Key, Datum] = {
        key: tuple(sorted(Owner(slot, request) for request, slot in _live(evidence, key.round).items()))
        for key in ends(evidence)
    }
    got = {key: report.owners for key, report in evidence.subject.typed("pool.states", StatePoolReport).items()}
    yield first_divergence("state.ownership", "pool.states", expected, got)


def _live(evidence: Evidence, step: int) -> dict[int, int]:
    """Return request -> state slot of those that go on after an engine step, by what they reported first of it."""
    live: dict[int, int] = {}
    preempted, goes_on = evidence.preempted(step), evidence.schedule.goes_on
    reported = evidence.subject.typed("round.state", int)
    for (request, _), rows in sorted(evidence.schedule.rows_of.items()):
        if request not in preempted and goes_on(request, step):
            ran = (Key(request, row.round) for row in takewhile(lambda row: row.step <= step, rows))
            place = next(filter(reported.__contains__, ran), None)
            if place is not None:
                live[request] = reported[place]
    return live


def _reported(evidence: Evidence) -> Iterator[Mismatch]:
    reported = dict(evidence.subject.typed("round.state", int))
    most = evidence.scenario.all_rows
    first: dict[tuple[int, int], int] = {}
    attempts = {Key(row.request, row.round): evidence.schedule.attempt(row) for row in evidence.schedule.rows}
    for key, attempt in attempts.items():
        slot = reported.pop(key, None)
        if slot is None:
            yield Mismatch("round.state", key, "a state slot", None, Missing())
            continue
        if not 1 <= slot <= most:
            yield Mismatch("round.state", key, f"1 .. {most}", slot, OutOfRange())
        own = first.setdefault((key.request, attempt), slot)
        if own != slot:
            yield Mismatch("round.state", key, own, slot, Moved())
    for key, slot in reported.items():
        yield Mismatch("round.state", key, None, slot, Surplus())
    yield from _shared(evidence, first)


def _shared(evidence: Evidence, slots: Mapping[tuple[int, int], int]) -> Iterator[Mismatch]:
    """Check that the owner of a slot ended, or was preempted, in an earlier step than the next one gets it."""
    spans = evidence.schedule.attempt_spans
    by_start = sorted(slots, key=lambda owner: spans[owner])
    for slot in sorted(set(slots.values())):
        owners = [owner for owner in by_start if slots[owner] == slot]
        for one, other in pairwise(owners):
            if spans[other][0] <= spans[one][1]:
                relation = OtherRow(request=one[0])
                yield Mismatch("round.state", Key(other[0], 0), "a state slot of its own", slot, relation)


def _balance(evidence: Evidence) -> Differences:
    """Check that free and owned state slots are all, and that everything is back at the end."""
    slots = evidence.scenario.all_rows
    expected: dict[Key, Datum] = dict.fromkeys(ends(evidence), slots)
    got: dict[Key, Datum] = {}
    for key, report in evidence.subject.typed("pool.states", StatePoolReport).items():
        if key.round <= evidence.schedule.last_step:
            expected[key] = slots - len(report.owners)
        got[key] = report.free_slots
    yield first_divergence("state.balance", "pool.states", expected, got)


def _cached(evidence: Evidence) -> Differences:
    """Check that what a prefix cache keeps is the state after those tokens, and that all that it is given is told."""
    told, known = evidence.subject.channel("commit.cached"), evidence.reference.channel("commit.cached")
    layers, of_step = {key.layer for key in (*known, *told)}, Counter(key.step for key in told)
    expected = {Key(-1, step): len(texts) * len(layers) for step, texts in evidence.prefixes.copied.items()}
    given = {key: of_step[key.round] for key in expected}
    yield first_divergence("commit.cached", "commit.cached", expected, given)
    # Nothing is said of a round in which its request is aborted.
    aborted = {number for number, one in enumerate(evidence.scenario.requests) if one.abort_at is not None}
    places = {key: key._replace(step=-1) for key in told}
    of_text = {key: known[place] for key, place in places.items() if place in known}
    got = {key: state for key, state in told.items() if key in of_text or key.request not in aborted}
    near = evidence.near("commit.cached")
    yield first_divergence(
        "commit.cached",
        "commit.cached",
        of_text,
        got,
        near=lambda key, one, other: near(places[key], one, other),
        order=evidence.order,
    )


def _bounds(evidence: Evidence) -> Differences:
    """Check that every index is within what it indexes."""
    steps = evidence.scenario.steps
    last = evidence.scenario.most_drafts(steps) if evidence.scenario.states.commit == "snapshot" else steps
    slots = (1, evidence.scenario.all_rows)
    yield from outside(
        "state.bounds",
        evidence,
        {"round.state": slots, "commit.step_index": (0, last), "commit.pending": (0, steps + 1)},
    )


def _computed(name: str, *more: str, cites: str, minimum: str, concerns: Concerns = _hybrid) -> Contract:
    """Return the contract that a channel of states, and `more` besides, equal the reference's."""
    channels = (name, *more)
    check = partial(_equals, name, channels)
    return contract(name, check, channels, concerns=concerns, cites=cites, minimum=f"hybrid_scenarios {minimum}")


_BOUNDED = ("round.state", "commit.step_index", "commit.pending")
_COMMITTED = "states_committed_none states_committed_partial states_committed_all"
_STATES = f"{_COMMITTED} states_committed_without_drafts states_alternating state_slot_reuses states_started"
_TREE_STATES = "tree_states_snapshot tree_states_replay tree_states_off_first_branch"
_CHECKPOINTS = (
    "checkpoints_snapshot checkpoints_replay checkpoints_two_at_once checkpoints_kept tree_states_checkpoints"
)
_POOL: dict[str, Any] = {
    "reads": ("round.rows",),
    "concerns": _hybrid,
    "cites": "S-STATE-2",
    "minimum": "hybrid_scenarios state_slot_reuses",
}
CONTRACTS = (
    _computed("commit.step_index", cites="S-STATE-7, S-STATE-11, S-LIMIT-9", minimum=f"{_COMMITTED} {_TREE_STATES}"),
    _computed(
        "commit.state",
        cites="S-STATE-1, S-STATE-6, S-STATE-10",
        minimum=f"{_STATES} hybrid_padded_replays {_TREE_STATES}",
    ),
    _computed(
        "commit.intermediate",
        cites="S-STATE-4, S-STATE-10",
        concerns=partial(_commits, "snapshot"),
        minimum="snapshot_rounds states_committed_partial tree_states_snapshot",
    ),
    _computed(
        *("commit.pending", "commit.base"),
        cites="S-STATE-5, S-STATE-12",
        concerns=partial(_commits, "replay"),
        minimum="replays_folded states_committed_partial tree_states_replay",
    ),
    _computed(
        "commit.checkpoint",
        cites="S-STATE-8, S-STATE-11",
        concerns=lambda evidence: evidence.hybrid and evidence.scenario.states.checkpoint > 0,
        minimum=_CHECKPOINTS,
    ),
    contract(
        "commit.cached",
        _cached,
        ("commit.cached",),
        reads=("round.cached", "round.rows", "round.table", "round.attempt", "pool.owners"),
        cites="S-CACHE-6",
        minimum="hybrid_scenarios checkpoints_cached",
        concerns=lambda evidence: evidence.caches_states and evidence.scenario.states.checkpoint > 0,
    ),
    _computed("commit.final", "commit.unfolded", cites="S-STATE-9", minimum="finals finals_flushed"),
    contract("state.ownership", _slots, ("round.state", "pool.states"), also=("round.attempt", "pool.owners"), **_POOL),
    contract("state.balance", _balance, ("pool.states",), **_POOL),
    contract(
        "state.bounds",
        _bounds,
        _BOUNDED,
        partial=_BOUNDED,
        concerns=_hybrid,
        cites="S-STATE-2, S-STATE-7",
        minimum="hybrid_scenarios replays_folded",
    ),
)
