"""A legal schedule, and launches that follow from it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

from draftproof.properties.compare import Place, apart, first_of
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.evidence import (
    CAPTURE,
    COMMIT,
    DRAFT,
    EXTEND,
    EXTEND_PROMPT,
    FINISH,
    PREFILL,
    VERIFY,
    Evidence,
    Launch,
    Row,
)
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence

_PER_GRAPH = (DRAFT, VERIFY, EXTEND)


def _schedule(evidence: Evidence) -> Iterator[Divergence]:
    found = first_of("schedule.legal", _illegal(evidence))
    if found:
        yield found


def _illegal(evidence: Evidence) -> Iterator[Place]:
    by_request: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(evidence.rows, key=lambda row: (row.request, row.round, row.chunk)):
        by_request[row.request].append(row)
    for request in range(len(evidence.script.requests)):
        yield from _request(evidence, request, by_request.get(request, []))
    for (_, phase), rows in evidence.batches.items():
        yield from _batch(evidence, phase, rows)
    yield from _live(evidence)


def _key(row: Row) -> Key:
    return Key(row.request, row.round, step=row.chunk)


def _place(row: Row, expected: object, got: object, relation: str) -> Place:
    return Place("round.rows", _key(row), str(expected), str(got), relation)


def _request(evidence: Evidence, request: int, rows: list[Row]) -> Iterator[Place]:
    """Rounds without gaps, each with its drafts; a prompt covered exactly; steps ascending from the arrival on."""
    wanted, solved = evidence.scenario.requests[request], evidence.script.requests[request]
    for row in (row for row in rows if row.phase != int(row.round > 0)):
        yield _place(row, f"phase {int(row.round > 0)}", f"phase {row.phase}", "different")
    chunks = [row for row in rows if row.round == 0]
    yield from _chunks(evidence, request, chunks)
    got = {row.round: row for row in rows if row.round > 0}
    tied = request in evidence.ties
    for number, round_ in enumerate(solved.rounds, start=1):
        decoded = got.pop(number, None)
        if decoded is None and not tied:
            yield Place("round.rows", Key(request, number, step=0), f"{round_.drafts} drafts", None, "missing")
        elif decoded is not None and not tied and decoded.count != round_.drafts:
            expected = f"{round_.drafts} drafts"
            yield _place(decoded, expected, f"{decoded.count} drafts", apart(round_.drafts, decoded.count))
    for row in got.values():
        if not tied:
            yield Place("round.rows", _key(row), None, f"round {row.round}", "surplus")
    for before, row in itertools.pairwise(rows):
        if row.step <= before.step:
            yield _place(row, f"after step {before.step}", f"step {row.step}", "out of order")
    if rows and rows[0].step < wanted.arrival:
        early = apart(wanted.arrival, rows[0].step)
        yield _place(rows[0], f"from step {wanted.arrival} on", f"step {rows[0].step}", early)


def _chunks(evidence: Evidence, request: int, chunks: list[Row]) -> Iterator[Place]:
    prompt, limit = len(evidence.scenario.requests[request].prompt), evidence.scenario.schedule.chunk
    if [row.chunk for row in chunks] != list(range(len(chunks))):
        yield Place("round.rows", Key(request, 0, step=0), "chunks 0, 1, ..", None, "missing")
    for row in chunks:
        if not 0 < row.count <= limit:
            yield _place(row, f"1 .. {limit} tokens", f"{row.count} tokens", "out of range")
    covered = sum(row.count for row in chunks)
    if covered != prompt:
        key = _key(chunks[-1]) if chunks else Key(request, 0, step=0)
        relation = apart(prompt, covered) if chunks else "missing"
        yield Place("round.rows", key, f"{prompt} tokens", f"{covered} tokens", relation)


def _batch(evidence: Evidence, phase: int, rows: tuple[Row, ...]) -> Iterator[Place]:
    """Rows of one batch: places 0 .. R-1, not too many, all in one size that holds them."""
    for place, row in enumerate(rows):
        if row.position != place:
            yield _place(row, f"place {place} of its batch", f"place {row.position}", apart(place, row.position))
        if row.size != rows[0].size or (row.size and row.size < len(rows)):
            yield _place(row, f"a size that holds {len(rows)} rows", f"size {row.size}", "different")
    limit = evidence.scenario.schedule.max_batch
    if phase and len(rows) > limit:
        yield _place(rows[limit], f"at most {limit} rows", f"{len(rows)} rows", apart(limit, len(rows)))


def _live(evidence: Evidence) -> Iterator[Place]:
    """No more requests at a time than there are request rows."""
    slots = evidence.scenario.memory.request_slots
    for row in evidence.rows:
        live = sum(first <= row.step <= last for first, last in evidence.spans.values())
        if live > slots:
            yield _place(row, f"at most {slots} live requests", f"{live} live requests", apart(slots, live))


def _graphs(evidence: Evidence) -> Iterator[Divergence]:
    found = first_of("graphs", (*_launches(evidence), *_sizes_of_rows(evidence)))
    if found:
        yield found


def _launches(evidence: Evidence) -> Iterator[Place]:
    """Every step launches what its rows need, in sizes that hold them; replays of each graph count up by one."""
    steps: dict[int, list[Launch]] = defaultdict(list)
    for launch in evidence.launches:
        steps[launch.step].append(launch)
    replays: Counter[tuple[int, int, int]] = Counter()
    captures: Counter[tuple[int, int]] = Counter()
    for step in sorted({*steps, *(row.step for row in evidence.rows)}):
        launches = steps.get(step, [])
        if [launch.number for launch in launches] != list(range(len(launches))):
            yield Place("graph.replay", Key(-1, step, step=0), "launches 0, 1, ..", None, "missing")
        for launch in launches:
            graph = (launch.kind, launch.size, launch.width)
            if launch.kind == CAPTURE:
                captures[launch.size, launch.width] += 1
            elif launch.size:
                replays[graph] += 1
            yield from _launch(evidence, launch, replays[graph], captures[launch.size, launch.width])
        yield from _kinds(evidence, step, [launch for launch in launches if launch.kind != CAPTURE])


def _say(launch: Launch, expected: str, got: str, relation: str = "different") -> Place:
    return Place("graph.replay", Key(-1, launch.step, step=launch.number), expected, got, relation)


def _fitting(evidence: Evidence, rows: int) -> int:
    """The captured size that `rows` rows run in; 0 eagerly."""
    graphs = evidence.scenario.graphs
    return next((size for size in graphs.sizes if size >= rows), 0) if graphs.capture else 0


def _widths(evidence: Evidence) -> frozenset[int]:
    """Verify widths that runtime states are built for: one for each step count, and one for no drafts."""
    adaptive = evidence.scenario.adaptive
    return frozenset({1, *(count + 1 for count in (adaptive.steps if adaptive else (evidence.scenario.steps,)))})


def _launch(evidence: Evidence, launch: Launch, replays: int, captures: int) -> Iterator[Place]:
    """The size, the replay count and the width of a launch; every graph is captured once for a size and a width."""
    if launch.kind == CAPTURE:
        known = launch.size in evidence.scenario.graphs.sizes and launch.width in _widths(evidence)
        if not known or captures > len(_PER_GRAPH):
            got = f"size {launch.size}, width {launch.width}, {captures} times"
            yield _say(launch, "each size and width captured once a graph", got)
        if launch.rows or launch.replays:
            yield _say(launch, "no live rows", f"{launch.rows} rows, {launch.replays} replays")
        return
    of_graph = launch.kind in _PER_GRAPH
    size, width = (_fitting(evidence, launch.rows), evidence.width(launch.step)) if of_graph else (0, 0)
    if launch.width != width:
        yield _say(launch, f"width {width}", f"width {launch.width}", apart(width, launch.width))
    if launch.size != size:
        yield _say(launch, f"size {size} for {launch.rows} rows", f"size {launch.size}")
    counted = replays if launch.size else 0
    if launch.replays != counted:
        yield _say(launch, f"{counted} replays", f"{launch.replays} replays", apart(counted, launch.replays))


def _kinds(evidence: Evidence, step: int, launches: list[Launch]) -> Iterator[Place]:
    """The launches of a step, each with as many rows as its batch has."""
    chunks, decode = (evidence.batches.get((step, phase), ()) for phase in (0, 1))
    going_on = len(decode) - len(evidence.ending(step, 1))
    expected = {PREFILL: [len(chunks)], EXTEND_PROMPT: [len(chunks)], VERIFY: [len(decode)], EXTEND: [going_on]}
    if any(row.count > 1 for row in decode):
        expected[DRAFT] = [len(decode)]
    if evidence.hybrid:
        expected[COMMIT] = [len(decode)]
        expected[FINISH] = [len(evidence.ending(step, phase)) for phase in (0, 1)]
    for kind, counts in expected.items():
        found = [launch for launch in launches if launch.kind == kind]
        yield from _of_kind(step, kind, [rows for rows in counts if rows], found, len(launches))
    for launch in launches:
        if launch.kind not in expected and not (launch.kind == DRAFT and launch.rows == len(decode)):
            yield _say(launch, "a kind that this step needs", f"kind {launch.kind}", "surplus")
    yield from _order(launches, bool(evidence.ending(step, 1)))


def _of_kind(step: int, kind: int, wanted: list[int], found: list[Launch], launches: int) -> Iterator[Place]:
    if len(found) != len(wanted):
        relation = "missing" if len(found) < len(wanted) else "surplus"
        key = Key(-1, step, step=found[-1].number if found else launches)
        yield Place("graph.replay", key, f"{len(wanted)} of kind {kind}", f"{len(found)}", relation)
        return
    for launch, rows in zip(found, wanted, strict=True):
        if launch.rows != rows:
            yield _say(launch, f"{rows} rows", f"{launch.rows} rows", apart(rows, launch.rows))


def _order(launches: list[Launch], ends: bool) -> Iterator[Place]:
    """What a decode batch commits comes after its verify, what ended requests hand over after that, then the extend."""
    last = {launch.kind: launch for launch in launches}
    kinds = (VERIFY, COMMIT, FINISH, EXTEND) if ends else (VERIFY, COMMIT, EXTEND)
    for before, after in itertools.pairwise(last[kind] for kind in kinds if kind in last):
        if after.number < before.number:
            yield _say(after, f"after kind {before.kind}", f"launch {after.number}", "out of order")


def _sizes_of_rows(evidence: Evidence) -> Iterator[Place]:
    """A row's captured size is that of the verify launch of its step."""
    sizes = {launch.step: launch.size for launch in evidence.launches if launch.kind == VERIFY}
    for row in evidence.rows:
        size = sizes.get(row.step, 0) if row.phase else 0
        if row.size != size:
            yield _place(row, f"size {size}", f"size {row.size}", "different")


CONTRACTS = (
    Contract(
        name="schedule.legal",
        needs=frozenset({"round.rows"}),
        minimum={"scenarios": 1, "batch_shrinks": 1, "batch_grows": 1, "mixed_draft_counts": 1, "chunked_prefills": 1},
        check=_schedule,
    ),
    Contract(
        name="graphs",
        needs=frozenset({"graph.replay", "round.rows"}),
        minimum={
            "scenarios": 1,
            "graph_replays": 1,
            "padded_replays": 1,
            "eager_launches": 1,
            "oversized_batches": 1,
            "hybrid_oversized_batches": 1,
            "narrow_replays": 1,
            "hybrid_padded_replays": 1,
        },
        check=_graphs,
    ),
)
