"""Mistakes that engines make, each as what the oracle reads in place of what is right.

A mistake changes rows of request 0 only, and either the target's or the draft's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from draftproof.tracer.oracle import DRAFT_LAYER, SPAN, Numbers, ReadOp, ReadView, handed
from draftproof.tracer.program import TRUE, Program
from draftproof.tracer.simulated import STALE, EngineMistake, Live, row_of

_NONE = -1
_SIZES = (16, 32, 64, 128, 256)
_DISTANCES = (1, 2, 3, 8, 16, 7, 15, 31, 32, 63, 64)
_MOST_PAGES = 24
_WINDOW = ("write", "read", "value")
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


_COPIES, _DRAFT, _CONVOLUTIONS = Reads(), Reads(is_draft=True), Reads(_WINDOW)


def _decoded(live: Live, at: Numbers) -> Bools:
    return at >= live.prompt


def _any_row(live: Live, at: Numbers) -> Bools:
    return at >= 0


def _first_of_round(live: Live, at: Numbers) -> Bools:
    return at == live.begin


def _behind_rejection(live: Live, at: Numbers) -> Bools:
    return (at == live.begin) & (live.begin - live.before == 1)


def _first_decoded(live: Live, at: Numbers) -> Bools:
    return at == live.prompt


def _behind_first(live: Live, at: Numbers) -> Bools:
    return (at > live.prompt) & ~np.isin(at, [*live.begins])


def _beyond(live: Live, at: Numbers) -> Bools:
    return at > live.begin


def _chain(live: Live, at: Numbers) -> Bools:
    return at >= live.begin


def _entry(change: Change, reads: Reads, where: Where, live: Live) -> ReadView:
    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        if not reads.has(place):
            return wanted
        return np.where((at < SPAN) & where(live, at), change(live, at, wanted), wanted)

    return ReadView(entry=entry)


def _reading(
    name: str,
    family: str,
    change: Change,
    reads: Reads = _COPIES,
    where: Where = _decoded,
    other: int | None = None,
) -> EngineMistake:
    if reads.layer is not None:
        name, family = f"{name}, in layer {reads.layer} alone", f"{family}, in one layer"
    return EngineMistake(name, family, partial(_entry, change, reads, where), other=other)


def _shifted(by: int, where: Where, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the newest row whose position is the one wanted, where some rows have other positions."""
    target = wanted + by * where(live, at)
    moved = target - by
    is_moved, is_plain = where(live, moved) & (moved <= at), ~where(live, target) & (target <= at)
    found = np.where(is_moved & is_plain, np.maximum(moved, target), np.where(is_moved, moved, target))
    return np.where(is_moved | is_plain, found, _NONE)


def _shifted_slots(by: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the same of a chain that writes to other places, too: where nothing is written lies what was before."""
    found = _shifted(by, _chain, live, at, wanted)
    stale = (wanted + by == live.begin) & (at >= live.begin) & np.isin(live.begin, [*live.stale])
    return np.where(stale, row_of(STALE, live.begin), found)


def _missing(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted == distance, _NONE, wanted)


def _newest_missing(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted <= distance, _NONE, wanted)


def _before(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted == distance, wanted - 1, wanted)


def _all_before(by: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.minimum(wanted - by, at)


def _within(first: int, end: int, other: int | None, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return other rows for the places of a range, those of another request or none, as later rows see them."""
    is_there = (wanted >= first) & (wanted < end) & (at >= end)
    return np.where(is_there, _NONE if other is None else row_of(other, 0) + wanted, wanted)


def _of_other(distance: int, other: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where((at - wanted == distance) & (wanted >= 0), row_of(other, 0) + wanted, wanted)


def _all_of_other(other: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where((wanted >= 0) & (wanted < at), row_of(other, 0) + wanted, wanted)


def _prompt_lost(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(wanted < live.prompt, _NONE, wanted)


def _chunk_lost(size: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(wanted < at // size * size, _NONE, wanted)


def _full_lost(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(np.isin(wanted, [*live.full]), _NONE, wanted)


def targets(program: Program, prompt: int, others: Sequence[int]) -> Iterator[EngineMistake]:
    """Yield mistakes of the target's positions, entries, layers and rows."""
    for by, told in ((1, "ahead"), (-1, "behind")):
        for where, rows in ((_decoded, "decoded tokens"), (_behind_first, "verified rows behind the first")):
            change = partial(_shifted, by, where)
            yield _reading(f"positions of {rows} one {told}", f"positions of {rows} one {told}", change, where=_any_row)
        for last in (1, 2, 16):
            end = partial(_last_of_prompt, last)
            name, family = (
                f"positions of the prompt's last {last} one {told}",
                f"positions of the prompt's end one {told}",
            )
            yield _reading(name, family, partial(_shifted, by, end), where=_any_row)
    attended = [number for number, layer in enumerate(program.layers) if layer.copies]
    for where, rows in ((_decoded, "decoded rows"), (_any_row, "all rows")):
        for layer in (None, *attended):
            for distance in _DISTANCES if layer is None else _DISTANCES[:5]:
                told = f"KV entry at distance {distance}"
                reads = Reads(layer=layer)
                yield _reading(
                    f"{told} missing, {rows}", f"KV entry missing, {rows}", partial(_missing, distance), reads, where
                )
                yield _reading(
                    f"{told} is that of its neighbour before, {rows}",
                    f"KV entry of its neighbour, {rows}",
                    partial(_before, distance),
                    reads,
                    where,
                )
        for newest in (2, 3, 4, 8):
            name = f"the newest {newest} KV entries missing, {rows}"
            yield _reading(name, f"newest KV entries missing, {rows}", partial(_newest_missing, newest), where=where)
        yield _reading(
            f"all KV entries one older, {rows}",
            f"all KV entries one older, {rows}",
            partial(_all_before, 1),
            where=where,
        )
    for size in _SIZES:
        for first in range(0, min(prompt, _MOST_PAGES * size), size):
            for other in (None, *others):
                told = "is missing" if other is None else f"is that of {_named(other)}"
                name = f"page {first // size} of {size} entries {told}"
                yield _reading(
                    name,
                    f"page {'missing' if other is None else 'of another request'}",
                    partial(_within, first, first + size, other),
                    other=other,
                )
    for number in range(len(program.layers)):
        yield EngineMistake(f"layer {number} skipped", "layer skipped", partial(_skipped, number))
    for other in others:
        for distance in (1, 2):
            name = f"KV entry at distance {distance} of {_named(other)}"
            yield _reading(name, "KV entry of another request", partial(_of_other, distance, other), other=other)
        yield _reading(
            f"all KV entries of {_named(other)}",
            "all KV entries of another request",
            partial(_all_of_other, other),
            other=other,
        )
        yield EngineMistake(
            f"rows swapped: output of {_named(other)}",
            "rows swapped with another request",
            output=partial(_output, other),
            other=other,
        )
    yield EngineMistake(
        "KV entry of a rejected draft kept", "KV entry of a rejected draft kept", _kept, runs_rejected=True
    )
    for kept in range(2, prompt):
        if kept < 66 or kept % 16 in (0, 1, 15):
            cut = partial(_truncated, kept)
            yield EngineMistake(
                f"prompt truncated from the left to its last {kept - 1} tokens", "prompt truncated", prompt=cut
            )


def prefixes(prompt: int, others: Sequence[int]) -> Iterator[EngineMistake]:
    """Yield prefixes that belong to another request."""
    for other in others:
        for end in {*range(16, prompt, 16), *_SIZES} - {size for size in _SIZES if size >= prompt}:
            name = f"prefix of {end} tokens served of {_named(other)}"
            yield EngineMistake(name, "prefix of another request", partial(_prefix, end, other), other=other)


def memories(others: Sequence[int]) -> Iterator[EngineMistake]:
    """Yield mistakes of states and convolutions' windows."""
    for back in (1, 2, 3):
        name = f"state rolled back {back} too far"
        yield EngineMistake(name, name, partial(_state, _first_of_round, partial(_rolled_back, back)))
    name = "state not committed where no draft is accepted"
    yield EngineMistake(name, name, partial(_state, _behind_rejection, partial(_rolled_back, 1)))
    yield EngineMistake(
        "state lost behind the prompt", "state lost behind the prompt", partial(_state, _first_decoded, _empty)
    )
    for size in _SIZES:
        at_chunk = partial(_at_chunk, size)
        name = f"state lost between chunks of {size} tokens"
        yield EngineMistake(name, "state lost between chunks", partial(_state, at_chunk, _empty))
        name = f"convolution's window lost between chunks of {size} tokens"
        yield _reading(name, "window lost between chunks", partial(_chunk_lost, size), _CONVOLUTIONS, _any_row)
    for other in others:
        take = partial(_state_of, other)
        yield EngineMistake(
            f"state of {_named(other)} behind the prompt",
            "state of another slot",
            partial(_state, _first_decoded, take),
            other=other,
        )
        yield EngineMistake(
            f"state of {_named(other)} in every round",
            "state of another slot",
            partial(_state, _first_of_round, take),
            other=other,
        )
    for by, told in ((1, "older"), (-1, "newer")):
        for where, rows in (
            (_any_row, "all rows"),
            (_decoded, "decoded rows"),
            (_first_of_round, "first rows of rounds"),
        ):
            name = f"convolution's window one {told}, {rows}"
            yield _reading(name, name, partial(_all_before, by), _CONVOLUTIONS, where)
    name = "convolution's window lost behind the prompt"
    yield _reading(name, name, _prompt_lost, _CONVOLUTIONS)
    for name, state, window in (
        ("state not rolled back", True, False),
        ("convolution's window not rolled back", False, True),
        ("neither state nor convolution's window rolled back", True, True),
    ):
        yield EngineMistake(name, name, partial(_not_rolled_back, state, window), runs_rejected=True)


def drafts(program: Program, prompt: int, others: Sequence[int], width: int) -> Iterator[EngineMistake]:
    """Yield mistakes of a draft, which change what is accepted and no token."""
    for by, told in ((1, "ahead"), (-1, "behind")):
        where = _beyond if program.small else _chain
        name = f"draft positions one {told}"
        yield _reading(name, name, partial(_shifted, by, where), _DRAFT, _any_row)
    if program.head:
        name = "draft positions and slots one ahead"
        view = partial(_entry, partial(_shifted_slots, 1), _DRAFT, _any_row)
        yield EngineMistake(name, name, view, keeps_chain=1)
    for distance in (0, 1, 2, 3):
        for change, told in ((_missing, "missing"), (_before, "that of its neighbour before")):
            name = f"the draft's KV entry at distance {distance} {told}"
            yield _reading(name, f"draft's KV entry {told}", partial(change, distance), _DRAFT, _any_row)
    name = "draft cache a token short after a full accept"
    yield _reading(name, name, _full_lost, _DRAFT, _any_row)
    for end in {*range(16, prompt, 16), prompt - 1, prompt}:
        name = f"the draft has not seen the prompt's first {end} tokens"
        yield _reading(name, "draft has not seen a prefix", partial(_within, 0, end, None), _DRAFT, _any_row)
    for fewer in range(width):
        yield EngineMistake(f"{fewer} drafts a round, not {width}", "fewer drafts a round", width=fewer)
    if program.small:
        for number in range(len(program.small.layers)):
            yield EngineMistake(
                f"the draft's layer {number} skipped", "draft's layer skipped", partial(_skipped, DRAFT_LAYER - number)
            )
        return
    yield _token("draft's ids not shifted", lambda live, at, wanted: at)
    yield _hidden(
        "hidden state of the neighbouring row",
        lambda live, at, wanted: np.where(wanted >= 0, np.maximum(wanted - 1, 0), wanted),
    )
    yield _hidden(
        "hidden state of the target's last row throughout the chain",
        lambda live, at, wanted: np.where(wanted < 0, live.begin - 1, wanted),
    )
    yield _hidden(
        "hidden state of the first draft throughout the chain",
        lambda live, at, wanted: np.where(wanted < 0, handed(live.begin - 1), wanted),
    )
    yield _hidden("accepted rows keep the draft's own states", _own_states)
    for other in others:
        change = partial(_hidden_of, other)
        yield _hidden(f"hidden state of {_named(other)}", change, "hidden state of another request", other)
    for behind in range(len(program.layers) - 1):
        yield EngineMistake(
            f"hidden state of layer {behind}", "hidden state of another layer", program=partial(_earlier, behind)
        )


def every(program: Program, prompt: int, others: Sequence[int], width: int, *, of_draft: bool) -> list[EngineMistake]:
    """Return the mistakes of the draft or the target that a program, a prompt's length and neighbours allow."""
    if of_draft:
        return [*drafts(program, prompt, others, width)] if width else []
    found = [*targets(program, prompt, others), *prefixes(prompt, others)]
    if any(layer.memories for layer in program.layers):
        found += memories(others)
    return [one for one in found if width or not one.runs_rejected]


def _named(other: int) -> str:
    return f"neighbour {other}"


def _last_of_prompt(last: int, live: Live, at: Numbers) -> Bools:
    return (at >= live.prompt - last) & (at < live.prompt)


def _at_chunk(size: int, live: Live, at: Numbers) -> Bools:
    return (at > 0) & (at % size == 0) & (at < live.prompt)


def _skipped(number: int, live: Live) -> ReadView:
    return ReadView(runs=lambda layer: layer != number)


def _output(other: int, live: Live, step: int) -> int:
    """Return the row of another request at the same step, or none where it has ended."""
    neighbour = live.neighbours[other]
    place = neighbour.prompt - 1 + step
    return row_of(other, place) if place < len(neighbour.tokens) else _NONE


def _truncated(kept: int, prompt: tuple[int, ...]) -> tuple[int, ...]:
    return (prompt[0], *prompt[max(1, len(prompt) - kept + 1) :])


def _shadowed(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return what rows of rejected drafts read: they lie behind the text of request 0."""
    if live.rejected is None:
        return wanted
    place = wanted - row_of(live.rejected, 0)
    is_text = (at // SPAN == live.rejected) & (place < live.first)
    return np.where(is_text, place, wanted)


def _kept(live: Live) -> ReadView:
    """Return a view in which a rejected draft's entry stays for the token that took its place."""
    stale: dict[int, int] = {}

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        if not _COPIES.has(place):
            return wanted
        if live.rejected is not None:
            stale[live.first] = row_of(live.rejected, live.first)
        wanted = _shadowed(live, at, wanted)
        kept = np.array([stale.get(row, row) for row in wanted.tolist()])
        return np.where((at < SPAN) & (wanted < at), kept, wanted)

    return ReadView(entry=entry)


def _prefix(end: int, other: int, live: Live) -> ReadView:
    """Return a view in which the rows of a prefix are those of another request, for whatever keeps them."""
    change = partial(_within, 0, end, other)

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        return np.where((at < SPAN) & (place.layer >= 0), change(live, at, wanted), wanted)

    def state(place: ReadOp, at: int, before: int) -> int:
        return row_of(other, end - 1) if at == end and place.layer >= 0 else before

    return ReadView(entry=entry, state=state)


def _state(where: Where, take: Callable[[Live, int], int], live: Live) -> ReadView:
    def state(place: ReadOp, at: int, before: int) -> int:
        is_here = at < SPAN and bool(where(live, np.array(at)))
        return take(live, before) if is_here else before

    return ReadView(state=state)


def _rolled_back(back: int, live: Live, before: int) -> int:
    return before - back


def _empty(live: Live, before: int) -> int:
    return _NONE


def _state_of(other: int, live: Live, before: int) -> int:
    """Return the row of another request at the same step."""
    neighbour = live.neighbours[other]
    return row_of(other, min(neighbour.prompt + before - live.prompt, len(neighbour.tokens) - 1))


def _not_rolled_back(state: bool, window: bool, live: Live) -> ReadView:
    """Return a view in which a round begins with what the one before left, as if its rejected drafts were right."""

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        found = _shadowed(live, at, wanted)
        if live.rejected is None or not window or not _CONVOLUTIONS.has(place):
            return found
        late = (at < SPAN) & (at >= live.begin) & (wanted < live.begin)
        shifted = wanted + live.end + 1 - live.begin
        return np.where(late, np.where(shifted < live.first, shifted, row_of(live.rejected, 0) + shifted), found)

    def seen(place: ReadOp, at: int, before: int) -> int:
        if live.rejected is not None and at == row_of(live.rejected, live.first):
            return live.first - 1
        return row_of(live.rejected, live.end) if live.rejected is not None and state and at == live.begin else before

    return ReadView(entry=entry, state=seen)


def _token(name: str, change: Change) -> EngineMistake:
    return EngineMistake(name, name, lambda live: ReadView(token=lambda at, wanted: change(live, at, wanted)))


def _hidden(name: str, change: Change, family: str = "", other: int | None = None) -> EngineMistake:
    def view(live: Live) -> ReadView:
        return ReadView(hidden=lambda at, wanted: change(live, at, wanted))

    return EngineMistake(name, family or name, view, other=other)


def _own_states(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the draft's own states for rows behind the prompt that the chain of the round before had."""
    is_chained = (at >= live.prompt) & (at < live.before + live.width - 1)
    return np.where(is_chained & (wanted >= 0), [handed(row - 1) for row in at.tolist()], wanted)


def _hidden_of(other: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    neighbour = live.neighbours[other]
    place = np.minimum(neighbour.prompt + wanted - live.prompt, len(neighbour.tokens) - 1)
    return np.where((wanted >= live.prompt - 1) & (place >= 0), row_of(other, 0) + place, wanted)


def _earlier(behind: int, program: Program) -> Program:
    """Return a program whose draft is given the states behind an earlier layer, in which later ones wrote nothing."""
    later = {
        bit
        for layer in program.layers[behind + 1 :]
        for bit in (
            *(bit for copy in layer.copies for bit in copy.targets),
            *(bit for memory in layer.memories for bit in memory.targets),
            *(table.target for table in layer.tables),
        )
    }
    assert program.head is not None
    given = tuple((to, TRUE if bit in later else bit) for to, bit in program.head.handed)
    return msgspec.structs.replace(program, head=msgspec.structs.replace(program.head, handed=given))
