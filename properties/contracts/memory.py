"""The complete write set of every launch: what its rows announced, slot 0, and nothing else.

`P` page size. Regions: 0 target KV, 1 draft KV, 2 anything else (then the slot is a byte offset).
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.compare import Place, first_of
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.evidence import (
    DRAFT,
    EXTEND,
    EXTEND_PROMPT,
    PREFILL,
    VERIFY,
    Evidence,
    Launch,
    Row,
)
from draftproof.properties.values.trace import Key, integers
from draftproof.properties.values.verdict import Divergence

TARGET, HEAD = 0, 1
_REGION = {PREFILL: TARGET, VERIFY: TARGET, DRAFT: HEAD, EXTEND: HEAD, EXTEND_PROMPT: HEAD}
_NAMES = {TARGET: "target", HEAD: "draft"}
Written = set[tuple[int, int]]


def announced(evidence: Evidence, launch: Launch, row: Row) -> range:
    """Positions that a row of a launch writes."""
    if not row.phase:
        start = evidence.starts[row.request, row.chunk]
        return range(start, start + row.count)
    n = evidence.contexts[row.request, row.round]
    if launch.kind == DRAFT:
        return range(n, n + max(row.count - 1, 0))
    if launch.kind == VERIFY:
        return range(n, n + row.count + 1)
    after = evidence.subject.channel("commit.length").get(Key(row.request, row.round), n)
    return range(n, after if isinstance(after, int) else n)


def _rows(evidence: Evidence, launch: Launch) -> tuple[Row, ...]:
    if launch.kind not in _REGION:
        return ()
    return evidence.batches.get((launch.step, int(launch.kind in (DRAFT, VERIFY, EXTEND))), ())


def _ending(evidence: Evidence, row: Row) -> bool:
    """Whether a request ends with this row: it may be extended all the same, and need not."""
    return evidence.spans[row.request][1] == row.step


def _check(evidence: Evidence) -> Iterator[Divergence]:
    found = first_of("memory.written", _places(evidence))
    if found:
        yield found


def _places(evidence: Evidence) -> Iterator[Place]:
    """A slot must change when it is written for the first time: it held poison. A rewrite may repeat what is there."""
    reported = dict(evidence.subject.channel("commit.written"))
    fresh: Written = set()
    for index, launch in enumerate(evidence.launches):
        key = Key(-1, launch.step, step=launch.number)
        if index and evidence.launches[index - 1].step != launch.step:
            fresh -= _released(evidence, evidence.launches[index - 1].step, launch.step)
        value = reported.pop(key, None)
        if not isinstance(value, tuple):
            yield Place("commit.written", key, "slots", None, "missing")
            continue
        flat = integers(value)
        changed = set(zip(flat[::2], flat[1::2], strict=False))
        must, may = _sets(evidence, launch)
        yield from _wrong(evidence, launch, key, changed, must - fresh, must | may)
        fresh |= changed
    for key, value in reported.items():
        yield Place("commit.written", key, None, value, "surplus")


def _sets(evidence: Evidence, launch: Launch) -> tuple[Written, Written]:
    """What a launch has to write, and what it may write besides."""
    must: Written = set()
    may: Written = {(TARGET, 0), (HEAD, 0)}
    for row in _rows(evidence, launch):
        slots = (evidence.slot(row.request, row.round, position) for position in announced(evidence, launch, row))
        places = {(_REGION[launch.kind], slot) for slot in slots if slot is not None}
        optional = launch.kind in (EXTEND, EXTEND_PROMPT) and _ending(evidence, row)
        (may if optional else must).update(places)
    return must, may


def _released(evidence: Evidence, start: int, end: int) -> Written:
    """Slots of requests whose last step is in start .. end-1: given back, and poisoned."""
    size = evidence.page_size
    slots = {
        page * size + offset
        for row in evidence.rows
        if start <= row.step < end and _ending(evidence, row)
        for page in evidence.table_at(row).values()
        for offset in range(size)
    }
    return {(region, slot) for region in (TARGET, HEAD) for slot in slots}


def _wrong(
    evidence: Evidence, launch: Launch, key: Key, changed: Written, must: Written, allowed: Written
) -> Iterator[Place]:
    for region, slot in sorted(changed - allowed):
        expected = "only slots announced, and slot 0"
        got = f"{_NAMES[region]} slot {slot}" if region in _NAMES else f"byte {slot} of other memory"
        yield Place("commit.written", key, expected, got, _owner(evidence, launch, region, slot))
    for region, slot in sorted(must - changed):
        expected = f"{_NAMES[region]} slot {slot} written"
        yield Place("commit.written", key, expected, "unchanged", _owner(evidence, launch, region, slot))


def _owner(evidence: Evidence, launch: Launch, region: int, slot: int) -> str:
    """Whose slot it is: of a row of this launch, of another request, of nobody."""
    if region not in _NAMES:
        return "outside the pools"
    batch = {row.request for row in _rows(evidence, launch)}
    for row in reversed(evidence.rows):
        first, last = evidence.spans[row.request]
        if row.step > launch.step or not first <= launch.step <= last:
            continue
        position = evidence.position(row.request, row.round, slot)
        if position is not None:
            return f"slot of position {position}" if row.request in batch else f"another row: request {row.request}"
    return "owned by nobody"


CONTRACTS = (
    Contract(
        name="memory.written",
        needs=frozenset({"commit.written"}),
        reads=frozenset({"graph.replay", "round.rows", "round.table", "commit.length"}),
        minimum={"scenarios": 1, "padded_replays": 1, "shrink_below_captured_size": 1},
        check=_check,
    ),
)
