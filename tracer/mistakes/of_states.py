"""Mistakes of recurrent states and of convolutions' windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from draftproof.tracer.mistakes.changes import (
    CHUNK_SIZES,
    CONVOLUTIONS,
    NO_ROW,
    Bools,
    Where,
    all_before,
    any_row,
    decoded,
    reading,
    shadowed,
)
from draftproof.tracer.oracle import SPAN, Numbers, ReadOp, ReadView
from draftproof.tracer.simulated import OTHER, EngineMistake, Live, row_of


def memories() -> Iterator[EngineMistake]:
    """Yield mistakes of states and convolutions' windows."""
    for back in (1, 2, 3):
        name = f"state rolled back {back} too far"
        yield EngineMistake(name, name, partial(_state, _first_of_round, partial(_rolled_back, back)))
    name = "state not committed where no draft is accepted"
    yield EngineMistake(name, name, partial(_state, _behind_rejection, partial(_rolled_back, 1)))
    yield EngineMistake(
        "state lost behind the prompt", "state lost behind the prompt", partial(_state, _first_decoded, _empty)
    )
    for size in CHUNK_SIZES:
        at_chunk = partial(_at_chunk, size)
        name = f"state lost between chunks of {size} tokens"
        yield EngineMistake(name, "state lost between chunks", partial(_state, at_chunk, _empty))
        name = f"convolution's window lost between chunks of {size} tokens"
        yield reading(name, "window lost between chunks", partial(_chunk_lost, size), CONVOLUTIONS, any_row)
    for where, rows in ((_first_decoded, "behind the prompt"), (_first_of_round, "in every round")):
        view = partial(_state, where, _of_other)
        yield EngineMistake(f"state of another request {rows}", "state of another slot", view, reads_other=True)
    for by, told in ((1, "older"), (-1, "newer")):
        for where, rows in (
            (any_row, "all rows"),
            (decoded, "decoded rows"),
            (_first_of_round, "first rows of rounds"),
        ):
            name = f"convolution's window one {told}, {rows}"
            yield reading(name, name, partial(all_before, by), CONVOLUTIONS, where)
    name = "convolution's window lost behind the prompt"
    yield reading(name, name, _prompt_lost, CONVOLUTIONS)
    for name, state, window in (
        ("state not rolled back", True, False),
        ("convolution's window not rolled back", False, True),
        ("neither state nor convolution's window rolled back", True, True),
    ):
        yield EngineMistake(name, name, partial(_not_rolled_back, state, window), runs_rejected=True)


def _first_of_round(live: Live, at: Numbers) -> Bools:
    return at == live.begin


def _behind_rejection(live: Live, at: Numbers) -> Bools:
    return (at == live.begin) & (live.begin - live.before == 1)


def _first_decoded(live: Live, at: Numbers) -> Bools:
    return at == live.prompt


def _at_chunk(size: int, live: Live, at: Numbers) -> Bools:
    return (at > 0) & (at % size == 0) & (at < live.prompt)


def _chunk_lost(size: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(wanted < at // size * size, NO_ROW, wanted)


def _prompt_lost(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(wanted < live.prompt, NO_ROW, wanted)


def _state(where: Where, take: Callable[[Live, int], int], live: Live) -> ReadView:
    def state(place: ReadOp, at: int, before: int) -> int:
        is_here = at < SPAN and bool(where(live, np.array(at)))
        return take(live, before) if is_here else before

    return ReadView(state=state)


def _rolled_back(back: int, live: Live, before: int) -> int:
    return before - back


def _empty(live: Live, before: int) -> int:
    return NO_ROW


def _of_other(live: Live, before: int) -> int:
    """Return the row of another request at the same step."""
    neighbour = live.neighbour
    assert neighbour
    return row_of(OTHER, min(neighbour.prompt + before - live.prompt, len(neighbour.tokens) - 1))


def _not_rolled_back(state: bool, window: bool, live: Live) -> ReadView:
    """Return a view in which a round begins with what the one before left, as if its rejected drafts were right."""

    def entry(place: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        found = shadowed(live, at, wanted)
        if live.rejected is None or not window or not CONVOLUTIONS.has(place):
            return found
        late = (at < SPAN) & (at >= live.begin) & (wanted < live.begin)
        shifted = wanted + live.end + 1 - live.begin
        return np.where(late, np.where(shifted < live.first, shifted, row_of(live.rejected, 0) + shifted), found)

    def seen(place: ReadOp, at: int, before: int) -> int:
        if live.rejected is not None and at == row_of(live.rejected, live.first):
            return live.first - 1
        return row_of(live.rejected, live.end) if live.rejected is not None and state and at == live.begin else before

    return ReadView(entry=entry, state=seen)
