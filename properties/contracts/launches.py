"""The launches of every step: what its rows and its draft need, in sizes and widths that hold them.

A chain extends layer by layer, each in a launch of its own.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.rank_work import runs_draft
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.observed import GRAPHED, PACKED, LaunchKind
from draftproof.properties.values.relations import Different, Missing, OutOfOrder, Relation, Surplus, off_by
from draftproof.properties.values.trace import Key


def _launches(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that every step launches what its rows need, in sizes that hold them, and that replays count up by one."""
    steps: dict[int, list[StepLaunch]] = defaultdict(list)
    for launch in evidence.schedule.launches:
        steps[launch.step].append(launch)
    replays: Counter[tuple[int, ...]] = Counter()
    captures: Counter[tuple[int, int]] = Counter()
    of_ranks = range(evidence.lockstep.last_step + 1) if evidence.lockstep else ()
    for step in sorted({*steps, *(row.step for row in evidence.schedule.rows), *of_ranks}):
        launches = steps.get(step, [])
        if [launch.number for launch in launches] != list(range(len(launches))):
            yield Mismatch("graph.replay", Key(-1, step, step=0), "launches 0, 1, ..", None, Missing())
        for launch in launches:
            graph: tuple[int, ...] = (launch.kind, launch.size, launch.width, launch.layer)
            # One graph serves every packed launch of its bucket.
            graph = (launch.size,) if packed_held(evidence, launch) else graph
            if launch.kind == LaunchKind.CAPTURE:
                captures[launch.size, launch.width] += 1
            elif launch.size:
                replays[graph] += 1
            yield from _launch(evidence, launch, replays[graph], captures[launch.size, launch.width])
        yield from _kinds(evidence, step, [launch for launch in launches if launch.kind != LaunchKind.CAPTURE])
    yield from _sizes_of_rows(evidence)


def _captures(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that every graph is captured before the first step if it is to be at the start, and none if it is not."""
    graphs, expected = evidence.scenario.graphs, Counter[tuple[int, int]]()
    if graphs.at_start:
        widths = {width: evidence.form.graphs(drafts=width > 1) for width in _widths(evidence)}
        expected.update({(size, width): count for size in graphs.sizes for width, count in widths.items()})
        expected.update(dict.fromkeys(((tokens, 0) for tokens in graphs.tokens), 1))
    captures = [launch for launch in evidence.schedule.launches if launch.kind == LaunchKind.CAPTURE]
    first = [launch for launch in captures if launch.step < 0]
    got = Counter((launch.size, launch.width) for launch in first)
    for size, width in sorted(expected.keys() | got.keys()):
        wanted, made = expected[size, width], got[size, width]
        if wanted != made:
            what = f"graphs of size {size} and width {width} before the first step"
            key = Key(-1, -1, step=len(first))
            yield Mismatch("graph.replay", key, f"{wanted} {what}", f"{made}", off_by(wanted, made))
    for launch in captures:
        if graphs.at_start and launch.step >= 0:
            yield _say(launch, "no capture behind the first step", f"size {launch.size}", Surplus())


def _say(launch: StepLaunch, expected: str, got: str, relation: Relation | None = None) -> Mismatch:
    return Mismatch("graph.replay", Key(-1, launch.step, step=launch.number), expected, got, relation or Different())


def _name(kind: int) -> str:
    """Return a kind of launch in words; what is no kind stays a number."""
    return next((one.name.lower().replace("_", " ") for one in LaunchKind if one == kind), f"kind {kind}")


def _fitting(evidence: Evidence, launch: StepLaunch, rows: int) -> int:
    """Return the captured size that holds `rows` rows, or the tokens of a packed launch; 0 if it runs eagerly."""
    graphs, packed = evidence.scenario.graphs, packed_held(evidence, launch)
    sizes, live = (graphs.tokens, packed) if packed else (graphs.sizes, rows)
    return next((size for size in sizes if size >= live), 0) if graphs.capture else 0


def _widths(evidence: Evidence) -> frozenset[int]:
    """Return the verify widths that runtime states are built for: one for each step count, and one for no drafts."""
    return frozenset({1, *(evidence.scenario.most_drafts(count) + 1 for count in evidence.scenario.step_counts)})


def _launch(evidence: Evidence, launch: StepLaunch, replays: int, captures: int) -> Iterator[Mismatch]:
    """Check size, replay count and width of a launch; every graph is captured once for a size and a width."""
    if launch.layer and launch.kind != LaunchKind.EXTEND:
        yield _say(launch, "layer 0", f"layer {launch.layer}", off_by(0, launch.layer))
    if launch.kind == LaunchKind.CAPTURE:
        known = launch.size in evidence.scenario.graphs.sizes and launch.width in _widths(evidence)
        most = evidence.form.graphs(drafts=launch.width > 1)
        if not launch.width:
            known, most = launch.size in evidence.scenario.graphs.tokens, 1
        if not known or captures > most:
            got = f"size {launch.size}, width {launch.width}, {captures} times"
            yield _say(launch, "each size and width captured once a graph", got)
        if launch.rows or launch.replays:
            yield _say(launch, "no live rows", f"{launch.rows} rows, {launch.replays} replays")
        return
    of_graph = launch.kind in GRAPHED
    rows = rows_held(evidence, launch)
    packed = packed_held(evidence, launch)
    size = _fitting(evidence, launch, rows) if of_graph or packed else 0
    width = _width(evidence, launch) if of_graph or launch.kind == LaunchKind.MIXED else 0
    tokens = _tokens(evidence, launch)
    if launch.tokens != tokens:
        yield _say(launch, f"{tokens} packed tokens", f"{launch.tokens}", off_by(tokens, launch.tokens))
    if launch.width != width:
        yield _say(launch, f"width {width}", f"width {launch.width}", off_by(width, launch.width))
    if launch.size != size:
        live = f"{packed} tokens" if packed else f"{rows} rows"
        yield _say(launch, f"size {size} for {live}", f"size {launch.size}")
    counted = replays if launch.size else 0
    if launch.replays != counted:
        yield _say(launch, f"{counted} replays", f"{launch.replays} replays", off_by(counted, launch.replays))


def rows_held(evidence: Evidence, launch: StepLaunch) -> int:
    """Return how many rows a launch must hold: its own, or those of the rank with the most rows (S-RANK-3)."""
    lockstep = evidence.lockstep
    if lockstep is None:
        return launch.rows
    return lockstep.going_on(launch.step) if launch.kind == LaunchKind.EXTEND else lockstep.rows(launch.step, 1)


def packed_held(evidence: Evidence, launch: StepLaunch) -> int:
    """Return how many tokens a packed launch must hold: its own, or the most of a rank; 0 for any other launch."""
    if launch.kind not in PACKED or not evidence.scenario.schedule.mixed:
        return 0
    return evidence.lockstep.packed(launch.step) if evidence.lockstep else launch.tokens


def _width(evidence: Evidence, launch: StepLaunch) -> int:
    """Return the verify width that a decode batch runs at; of ranks the largest."""
    if evidence.lockstep is None:
        return evidence.plans.width(launch.step)
    if launch.kind == LaunchKind.DRAFT:
        return evidence.lockstep.planned_width(launch.step)
    return evidence.lockstep.width(launch.step)


def _tokens(evidence: Evidence, launch: StepLaunch) -> int:
    """Return how many tokens a packed launch has: all chunks and verify rows of its step (S-MIXED-1)."""
    if launch.kind not in PACKED or not evidence.scenario.schedule.mixed:
        return 0
    return sum(row.count + row.phase for row in evidence.schedule.packed_at(launch.step))


def _kinds(evidence: Evidence, step: int, launches: list[StepLaunch]) -> Iterator[Mismatch]:
    """Check the launches of a step, each with as many rows as its batch has."""
    rows, expected = len(evidence.schedule.batches.get((step, 1), ())), _expected(evidence, step)
    # Where the first proposal is known before it, a draft launch may be of no forward.
    may_idle = evidence.form.proposes == "steps" and not evidence.form.forwards(1)
    for kind, counts in expected.items():
        found = [launch for launch in launches if launch.kind == kind]
        runs = _runs(evidence, step, kind)
        yield from _of_kind(step, kind, [rows for rows in counts if rows or runs], found, len(launches))
    for launch in launches:
        idle = may_idle and (launch.kind, launch.rows) == (LaunchKind.DRAFT, rows)
        if launch.kind not in expected and not idle:
            yield _say(launch, "a kind that this step needs", _name(launch.kind), Surplus())
    yield from _order(launches, bool(evidence.schedule.ending(step, 1)))


def _runs(evidence: Evidence, step: int, kind: LaunchKind) -> bool:
    """Return whether a rank launches a kind for another's sake, without a row of its own (S-RANK-4)."""
    lockstep = evidence.lockstep
    if lockstep is None or kind not in (*GRAPHED, *PACKED, LaunchKind.EXTEND_PROMPT):
        return False
    if kind == LaunchKind.EXTEND:
        return lockstep.going_on(step) > 0
    return kind == LaunchKind.MIXED or lockstep.rows(step, int(kind in GRAPHED)) > 0


def _expected(evidence: Evidence, step: int) -> dict[LaunchKind, list[int]]:
    """Return kind -> rows of each of its launches, where a batch without rows needs none."""
    chunks, decode = (evidence.schedule.batches.get((step, phase), ()) for phase in (0, 1))
    form = evidence.form
    expected = {LaunchKind.PREFILL: [len(chunks)], LaunchKind.VERIFY: [len(decode)]}
    of_any = (evidence.lockstep.rows(step, phase) for phase in (0, 1)) if evidence.lockstep else (chunks, decode)
    if evidence.scenario.schedule.mixed and all(of_any) and evidence.scenario.engines == 1:
        # Both kinds of rows are in one launch, whatever their number (S-MIXED-4).
        expected = {LaunchKind.MIXED: [len(chunks) + len(decode)]}
    if form.kind.extends:
        expected[LaunchKind.EXTEND_PROMPT] = [len(chunks)]
        expected[LaunchKind.EXTEND] = [len(decode) - len(evidence.schedule.ending(step, 1))] * form.extend_launches
    if evidence.lockstep.drafts(step) if evidence.lockstep else runs_draft(evidence, step):
        expected[LaunchKind.DRAFT] = [len(decode)]
    if evidence.hybrid:
        expected[LaunchKind.COMMIT] = [len(decode)]
        expected[LaunchKind.FINISH] = [len(evidence.schedule.ending(step, phase)) for phase in (0, 1)]
    if evidence.scenario.engines > 1:
        expected[LaunchKind.PACK] = [sum(map(evidence.schedule.leaves, chunks))]
        installed = evidence.schedule.installed
        expected[LaunchKind.INSTALL] = [sum((row.request, row.round) in installed for row in decode)]
    if evidence.caches_states:
        expected[LaunchKind.KEEP] = [len(evidence.prefixes.copied.get(step, ()))]
        expected[LaunchKind.RESTORE] = [len(evidence.schedule.served(step))]
    return expected


def _of_kind(
    step: int, kind: LaunchKind, wanted: list[int], found: list[StepLaunch], launches: int
) -> Iterator[Mismatch]:
    if len(found) != len(wanted):
        relation: Relation = Missing() if len(found) < len(wanted) else Surplus()
        key = Key(-1, step, step=found[-1].number if found else launches)
        yield Mismatch("graph.replay", key, f"{len(wanted)} {_name(kind)} launches", f"{len(found)}", relation)
        return
    for layer, (launch, rows) in enumerate(zip(found, wanted, strict=True)):
        if launch.rows != rows:
            yield _say(launch, f"{rows} rows", f"{launch.rows} rows", off_by(rows, launch.rows))
        if kind == LaunchKind.EXTEND and launch.layer != layer:
            yield _say(launch, f"layer {layer}", f"layer {launch.layer}", off_by(layer, launch.layer))


def _order(launches: list[StepLaunch], ends: bool) -> Iterator[Mismatch]:
    """Check the order of a decode batch: draft, verify, commit, finish of requests that end, extend."""
    last = {LaunchKind.VERIFY if one.kind == LaunchKind.MIXED else one.kind: one for one in launches}
    if LaunchKind.EXTEND in last:
        last[LaunchKind.EXTEND] = next(launch for launch in launches if launch.kind == LaunchKind.EXTEND)
    finish = (LaunchKind.FINISH,) if ends else ()
    kinds = (LaunchKind.DRAFT, LaunchKind.VERIFY, LaunchKind.COMMIT, *finish, LaunchKind.EXTEND)
    for before, after in itertools.pairwise(last[kind] for kind in kinds if kind in last):
        if after.number < before.number:
            yield _say(after, f"after {_name(before.kind)}", f"launch {after.number}", OutOfOrder())


def _sizes_of_rows(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that each row reports the captured size of its step's verify launch."""
    sizes = {launch.step: launch.size for launch in evidence.schedule.launches if launch.kind == LaunchKind.VERIFY}
    for row in evidence.schedule.rows:
        size = sizes.get(row.step, 0) if row.phase else 0
        if row.size != size:
            key = Key(row.request, row.round, step=row.chunk)
            yield Mismatch("round.rows", key, f"size {size}", f"size {row.size}", Different())


CONTRACTS = (
    listed(
        "launch.graphs",
        _launches,
        ("graph.replay", "round.rows"),
        also=("round.cached", "round.table", "round.attempt", "pool.owners"),
        cites="S-BATCH-2, S-ADAPT-5",
        minimum="scenarios graph_replays padded_replays eager_launches oversized_batches hybrid_oversized_batches "
        "narrow_replays hybrid_padded_replays",
    ),
    listed(
        "launch.captures",
        _captures,
        ("graph.replay",),
        partial=("graph.replay",),
        cites="S-BATCH-12, S-ADAPT-5",
        minimum="captures_at_start captures_in_steps",
        concerns=lambda evidence: evidence.scenario.graphs.capture and bool(evidence.scenario.graphs.sizes),
    ),
)
