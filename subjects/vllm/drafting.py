"""Observations of the drafter: the extend after a round, and the draft steps for the next one.

`R` requests, `T` rows of the first forward, `n` the context after the round that was extended.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.arrays import choice, vector
from draftproof.subjects.vllm.observing import StepTurn
from draftproof.subjects.vllm.taps import Forward, StepSeen


class UnknownRowsError(DraftproofError, RuntimeError):
    """A forward of the drafter whose rows cannot be told apart; the message has the counts."""


def extends(turns: list[StepTurn], seen: StepSeen, *, hidden: bool) -> Iterator[Observation]:
    """Yield the entries that the first forward of the drafter made of committed tokens.

    A drafter that sees `hidden` states has the rows of the target's forward, one ahead; a language model of its own has
    one more a request, the first draft step of the next round.
    """
    if not seen.drafter:
        return
    forward = seen.drafter[0]
    for place, (turn, start) in enumerate(zip(turns, _starts(turns, forward, hidden), strict=True)):
        if turn.ended:
            continue
        i, r = turn.one.index, turn.round
        for row in range(turn.kept):
            at, key = start + row, Key(i, r, layer=0, row=turn.first + row)
            yield Observation("extend.ids", key, int(forward.ids[at]))
            yield Observation("extend.positions", key, int(forward.positions[at]))
            if forward.slots is not None:
                yield Observation("extend.slots", key, int(forward.slots[at]))
            given = forward.hidden_in if seen.features is None else seen.features
            if hidden and given is not None:
                yield Observation("extend.hidden_in", key, vector(given[at]))
        if hidden and turn.sampled and forward.logits is not None:
            yield Observation("extend.proposal", Key(i, r, layer=0), choice(forward.logits[place]))


def steps(turns: list[StepTurn], seen: StepSeen, *, hidden: bool) -> Iterator[tuple[StepTurn, int, list[Observation]]]:
    """Yield, for each request that goes on, draft step 1, 2, .. of its next round and what was observed of it."""
    forwards = seen.drafter
    if not hidden and forwards:
        starts = _starts(turns, forwards[0], hidden)
        rows = [start + turn.kept for start, turn in zip(starts, turns, strict=True)]
        yield from _step(turns, forwards[0], rows, 1, hidden=False)
    for number, forward in enumerate(forwards[1:], start=1 if hidden else 2):
        yield from _step(turns, forward, list(range(len(turns))), number, hidden=hidden)


def _step(
    turns: list[StepTurn], forward: Forward, rows: list[int], number: int, *, hidden: bool
) -> Iterator[tuple[StepTurn, int, list[Observation]]]:
    for place, (turn, row) in enumerate(zip(turns, rows, strict=True)):
        if turn.ended or not turn.sampled:
            continue
        key = Key(turn.one.index, turn.round + 1, step=number)
        seen = [
            Observation("draft.step.ids", key, int(forward.ids[row])),
            Observation("draft.step.positions", key, int(forward.positions[row])),
        ]
        if forward.slots is not None:
            seen.append(Observation("draft.step.slots", key, int(forward.slots[row])))
        if hidden and forward.hidden_in is not None:
            seen.append(Observation("draft.step.hidden_in", key, vector(forward.hidden_in[row])))
        if forward.logits is not None:
            seen.append(Observation("draft.step.proposal", key, choice(forward.logits[place])))
        yield turn, number, seen


def _starts(turns: list[StepTurn], forward: Forward, hidden: bool) -> list[int]:
    """Return where each request's rows begin: padded to all that was verified, or only what was accepted."""
    more = 0 if hidden else 1
    for counts in ([turn.width + more for turn in turns], [turn.kept + more for turn in turns]):
        if sum(counts) == len(forward.ids):
            return [sum(counts[:place]) for place in range(len(turns))]
    raise UnknownRowsError(
        f"the drafter ran {len(forward.ids)} rows: expected {sum(turn.width + more for turn in turns)} or"
        f" {sum(turn.kept + more for turn in turns)} for {len(turns)} requests"
    )
