"""The complete write set of every launch: what its rows announced, slot 0, and nothing else.

`P` page size, `A` steps that intermediate states are allocated for."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row, StepLaunch
from draftproof.properties.values.observed import GRAPHED, CheckpointReport, LaunchKind, MemoryRegion, WriteSet
from draftproof.properties.values.relations import (
    Missing,
    OtherRow,
    OutOfOrder,
    OutsidePools,
    Relation,
    SlotOf,
    StateSlotOf,
    Surplus,
    Unowned,
)
from draftproof.properties.values.trace import Key

_REGION = {
    LaunchKind.PREFILL: MemoryRegion.TARGET,
    LaunchKind.VERIFY: MemoryRegion.TARGET,
    LaunchKind.MIXED: MemoryRegion.TARGET,
    LaunchKind.DRAFT: MemoryRegion.DRAFT,
    LaunchKind.EXTEND: MemoryRegion.DRAFT,
    LaunchKind.EXTEND_PROMPT: MemoryRegion.DRAFT,
}
_NAMES = {
    MemoryRegion.TARGET: "target slot",
    MemoryRegion.DRAFT: "draft slot",
    MemoryRegion.STATES: "state slot",
    MemoryRegion.INTERMEDIATE: "intermediate state",
    MemoryRegion.CHECKPOINTS: "checkpoint slot",
}
_Places = set[tuple[MemoryRegion, int]]


def announced(evidence: Evidence, launch: StepLaunch, row: Row) -> range:
    """Return the positions that a row of a launch has to write, or the columns where a tree lies beside them."""
    if not row.phase:
        start = evidence.schedule.chunk_starts[row.request, row.round, row.chunk]
        return range(start, start + row.count)
    n = evidence.contexts[row.request, row.round]
    if launch.kind == LaunchKind.DRAFT:
        return range(n, n + evidence.form.entries(evidence.depth(row)))
    if launch.kind in (LaunchKind.VERIFY, LaunchKind.MIXED):
        return range(n, n + row.count + 1)
    return range(n, evidence.length_after(row))


def _rows(evidence: Evidence, launch: StepLaunch) -> tuple[Row, ...]:
    if launch.kind not in _REGION:
        return ()
    if launch.kind == LaunchKind.MIXED:
        return evidence.schedule.rows_at(launch.step)
    return evidence.schedule.batches.get((launch.step, int(launch.kind in GRAPHED)), ())


def _places(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield wrong places: a slot must change when first written, for it held poison; later it may repeat."""
    reported = dict(evidence.subject.typed("commit.written", WriteSet))
    # Layers of a chain extend in turns, each in memory of its own.
    known: list[_Places] = [set() for _ in range(max(evidence.form.extend_launches, 1))]
    for index, launch in enumerate(evidence.schedule.launches):
        key = Key(-1, launch.step, step=launch.number)
        if index and evidence.schedule.launches[index - 1].step != launch.step:
            released = _released(evidence, evidence.schedule.launches[index - 1].step, launch.step)
            for written in known:
                written -= released
        value = reported.pop(key, None)
        if value is None:
            yield Mismatch("commit.written", key, "slots", None, Missing())
            continue
        changed = {(one.region, one.place) for one in value}
        if [(one.region, one.place) for one in value] != sorted(changed):
            yield Mismatch("commit.written", key, "places once each, ascending", value, OutOfOrder())
        must, may = _sets(evidence, launch)
        layers = [launch.layer] if launch.kind == LaunchKind.EXTEND and launch.layer < len(known) else range(len(known))
        yield from _wrong(evidence, launch, key, changed, must - known[layers[0]], must | may)
        for layer in layers:
            known[layer] |= changed
    for key, value in reported.items():
        yield Mismatch("commit.written", key, None, value, Surplus())


def _sets(evidence: Evidence, launch: StepLaunch) -> tuple[_Places, _Places]:
    """Return what a launch has to write, and what it may write besides."""
    must: _Places = set()
    may: _Places = {(MemoryRegion.TARGET, 0)}
    if evidence.form.kind.extends:
        may.add((MemoryRegion.DRAFT, 0))
    extends = launch.kind in (LaunchKind.EXTEND, LaunchKind.EXTEND_PROMPT)
    for row in _rows(evidence, launch):
        positions = announced(evidence, launch, row)
        # A request that ends may be extended all the same, and need not.
        optional = extends and evidence.schedule.is_last(row)
        (may if optional else must).update(_entries(evidence, launch, row, positions))
        if extends:
            # Entries before these were made with a guess, and may be written again.
            served = evidence.schedule.cached.get((row.request, row.round), 0)
            again = range(max(served, positions.start - evidence.form.reach), positions.start)
            may |= _entries(evidence, launch, row, again)
    if evidence.hybrid:
        for row in _state_rows(evidence, launch):
            states_must, states_may = _states(evidence, launch, row)
            must |= states_must
            may |= states_may
    if launch.kind == LaunchKind.INSTALL:
        for row in _state_rows(evidence, launch):
            must |= _installed(evidence, row)
    if launch.kind == LaunchKind.KEEP:
        must |= {(MemoryRegion.CHECKPOINTS, slot) for slot in _filled(evidence, launch.step)}
    return must, may


def _entries(evidence: Evidence, launch: StepLaunch, row: Row, positions: range) -> _Places:
    """Return the entries of a row's positions, as far as its table has pages for them."""
    slots = (evidence.tables.slot(row.request, row.round, position) for position in positions)
    return {(_REGION[launch.kind], slot) for slot in slots if slot is not None}


def _installed(evidence: Evidence, row: Row) -> _Places:
    """Return the entries of a transferred request's prompt, in the slots of its first round."""
    slots = [evidence.tables.slot(row.request, row.round, n) for n in range(evidence.contexts[row.request, row.round])]
    regions = [MemoryRegion.TARGET, *([MemoryRegion.DRAFT] if evidence.form.kind.extends else [])]
    return {(region, slot) for region in regions for slot in slots if slot is not None}


def _state_rows(evidence: Evidence, launch: StepLaunch) -> tuple[Row, ...]:
    """Return the rows whose recurrent states a launch may read or write."""
    if launch.kind == LaunchKind.MIXED:
        return _rows(evidence, launch)
    if launch.kind == LaunchKind.INSTALL:
        batch = evidence.schedule.batches.get((launch.step, 1), ())
        return tuple(row for row in batch if (row.request, row.round) in evidence.schedule.installed)
    if launch.kind == LaunchKind.RESTORE:
        return evidence.schedule.served(launch.step)
    if launch.kind == LaunchKind.PREFILL:
        return evidence.schedule.batches.get((launch.step, 0), ())
    if launch.kind in (LaunchKind.VERIFY, LaunchKind.COMMIT):
        return evidence.schedule.batches.get((launch.step, 1), ())
    if launch.kind == LaunchKind.FINISH:
        return evidence.schedule.ending(launch.step, evidence.schedule.phase(launch))
    return ()


def _states(evidence: Evidence, launch: StepLaunch, row: Row) -> tuple[_Places, _Places]:
    """Return the state slots of one row that a launch must write, and those that it may write.

    A freed state is not poisoned: a later write may leave the same value.
    """
    slot, states = evidence.tables.state_slot(row.request, row.round), evidence.scenario.states
    replay = states.commit == "replay"
    verifies = launch.kind == LaunchKind.VERIFY or (launch.kind == LaunchKind.MIXED and row.phase == 1)
    if verifies and not replay:
        first = row.place * evidence.scenario.width
        written = [(MemoryRegion.INTERMEDIATE, first + t) for t in range(max(launch.width, row.count + 1))]
        return set(written[: row.count + 1]), set(written)
    if slot is None or (launch.kind == LaunchKind.FINISH and not replay):
        return set(), set()
    own = {(MemoryRegion.STATES, slot)}
    if launch.kind == LaunchKind.INSTALL:
        has_checkpoint = 0 < states.checkpoint <= evidence.contexts[row.request, row.round]
        return own | ({(MemoryRegion.CHECKPOINTS, slot)} if has_checkpoint else set()), set()
    if verifies or launch.kind == LaunchKind.FINISH:
        return set(), own
    restores = launch.kind == LaunchKind.RESTORE
    kept = {(MemoryRegion.CHECKPOINTS, slot)} if restores or _completes(evidence, row) else set()
    return own | kept, set()


def _filled(evidence: Evidence, step: int) -> Iterator[int]:
    """Yield the slots of states that are to be kept for others in a step, as far as it is said that they are."""
    report = evidence.subject.typed("pool.checkpoints", CheckpointReport).get(Key(-1, step))
    wanted = evidence.prefixes.copied.get(step, ()) if evidence.caches_states else ()
    return (one.slot for one in (report.kept if report else ()) if one.tokens in wanted)


def _completes(evidence: Evidence, row: Row) -> bool:
    """Return whether a multiple of the checkpoint interval is reached in a round, or in a chunk of a prompt."""
    interval = evidence.scenario.states.checkpoint
    if row.phase:
        start = evidence.contexts[row.request, row.round]
        end = evidence.length_after(row)
    else:
        start = evidence.schedule.chunk_starts[row.request, row.round, row.chunk]
        end = start + row.count
    return interval > 0 and end // interval > start // interval


def _released(evidence: Evidence, start: int, end: int) -> _Places:
    """Return the slots that requests gave back in steps start .. end-1, at their ends or behind windows: poisoned."""
    size = evidence.page_size
    slots = {
        page * size + offset
        for step in range(start, end)
        for row in evidence.schedule.rows_done.get(step, ())
        for page in _given_back(evidence, row, end)
        for offset in range(size)
    }
    return {(region, slot) for region in (MemoryRegion.TARGET, MemoryRegion.DRAFT) for slot in slots}


def _given_back(evidence: Evidence, row: Row, end: int) -> set[int]:
    """Return the pages of a row that its request gave back by a step: all if it is over, those behind its window."""
    # With an overlap some went when the results of the row before came, and may be another's by now.
    held = set(evidence.kept_table(row, evidence.schedule.done(row)).values())
    if evidence.schedule.is_last(row) or evidence.schedule.leaves(row):
        return held
    return held - set(evidence.kept_table(row, end).values())


def _wrong(
    evidence: Evidence, launch: StepLaunch, key: Key, changed: _Places, must: _Places, allowed: _Places
) -> Iterator[Mismatch]:
    for region, slot in sorted(changed - allowed):
        expected = "only slots announced, and slot 0"
        got = _name(evidence, region, slot)
        yield Mismatch("commit.written", key, expected, got, _owner(evidence, launch, region, slot))
    for region, slot in sorted(must - changed):
        expected = f"{_name(evidence, region, slot)} written"
        yield Mismatch("commit.written", key, expected, "unchanged", _owner(evidence, launch, region, slot))


def _name(evidence: Evidence, region: MemoryRegion, slot: int) -> str:
    if region == MemoryRegion.INTERMEDIATE:
        place, row = divmod(slot, evidence.scenario.width)
        return f"{_NAMES[region]} {slot} (batch place {place}, row {row})"
    return f"{_NAMES[region]} {slot}" if region in _NAMES else f"byte {slot} of other memory"


def _owner(evidence: Evidence, launch: StepLaunch, region: MemoryRegion, slot: int) -> Relation:
    """Describe the owner of a slot: a row of this launch, another request, or no request."""
    if region not in _NAMES:
        return OutsidePools()
    if region == MemoryRegion.INTERMEDIATE:
        return _row_of_batch(evidence, launch, slot)
    if region in (MemoryRegion.STATES, MemoryRegion.CHECKPOINTS):
        return _owner_of_state(evidence, launch, slot)
    batch = {row.request for row in _rows(evidence, launch)}
    for row in reversed(evidence.schedule.rows):
        first, last = evidence.schedule.spans[row.request]
        if row.step > launch.step or not first <= launch.step <= last:
            continue
        position = evidence.tables.position(row.request, row.round, slot)
        if position is not None:
            return SlotOf(position) if row.request in batch else OtherRow(request=row.request)
    return Unowned()


def _row_of_batch(evidence: Evidence, launch: StepLaunch, slot: int) -> Relation:
    place, t = divmod(slot, evidence.scenario.width)
    batch = evidence.schedule.batches.get((launch.step, 1), ())
    return StateSlotOf(batch[place].request, t) if place < len(batch) else Unowned()


def _owner_of_state(evidence: Evidence, launch: StepLaunch, slot: int) -> Relation:
    batch = {row.request for row in _state_rows(evidence, launch)}
    for request, (first, last) in evidence.schedule.spans.items():
        if first <= launch.step <= last and evidence.tables.state_slot(request, 0) == slot:
            return StateSlotOf(request) if request in batch else OtherRow(request=request)
    return Unowned()


CONTRACTS = (
    listed(
        "memory.written",
        _places,
        ("commit.written",),
        reads=("graph.replay", "round.rows", "round.table", "round.state", "commit.length"),
        also=("round.cached", "round.attempt", "pool.owners", "pool.checkpoints", "overlap.discarded"),
        cites="S-ROUND-3, S-ROUND-5, S-BATCH-2, S-TREE-6",
        minimum="scenarios padded_replays shrink_below_captured_size snapshot_rounds replays_folded "
        "hybrid_padded_replays",
    ),
)
