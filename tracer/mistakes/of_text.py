"""Mistakes of positions, entries, layers and rows of the target, which change its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from draftproof.tracer.mistakes.changes import (
    CHUNK_SIZES,
    COPIES,
    NO_ROW,
    Bools,
    Reads,
    all_before,
    any_row,
    decoded,
    missing,
    one_before,
    reading,
    shadowed,
    shifted,
    skipped,
    within,
)
from draftproof.tracer.oracle import SPAN, Numbers, ReadOp, ReadView
from draftproof.tracer.program import Program
from draftproof.tracer.simulated import OTHER, EngineMistake, Live, row_of

_DISTANCES = (1, 2, 3, 8, 16, 7, 15, 31, 32, 63, 64)
_MOST_PAGES = 24


def targets(program: Program, prompt: int) -> Iterator[EngineMistake]:
    """Yield mistakes of the target's positions, entries, layers and rows."""
    for by, told in ((1, "ahead"), (-1, "behind")):
        for where, rows in ((decoded, "decoded tokens"), (_behind_first, "verified rows behind the first")):
            change = partial(shifted, by, where)
            yield reading(f"positions of {rows} one {told}", f"positions of {rows} one {told}", change, where=any_row)
        for last in (1, 2, 16):
            end = partial(_last_of_prompt, last)
            name, family = (
                f"positions of the prompt's last {last} one {told}",
                f"positions of the prompt's end one {told}",
            )
            yield reading(name, family, partial(shifted, by, end), where=any_row)
    attended = [number for number, layer in enumerate(program.layers) if layer.copies]
    for where, rows in ((decoded, "decoded rows"), (any_row, "all rows")):
        for layer in (None, *attended):
            for distance in _DISTANCES if layer is None else _DISTANCES[:5]:
                told = f"KV entry at distance {distance}"
                reads = Reads(layer=layer)
                yield reading(
                    f"{told} missing, {rows}", f"KV entry missing, {rows}", partial(missing, distance), reads, where
                )
                yield reading(
                    f"{told} is that of its neighbour before, {rows}",
                    f"KV entry of its neighbour, {rows}",
                    partial(one_before, distance),
                    reads,
                    where,
                )
        for newest in (2, 3, 4, 8):
            name = f"the newest {newest} KV entries missing, {rows}"
            yield reading(name, f"newest KV entries missing, {rows}", partial(_newest_missing, newest), where=where)
        yield reading(
            f"all KV entries one older, {rows}",
            f"all KV entries one older, {rows}",
            partial(all_before, 1),
            where=where,
        )
    for size in CHUNK_SIZES:
        for first in range(0, min(prompt, _MOST_PAGES * size), size):
            for is_other in (False, True):
                told = "of another request" if is_other else "missing"
                name = f"page {first // size} of {size} entries: {told}"
                yield reading(
                    name,
                    f"page {told}",
                    partial(within, first, first + size, is_other),
                    reads_other=is_other,
                )
    for number in range(len(program.layers)):
        yield EngineMistake(f"layer {number} skipped", "layer skipped", partial(skipped, number))
    for distance in (1, 2):
        name, change = f"KV entry at distance {distance} of another request", partial(_of_other, distance)
        yield reading(name, "KV entry of another request", change, reads_other=True)
    name = "all KV entries of another request"
    yield reading(name, name, _all_of_other, reads_other=True)
    name = "rows swapped: output of another request"
    yield EngineMistake(name, name, output=_output, reads_other=True)
    yield EngineMistake(
        "KV entry of a rejected draft kept", "KV entry of a rejected draft kept", _kept, runs_rejected=True
    )
    if program.small:
        name = "rejected draft kept in the cache, what follows one place further"
        yield EngineMistake(name, name, target_keeps=1)
    for kept in range(2, prompt):
        if kept < 66 or kept % 16 in (0, 1, 15):
            cut = partial(_truncated, kept)
            yield EngineMistake(
                f"prompt truncated from the left to its last {kept - 1} tokens", "prompt truncated", prompt=cut
            )


def prefixes(prompt: int) -> Iterator[EngineMistake]:
    """Yield prefixes that belong to another request."""
    for end in {*range(16, prompt, 16), *CHUNK_SIZES} - {size for size in CHUNK_SIZES if size >= prompt}:
        name = f"prefix of {end} tokens served of another request"
        yield EngineMistake(name, "prefix of another request", partial(_prefix, end), reads_other=True)


def _behind_first(live: Live, at: Numbers) -> Bools:
    return (at > live.prompt) & ~np.isin(at, [*live.begins])


def _last_of_prompt(last: int, live: Live, at: Numbers) -> Bools:
    return (at >= live.prompt - last) & (at < live.prompt)


def _newest_missing(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(at - wanted <= distance, NO_ROW, wanted)


def _of_other(distance: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where((at - wanted == distance) & (wanted >= 0), row_of(OTHER, 0) + wanted, wanted)


def _all_of_other(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where((wanted >= 0) & (wanted < at), row_of(OTHER, 0) + wanted, wanted)


def _output(live: Live, step: int) -> int:
    """Return the row of another request at the same step, or none where it has ended."""
    neighbour = live.neighbour
    assert neighbour
    place = neighbour.prompt - 1 + step
    return row_of(OTHER, place) if place < len(neighbour.tokens) else NO_ROW


def _truncated(kept: int, prompt: tuple[int, ...]) -> tuple[int, ...]:
    return (prompt[0], *prompt[max(1, len(prompt) - kept + 1) :])


def _kept(live: Live) -> ReadView:
    """Return a view in which a rejected draft's entry stays for the token that took its place."""
    stale: dict[int, int] = {}

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        if not COPIES.has(place):
            return wanted
        if live.rejected is not None:
            stale[live.first] = row_of(live.rejected, live.first)
        wanted = shadowed(live, at, wanted)
        kept = np.array([stale.get(row, row) for row in wanted.tolist()])
        return np.where((at < SPAN) & (wanted < at), kept, wanted)

    return ReadView(entry=entry)


def _prefix(end: int, live: Live) -> ReadView:
    """Return a view in which the rows of a prefix are those of another request, for whatever keeps them."""
    change = partial(within, 0, end, True)

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        return np.where((at < SPAN) & (place.layer >= 0), change(live, at, wanted), wanted)

    def state(place: ReadOp, at: int, before: int) -> int:
        return row_of(OTHER, end - 1) if at == end and place.layer >= 0 else before

    return ReadView(entry=entry, state=state)
