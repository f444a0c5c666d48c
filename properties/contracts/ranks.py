"""Ranks in lockstep: the same collectives on all of them, and an idle one changes nothing (S-RANK)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from draftproof.properties.contracts.base import listed
from draftproof.properties.contracts.forwards import DRAFT_MODEL, TARGET_MODEL, ModelForward, run_in
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import Lockstep
from draftproof.properties.values.observed import Collective, LaunchKind, PoolReport, StatePoolReport, WriteSet
from draftproof.properties.values.relations import Different, Missing, Relation, Surplus
from draftproof.properties.values.trace import Key

AGREE, GATHER, SUM = 1, 2, 3


def _collectives(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that all ranks issue the same collectives, and, except for captures, those that every step needs."""
    lockstep = evidence.lockstep
    assert lockstep is not None
    reported = evidence.subject.typed("rank.collectives", Collective)
    if apart := list(parted(evidence, (one.collectives for one in lockstep.ranks))):
        # What ranks did behind it is no news.
        yield from apart
        return
    issued = by_step(reported)
    for step in range(lockstep.last_step + 1):
        wanted, found = list(expected(evidence, lockstep, step)), issued.get(step, [])
        if evidence.schedule.overlap:
            # Hosts agree while their devices run.
            wanted, found = (sorted(some, key=lambda one: one.op != AGREE) for some in (wanted, found))
        yield from differing(step, 0, wanted, found)
    for key, value in reported.items():
        if not 0 <= key.round <= lockstep.last_step:
            yield Mismatch("rank.collectives", key, None, value, Surplus())


def parted(evidence: Evidence, ranks: Iterable[Mapping[Key, Collective]]) -> Iterator[Mismatch]:
    """Yield the first collective of this rank that one of these does not issue, or that only that one does."""
    own = evidence.subject.typed("rank.collectives", Collective)
    for theirs in ranks:
        for key in sorted(own.keys() | theirs.keys(), key=lambda key: (key.round, key.step)):
            if own.get(key) != theirs.get(key):
                expected, got = theirs.get(key), own.get(key)
                relation = Missing() if got is None else Surplus() if expected is None else Different()
                yield Mismatch(
                    "rank.collectives", key, f"{expected or 'none'}, as another rank", str(got or "none"), relation
                )
                return


def by_step(reported: Mapping[Key, Collective]) -> Mapping[int, list[Collective]]:
    """Return the collectives of each step in order, captures left out."""
    found = defaultdict[int, list[Collective]](list)
    for key in sorted(reported):
        if not key.layer:
            found[key.round].append(reported[key])
    return found


def differing(step: int, layer: int, expected: list[Collective], found: list[Collective]) -> Iterator[Mismatch]:
    """Yield the first collective of a step that is another than expected, or missing, or too many."""
    for number in range(max(len(expected), len(found))):
        key = Key(-1, step, step=number, layer=layer)
        wanted = expected[number] if number < len(expected) else None
        got = found[number] if number < len(found) else None
        if wanted == got:
            continue
        relation: Relation = Missing() if got is None else Surplus() if wanted is None else Different()
        yield Mismatch("rank.collectives", key, str(wanted or "none"), str(got or "none"), relation)
        # What follows is of other places.
        return


def expected(evidence: Evidence, lockstep: Lockstep, step: int) -> Iterator[Collective]:
    """Yield what every rank issues in a step, captures left out (S-RANK-3)."""
    ranks = evidence.scenario.ranks.size
    lanes = {
        TARGET_MODEL: getattr(evidence.scenario.model, "lanes", 0),
        DRAFT_MODEL: getattr(evidence.scenario.draft, "lanes", 0),
    }
    for one in run_in(evidence, lockstep, step):
        if isinstance(one, ModelForward):
            yield Collective(GATHER, one.rows, lanes[one.model])
            yield Collective(SUM, one.rows * ranks, lanes[one.model])
        else:
            yield Collective(AGREE, 1, one)


def _idle(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that launches without a row of this rank change nothing, and steps without any leave its pools alone."""
    written = evidence.subject.typed("commit.written", WriteSet)
    for launch in evidence.schedule.launches:
        if launch.rows or launch.kind == LaunchKind.CAPTURE:
            continue
        key = Key(-1, launch.step, step=launch.number)
        if places := written.get(key):
            yield Mismatch("commit.written", key, "nothing but slot 0", str(places[0]), Surplus())
    batches = evidence.schedule.batches
    moved = {one.step for one in evidence.aborts.values()} | {*map(evidence.schedule.done, evidence.schedule.rows)}
    for step in range(1, evidence.schedule.last_step + 1):
        if step in moved or (step, 0) in batches or (step, 1) in batches:
            continue
        for channel, kind in (("pool.owners", PoolReport), ("pool.states", StatePoolReport)):
            reports = evidence.subject.typed(channel, kind)
            before, after = (reports.get(Key(-1, at)) for at in (step - 1, step))
            if before != after:
                yield Mismatch(channel, Key(-1, step), str(before), str(after), Different())


def _of_ranks(evidence: Evidence) -> bool:
    return evidence.lockstep is not None


CONTRACTS = (
    listed(
        "rank.collectives",
        _collectives,
        ("rank.collectives",),
        reads=("round.rows",),
        also=("round.cached",),
        cites="S-RANK-1, S-RANK-3, S-RANK-5",
        minimum="scenarios idle_launches agreed_tokens agreed_rows agreed_sizes agreed_steps",
        concerns=_of_ranks,
    ),
    listed(
        "rank.idle",
        _idle,
        ("commit.written", "pool.owners"),
        reads=("rank.collectives", "round.rows", "graph.replay"),
        also=("pool.states",),
        partial=("commit.written", "pool.owners"),
        cites="S-RANK-4",
        minimum="scenarios idle_launches idle_steps",
        concerns=_of_ranks,
    ),
)
