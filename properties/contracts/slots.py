"""Where rows live: slots by the request's own table, everything in range.

`P` page size. The subject chooses its pages; what is judged is that its rows agree with its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.memory import CHECKPOINTS, HEAD, INTERMEDIATE, STATES, TARGET
from draftproof.properties.diagnosis.compare import Place, first_divergence, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.trace import Datum, Key, integers
from draftproof.properties.values.verdict import Divergence

_STAGES = ("draft.step", "draft.block", "verify", "extend")


def _slots(evidence: Evidence) -> Iterator[Divergence]:
    """Slot of a row = the table's entry of that round at the position that the row reports."""
    for stage in _STAGES:
        if f"{stage}.slots" not in evidence.subject.channels:
            continue
        positions, reported = evidence.pair(f"{stage}.positions")
        _, got = evidence.pair(f"{stage}.slots")
        expected: dict[Key, Datum] = {}
        for key, position in positions.items():
            at = reported.get(key, position)
            slot = evidence.slot(key.request, key.round, at) if isinstance(at, int) else None
            expected[key] = "no page" if slot is None else slot  # type: ignore[assignment]
        found = first_divergence(
            "memory.slots",
            f"{stage}.slots",
            expected,
            got,
            position_of_slot=lambda key, slot: evidence.position(key.request, key.round, slot),
        )
        if found:
            yield found


Range = Callable[[Evidence, Key], tuple[int, int]]


def _vocab(evidence: Evidence, _key: Key) -> tuple[int, int]:
    return 0, evidence.scenario.model.vocab - 1


def _vocab_and_mask(evidence: Evidence, _key: Key) -> tuple[int, int]:
    """A block has masked tokens too, and nothing else has."""
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


_RANGES: dict[str, Range] = {
    "round.table": _pages,
    "accept.bonus": _vocab,
    "accept.correct_len": _drafts,
    "accept.emitted": _vocab,
    "accept.index": _drafts,
    "propose.tokens": _vocab,
    "draft.block.visible": _positions,
    **{f"{stage}.ids": _vocab for stage in _STAGES},
    "draft.block.ids": _vocab_and_mask,
    **{f"{stage}.positions": _positions for stage in _STAGES},
    **{f"{stage}.slots": _live_slots for stage in _STAGES},
}


def _bounds(evidence: Evidence) -> Iterator[Divergence]:
    """Every index within what it indexes."""
    for channel, allowed in _RANGES.items():
        found = first_of("memory.bounds", _outside(evidence, channel, allowed))
        if found:
            yield found
    found = first_of("memory.bounds", _written_outside(evidence))
    if found:
        yield found


def _outside(evidence: Evidence, channel: str, allowed: Range) -> Iterator[Place]:
    low, high = allowed(evidence, Key(0, 0))
    for key, value in evidence.subject.channel(channel).items():
        # Every channel in `_RANGES` is of integers.
        for item in cast("tuple[int, ...]", value if isinstance(value, tuple) else (value,)):
            if not low <= item <= high:
                yield Place(channel, key, f"{low} .. {high}", value, "out of range")
                break


def _written_outside(evidence: Evidence) -> Iterator[Place]:
    memory, steps = evidence.scenario.memory, evidence.scenario.steps
    kv, states = (memory.pages + 1) * memory.page_size, memory.request_slots + 1
    rows = evidence.scenario.schedule.max_batch * (steps + 1)
    ends = {TARGET: kv, STATES: states, INTERMEDIATE: rows, CHECKPOINTS: states}
    if evidence.form.extends:
        ends[HEAD] = kv
    for key, value in evidence.subject.channel("commit.written").items():
        flat = integers(value)
        for region, slot in zip(flat[::2], flat[1::2], strict=False):
            if not 0 <= slot < ends.get(region, 0):
                allowed = f"slots 0 .. {ends[region] - 1}" if region in ends else "no other memory"
                yield Place("commit.written", key, allowed, (region, slot), "out of range")
                break


def _tabled(evidence: Evidence) -> bool:
    return "round.table" in evidence.subject.channels


CONTRACTS = (
    Contract(
        name="memory.slots",
        needs=frozenset(f"{stage}.slots" for stage in _STAGES),
        reads=frozenset({*(f"{stage}.positions" for stage in _STAGES), "round.table"}),
        minimum={"scenarios": 1, "decode_rounds": 1, "page_crossings": 1},
        check=_slots,
        concerns=_tabled,
        whole=False,
    ),
    Contract(
        name="memory.bounds",
        needs=frozenset(_RANGES) | {"commit.written"},
        partial=frozenset(_RANGES) | {"commit.written"},
        minimum={"scenarios": 1, "decode_rounds": 1},
        check=_bounds,
        whole=False,
    ),
)
