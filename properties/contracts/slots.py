"""Where rows live: slots by the request's own table, everything in range.

`P` page size. The subject chooses its pages; what is judged is that its rows agree with its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from draftproof.properties.contracts.base import Differences, contract
from draftproof.properties.diagnosis.compare import Mismatch, first_divergence, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Datum, MemoryRegion, WriteSet, numbers
from draftproof.properties.values.relations import OutOfRange
from draftproof.properties.values.trace import Key

_STAGES = tuple(name.removesuffix(".slots") for name in CHANNELS if name.endswith(".slots"))


def _slots(evidence: Evidence) -> Differences:
    """Check that a row's slot is the table's entry of that round at the position that the row reports."""
    for stage in _STAGES:
        if f"{stage}.slots" not in evidence.subject.channels:
            continue
        positions, reported = evidence.pair(f"{stage}.positions")
        _, got = evidence.pair(f"{stage}.slots")
        expected: dict[Key, Datum] = {}
        for key, position in positions.items():
            at = reported.get(key, position)
            slot = evidence.tables.slot(key.request, key.round, at) if isinstance(at, int) else None
            expected[key] = "no page" if slot is None else slot  # type: ignore[assignment]
        yield first_divergence(
            "memory.slots",
            f"{stage}.slots",
            expected,
            got,
            position_of_slot=lambda key, slot: evidence.tables.position(key.request, key.round, slot),
        )


Range = Callable[[Evidence, Key], tuple[int, int]]


def _vocab(evidence: Evidence, _key: Key) -> tuple[int, int]:
    return 0, evidence.scenario.model.vocab - 1


def _vocab_and_mask(evidence: Evidence, _key: Key) -> tuple[int, int]:
    """Return the range for blocks, which alone have masked tokens."""
    return 0, evidence.scenario.model.vocab


def _live_slots(evidence: Evidence, _key: Key) -> tuple[int, int]:
    memory = evidence.scenario.memory
    return memory.page_size, (memory.pages + 1) * memory.page_size - 1


def _pages(evidence: Evidence, _key: Key) -> tuple[int, int]:
    return 1, evidence.scenario.memory.pages


def _positions(evidence: Evidence, _key: Key) -> tuple[int, int]:
    return 0, evidence.scenario.memory.max_len - 1


def _drafts(evidence: Evidence, _key: Key) -> tuple[int, int]:
    return 0, evidence.scenario.steps


_UNITS: dict[str, Range] = {"id": _vocab, "token": _positions, "page": _pages, "KV slot": _live_slots}
_RANGES: dict[str, Range] = {
    **{
        channel.name: _UNITS[channel.unit]
        for channel in CHANNELS.values()
        if channel.unit in _UNITS and not channel.is_float
    },
    "accept.correct_len": _drafts,
    "accept.index": _drafts,
    "draft.block.ids": _vocab_and_mask,
}


def _bounds(evidence: Evidence) -> Differences:
    """Check that every index is within what it indexes."""
    for channel, allowed in _RANGES.items():
        yield first_of("memory.bounds", _outside(evidence, channel, allowed))
    yield first_of("memory.bounds", _written_outside(evidence))


def _outside(evidence: Evidence, channel: str, allowed: Range) -> Iterator[Mismatch]:
    low, high = allowed(evidence, Key(0, 0))
    for key, value in evidence.subject.channel(channel).items():
        if not all(low <= item <= high for item in numbers(value)):
            yield Mismatch(channel, key, f"{low} .. {high}", value, OutOfRange())


def _written_outside(evidence: Evidence) -> Iterator[Mismatch]:
    memory, steps = evidence.scenario.memory, evidence.scenario.steps
    kv, states = (memory.pages + 1) * memory.page_size, memory.request_slots + 1
    rows = evidence.scenario.schedule.max_batch * (steps + 1)
    ends = {
        MemoryRegion.TARGET: kv,
        MemoryRegion.STATES: states,
        MemoryRegion.INTERMEDIATE: rows,
        MemoryRegion.CHECKPOINTS: states,
    }
    if evidence.form.extends:
        ends[MemoryRegion.DRAFT] = kv
    for key, places in evidence.subject.typed("commit.written", WriteSet).items():
        wrong = next((one for one in places if not 0 <= one.place < ends.get(one.region, 0)), None)
        if wrong:
            allowed = f"slots 0 .. {ends[wrong.region] - 1}" if wrong.region in ends else "no other memory"
            yield Mismatch("commit.written", key, allowed, wrong, OutOfRange())


CONTRACTS = (
    contract(
        "memory.slots",
        _slots,
        (f"{stage}.slots" for stage in _STAGES),
        reads=(*(f"{stage}.positions" for stage in _STAGES), "round.table"),
        concerns=lambda evidence: "round.table" in evidence.subject.channels,
        whole=False,
        cites="S-BATCH-1",
        minimum="scenarios decode_rounds page_crossings",
    ),
    contract(
        "memory.bounds",
        _bounds,
        (*_RANGES, "commit.written"),
        partial=(*_RANGES, "commit.written"),
        whole=False,
        cites="S-BATCH-1, S-BATCH-2",
        minimum="scenarios decode_rounds",
    ),
)
