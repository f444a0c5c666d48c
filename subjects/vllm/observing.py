"""Observations of one engine step, from what the scheduler decided and what the taps have seen.

`n` the context of a request before the step, `K` its drafts, `a` how many of them were right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.arrays import choice, vector
from draftproof.subjects.vllm.serving import Served
from draftproof.subjects.vllm.taps import Forward, StepSeen


@dataclass
class StepTurn:
    """What one request did in one engine step.

    `count` tokens were scheduled from position `first` on, `drafts` of them, in `width` rows, the rest of which vLLM
    throws away; `sampled` is what acceptance found, uncut.
    `pages` are its page table then, `name` what vLLM calls the request.
    """

    one: Served
    name: str
    first: int
    width: int
    count: int
    drafts: tuple[int, ...]
    pages: tuple[int, ...]
    round: int
    chunk: int
    sampled: tuple[int, ...] = ()
    emitted: tuple[int, ...] = ()
    context: int = 0
    ended: bool = False
    proposed: tuple[int, ...] = ()
    rows: slice = field(default_factory=lambda: slice(0, 0))

    @property
    def is_prefill(self) -> bool:
        return self.round == 0

    @property
    def kept(self) -> int:
        """How many of its rows hold tokens that were committed."""
        return self.count if self.is_prefill else len(self.sampled)


def of_host(turns: list[StepTurn], step: int) -> Iterator[Observation]:
    """Yield what the scheduler knows of a step: rows, tables, what was verified and accepted."""
    places = {False: 0, True: 0}
    for turn in turns:
        i, r = turn.one.index, turn.round
        count = turn.count if turn.is_prefill else len(turn.drafts)
        row = BatchRow(places[turn.is_prefill], count, int(not turn.is_prefill), 0, step)
        yield Observation("round.rows", Key(i, r, step=turn.chunk), row)
        places[turn.is_prefill] += 1
        if not turn.sampled:
            continue
        for column, page in enumerate(turn.pages):
            yield Observation("round.table", Key(i, r, row=column), page)
        yield Observation("accept.emitted", Key(i, r), turn.emitted)
        yield Observation("commit.length", Key(i, r), turn.context)
        if not turn.is_prefill:
            correct = len(turn.sampled) - 1
            yield Observation("round.drafts", Key(i, r), turn.drafts)
            yield Observation("propose.tokens", Key(i, r), turn.proposed[: len(turn.drafts)])
            yield Observation("accept.correct_len", Key(i, r), correct)
            yield Observation("accept.index", Key(i, r), tuple(range(correct + 1)))
            yield Observation("accept.bonus", Key(i, r), turn.sampled[-1])


def of_target(turns: list[StepTurn], seen: StepSeen) -> Iterator[Observation]:
    """Yield the rows of verify: ids, positions, slots, hidden states and choices."""
    if not seen.target:
        return
    forward, row = seen.target[0], 0
    for turn in turns:
        i, r = turn.one.index, turn.round
        width = 1 + turn.width - turn.count if turn.is_prefill else turn.width
        rows, row = slice(row, row + width), row + width
        logits = None if forward.logits is None else forward.logits[rows]
        states = forward.hidden[turn.rows] if forward.states is None else forward.states[rows]
        if turn.is_prefill:
            if logits is not None and turn.sampled:
                yield Observation("verify.choice", Key(i, 0, row=0), choice(logits[0]))
            continue
        yield from _rows("verify", forward, turn)
        for place in range(turn.count):
            yield Observation("verify.hidden", Key(i, r, row=place), vector(states[place]))
            if logits is not None:
                yield Observation("verify.choice", Key(i, r, row=place), choice(logits[place]))


def _rows(name: str, forward: Forward, turn: StepTurn) -> Iterator[Observation]:
    for place in range(turn.count):
        key, at = Key(turn.one.index, turn.round, row=place), turn.rows.start + place
        yield Observation(f"{name}.ids", key, int(forward.ids[at]))
        yield Observation(f"{name}.positions", key, int(forward.positions[at]))
        if forward.slots is not None:
            yield Observation(f"{name}.slots", key, int(forward.slots[at]))


def entries(name: str, layers: dict[int, Any], turn: StepTurn, page_size: int) -> Iterator[Observation]:
    """Yield the entries of the positions that a turn committed, read from the cache by the request's page table."""
    positions = np.arange(turn.first, turn.first + turn.kept)
    slots = np.array(turn.pages, dtype=np.int64)[positions // page_size] * page_size + positions % page_size
    for layer, cache in layers.items():
        for position, entry in zip(positions, cache.read(slots), strict=True):
            yield Observation(name, Key(turn.one.index, turn.round, layer=layer, row=int(position)), vector(entry))
