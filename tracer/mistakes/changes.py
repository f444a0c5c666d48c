"""What a mistake changes: in which rows, of which reads, and to what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftproof.tracer.oracle import DRAFT_LAYER, SPAN, Numbers, ReadOp, ReadView
from draftproof.tracer.simulated import OTHER, EngineMistake, Live, row_of

NO_ROW = -1
CHUNK_SIZES = (16, 32, 64, 128, 256)
Bools = NDArray[np.bool_]
Where = Callable[[Live, Numbers], Bools]
Change = Callable[[Live, Numbers, Numbers], Numbers]


class Reads(NamedTuple):
    """Which reads a mistake changes: those of kinds, in one layer or all, by the draft or the target."""

    kinds: tuple[str, ...] = ("copy",)
    layer: int | None = None
    is_draft: bool = False

    def has(self, place: ReadOp) -> bool:
        """Return whether a read is one of them."""
        is_here = place.layer <= DRAFT_LAYER if self.is_draft else place.layer >= 0
        return is_here and place.kind in self.kinds and self.layer in (None, place.layer)


COPIES, OF_DRAFT, CONVOLUTIONS = Reads(), Reads(is_draft=True), Reads(("write", "read", "value"))


def decoded(live: Live, at: Numbers) -> Bools:
    return at >= live.prompt


def any_row(live: Live, at: Numbers) -> Bools:
    return at >= 0


def changed(change: Change, reads: Reads, where: Where, live: Live) -> ReadView:
    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        if not reads.has(place):
            return wanted
        return np.where((at < SPAN) & where(live, at), change(live, at, wanted), wanted)

    return ReadView(entry=entry)


def reading(
    name: str,
    family: str,
    change: Change,
    reads: Reads = COPIES,
    where: Where = decoded,
    *,
    reads_other: bool = False,
) -> EngineMistake:
    if reads.layer is not None:
        name, family = f"{name}, in layer {reads.layer} alone", f"{family}, in one layer"
    return EngineMistake(name, family, partial(changed, change, reads, where), reads_other=reads_other)


def shifted(by: int, where: Where, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the newest row whose position is the one wanted, where some rows have other positions."""
    target = wanted + by * where(live, at)
    moved = target - by
    is_moved, is_plain = where(live, moved) & (moved <= at), ~where(live, target) & (target <= at)
    found = np.where(is_moved & is_plain, np.maximum(moved, target), np.where(is_moved, moved, target))
    return np.where(is_moved | is_plain, found, NO_ROW)


def missing(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted == distance, NO_ROW, wanted)


def one_before(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted == distance, wanted - 1, wanted)


def all_before(by: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.minimum(wanted - by, at)


def within(first: int, end: int, is_other: bool, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return other rows for the places of a range, those of another request or none, as later rows see them."""
    is_there = (wanted >= first) & (wanted < end) & (at >= end)
    return np.where(is_there, row_of(OTHER, 0) + wanted if is_other else NO_ROW, wanted)


def skipped(number: int, live: Live) -> ReadView:
    return ReadView(runs=lambda layer: layer != number)


def shadowed(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return what rows of rejected drafts read: they lie behind the text of request 0."""
    if live.rejected is None:
        return wanted
    place = wanted - row_of(live.rejected, 0)
    is_text = (at // SPAN == live.rejected) & (place < live.first)
    return np.where(is_text, place, wanted)
