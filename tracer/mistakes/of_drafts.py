"""Mistakes of a draft, which change what is accepted and no token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import numpy as np

from draftproof.tracer.mistakes.changes import (
    NO_ROW,
    OF_DRAFT,
    Bools,
    Change,
    any_row,
    changed,
    missing,
    one_before,
    reading,
    shifted,
    skipped,
    within,
)
from draftproof.tracer.oracle import DRAFT_LAYER, SPAN, Numbers, ReadView, handed
from draftproof.tracer.program import TRUE, Program
from draftproof.tracer.simulated import OTHER, STALE, VOID, EngineMistake, Live, row_of

_POISON = ", of an entry that is no number until it is written"


def drafts(program: Program, prompt: int, width: int) -> Iterator[EngineMistake]:
    """Yield mistakes of a draft, which change what is accepted and no token."""
    for by, told in ((1, "ahead"), (-1, "behind")):
        where = _beyond if program.small else _chain
        name = f"draft positions one {told}"
        yield reading(name, name, partial(shifted, by, where), OF_DRAFT, any_row)
    if program.head:
        name = "draft positions and slots one ahead"
        for poisons, seen in ((False, _shifted_slots), (True, partial(_poisoned, _shifted_slots, _unwritten))):
            view = partial(changed, seen, OF_DRAFT, any_row)
            yield EngineMistake(name + _POISON * poisons, name, view, keeps_chain=1, poisons=poisons)
    for distance in (0, 1, 2, 3):
        for change, told in ((missing, "missing"), (one_before, "that of its neighbour before")):
            name = f"the draft's KV entry at distance {distance} {told}"
            yield reading(name, f"draft's KV entry {told}", partial(change, distance), OF_DRAFT, any_row)
    name = "draft cache a token short after a full accept"
    for told, seen in (("", _full_lost), (_POISON, partial(_poisoned, _full_lost, _full))):
        yield reading(name + told, name, seen, OF_DRAFT, any_row)
    for end in range(16, prompt, 16):
        name = f"the draft has not seen the prompt's first {end} tokens"
        yield reading(name, "draft has not seen a prefix", partial(within, 0, end, False), OF_DRAFT, any_row)
    for kept in (0, 1):
        name = f"the draft has not seen the prompt{', but its last token' * kept}"
        yield reading(name, "draft has not seen the prompt", partial(_prompt_unseen, kept), OF_DRAFT, any_row)
    for fewer in range(width):
        which = f"no draft behind the first {fewer} of a round" if fewer else "no draft"
        name = f"{which} is ever accepted"
        yield EngineMistake(name, "later drafts are never accepted", width=fewer, is_symptom=True)
    for most, what in ((1, "a prompt of one token"), (SPAN, "a prompt")):
        name = f"the step of {what} counted as a round of drafts"
        yield EngineMistake(name, name, counts_prompts=most)
    if program.small:
        name = "draft cache a token short after a full accept, what follows one place nearer"
        yield EngineMistake(name, name, draft_keeps=-1)
        name = "rejected draft kept in the draft's cache, what follows one place further"
        yield EngineMistake(name, name, draft_keeps=1)
        for number in range(len(program.small.layers)):
            yield EngineMistake(
                f"the draft's layer {number} skipped", "draft's layer skipped", partial(skipped, DRAFT_LAYER - number)
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
    yield _hidden("hidden state of another request", _of_other, reads_other=True)
    for behind in range(len(program.layers) - 1):
        yield EngineMistake(
            f"hidden state of layer {behind}", "hidden state of another layer", program=partial(_earlier, behind)
        )


def _beyond(live: Live, at: Numbers) -> Bools:
    return at > live.begin


def _chain(live: Live, at: Numbers) -> Bools:
    return at >= live.begin


def _shifted_slots(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return what a chain reads one ahead, where it writes, too: behind the text lies what was there before."""
    found = shifted(1, _chain, live, at, wanted)
    stale = (wanted + 1 == live.begin) & (at >= live.begin) & np.isin(live.begin, [*live.stale])
    return np.where(stale, row_of(STALE, live.begin), found)


def _unwritten(live: Live) -> set[int]:
    return {live.begin} - live.stale


def _full(live: Live) -> set[int]:
    return live.full


def _poisoned(hole: Change, unwritten: Callable[[Live], set[int]], live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the same where a row that sees an unwritten entry is worth nothing, whatever it reads."""
    return np.where(at >= min(unwritten(live), default=SPAN), row_of(VOID, 0), hole(live, at, wanted))


def _prompt_unseen(kept: int, live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return within(0, live.prompt - kept, False, live, at, wanted)


def _full_lost(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    return np.where(np.isin(wanted, [*live.full]), NO_ROW, wanted)


def _token(name: str, change: Change) -> EngineMistake:
    return EngineMistake(name, name, lambda live: ReadView(token=lambda at, wanted: change(live, at, wanted)))


def _hidden(name: str, change: Change, *, reads_other: bool = False) -> EngineMistake:
    def view(live: Live) -> ReadView:
        return ReadView(hidden=lambda at, wanted: change(live, at, wanted))

    return EngineMistake(name, name, view, reads_other=reads_other)


def _own_states(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    """Return the draft's own states for rows behind the prompt that the chain of the round before had."""
    is_chained = (at >= live.prompt) & (at < live.before + live.width - 1)
    return np.where(is_chained & (wanted >= 0), [handed(row - 1) for row in at.tolist()], wanted)


def _of_other(live: Live, at: Numbers, wanted: Numbers) -> Numbers:
    neighbour = live.neighbour
    assert neighbour
    place = np.minimum(neighbour.prompt + wanted - live.prompt, len(neighbour.tokens) - 1)
    return np.where((wanted >= live.prompt - 1) & (place >= 0), row_of(OTHER, 0) + place, wanted)


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
