"""Where rows live: slots by the request's own table, everything in range.

`P` page size. The subject chooses its pages; what is judged is that its rows agree with its own table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
            at = _column(evidence, stage, key, reported.get(key, position))
            slot = evidence.tables.slot(key.request, key.round, at) if isinstance(at, int) else None
            expected[key] = "no page" if slot is None else slot  # type: ignore[assignment]
        yield first_divergence(
            "memory.slots",
            f"{stage}.slots",
            expected,
            got,
            order=evidence.order,
            position_of_slot=lambda key, slot: evidence.tables.position(key.request, key.round, slot),
        )


def _column(evidence: Evidence, stage: str, key: Key, position: Datum) -> Datum:
    """Return the page table column of a row: its position, except for rows of a tree (S-TREE-6)."""
    tree, n = evidence.scenario.tree, evidence.contexts.get((key.request, key.round), 0)
    if tree and stage == "verify":
        return n + key.row
    return n + (key.step - 1) * tree.topk + key.row if tree and stage == "draft.beam" else position


_UNITS = ("id", "token", "page", "KV slot")
_IDS = tuple(name for name, channel in CHANNELS.items() if channel.unit in _UNITS and not channel.is_float)
_PARENTS = ("propose.parents", "round.parents", "verify.parents")
_BOUNDED = (
    *dict.fromkeys((*_IDS, *_PARENTS, "accept.correct_len", "accept.index", "draft.block.ids")),
    "commit.written",
)


def _bounds(evidence: Evidence) -> Differences:
    """Check that every index is within what it indexes."""
    memory, vocab, steps = evidence.scenario.memory, evidence.scenario.model.vocab, evidence.scenario.steps
    rows = evidence.scenario.width - 1
    pages = evidence.scenario.all_pages
    live_slots = (memory.page_size, (pages + 1) * memory.page_size - 1)
    units = {"id": (0, vocab - 1), "token": (0, memory.max_len - 1), "page": (1, pages), "KV slot": live_slots}
    # Blocks alone have masked tokens.
    others = {"accept.correct_len": (0, steps), "accept.index": (0, rows), "draft.block.ids": (0, vocab)}
    others |= dict.fromkeys(_PARENTS, (0, rows))
    yield from outside("memory.bounds", evidence, {name: units[CHANNELS[name].unit] for name in _IDS} | others)
    yield first_of("memory.bounds", _written_outside(evidence))


def outside(contract: str, evidence: Evidence, ranges: Mapping[str, tuple[int, int]]) -> Differences:
    """Yield the first index of each channel that is not from `low` to `high`."""
    for channel, (low, high) in ranges.items():
        wrong = (
            Mismatch(channel, key, f"{low} .. {high}", value, OutOfRange())
            for key, value in evidence.subject.channel(channel).items()
            if (found := numbers(value)) and not low <= min(found) <= max(found) <= high
        )
        yield first_of(contract, wrong, evidence.order)


def _written_outside(evidence: Evidence) -> Iterator[Mismatch]:
    memory = evidence.scenario.memory
    kv, states = (evidence.scenario.all_pages + 1) * memory.page_size, evidence.scenario.all_rows + 1
    rows = evidence.scenario.schedule.max_batch * evidence.scenario.width
    ends = {
        MemoryRegion.TARGET: kv,
        MemoryRegion.STATES: states,
        MemoryRegion.INTERMEDIATE: rows,
        MemoryRegion.CHECKPOINTS: states + memory.checkpoint_slots,
    }
    if evidence.form.kind.extends:
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
        cites="S-BATCH-1, S-TREE-6",
        minimum="scenarios decode_rounds page_crossings",
    ),
    contract(
        "memory.bounds",
        _bounds,
        _BOUNDED,
        partial=_BOUNDED,
        whole=False,
        cites="S-BATCH-1, S-BATCH-2",
        minimum="scenarios decode_rounds",
    ),
)
