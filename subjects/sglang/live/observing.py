"""Observations of one launch, from what SGLang's scheduler did with it and what its forwards were given.

`n` the context of a request before the round, `K` its drafts, `a` how many of them were right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.arrays import choice, vector
from draftproof.subjects.sglang.live.pools import EntryPool
from draftproof.subjects.sglang.live.serving import BatchedRow, RanBatch
from draftproof.subjects.sglang.live.taps import TappedForward


def read_entries(launch: RanBatch, target: EntryPool, draft: EntryPool) -> list[Observation]:
    """Return the entries that a launch committed, before its results are processed and pages given back."""
    rows = [row for row in launch.rows if not row.was_over]
    pools = (("commit.kv", target), ("extend.kv", draft))
    return [one for name, pool in pools for row in rows for one in _entries(name, row, pool)]


def of_launch(
    launch: RanBatch, steps: int, page_size: int, entries: list[Observation], draft_ids: np.ndarray | None
) -> Iterator[Observation]:
    """Yield everything that is known of a launch whose results have been processed.

    After its end nothing is extended for a request (S-LIMIT-10). `draft_ids` are the target's ids of the tokens that a
    draft of few tokens can propose.
    """
    ended = {row.one.index for row in launch.rows if row.ended}
    yield from (one for one in entries if one.channel == "commit.kv" or one.key.request not in ended)
    yield from _of_host(launch, steps, page_size)
    if launch.states:
        yield from _states(launch)
    starts = _starts(launch, steps)
    rows = [(row, start) for row, start in zip(launch.rows, starts, strict=True) if not row.was_over]
    if launch.is_prefill:
        yield from _first_choice(launch, rows)
        extend = launch.forward(is_draft=True, mode="EXTEND")
    else:
        yield from _verify(launch, rows, steps)
        yield from _draft_steps(launch, steps, draft_ids)
        extend = launch.forward(is_draft=True, mode="DRAFT_EXTEND")
    if extend is not None:
        yield from _extend(launch, rows, extend, draft_ids)


def _starts(launch: RanBatch, steps: int) -> list[int]:
    """Return where each request's rows begin in the forwards of a launch."""
    counts = [row.count if launch.is_prefill else steps + 1 for row in launch.rows]
    return [end - count for end, count in zip(accumulate(counts), counts, strict=True)]


def _of_host(launch: RanBatch, steps: int, page_size: int) -> Iterator[Observation]:
    # Rows of requests that had ended are nobody's: neither reported nor counted.
    for place, row in enumerate(row for row in launch.rows if not row.was_over):
        i, r = row.one.index, row.round
        count = row.count if row.is_prefill else steps
        yield Observation("round.rows", Key(i, r, step=row.chunk), BatchRow(place, count, int(r > 0), 0, launch.step))
        if row.is_prefill and not row.chunk:
            yield Observation("round.cached", Key(i, 0), row.first)
        if not row.is_last:
            continue
        for column, slot in enumerate(row.table[::page_size]):
            yield Observation("round.table", Key(i, r, row=column), int(slot) // page_size)
        yield Observation("accept.emitted", Key(i, r), row.emitted)
        if row.length is not None:
            yield Observation("commit.length", Key(i, r), row.length)
        if not row.is_prefill:
            yield Observation("accept.correct_len", Key(i, r), row.kept - 1)
            yield Observation("accept.index", Key(i, r), tuple(range(row.kept)))
            yield Observation("accept.bonus", Key(i, r), row.accepted[-1])


def _first_choice(launch: RanBatch, rows: list[tuple[BatchedRow, int]]) -> Iterator[Observation]:
    forward = launch.forward(is_draft=False, mode="EXTEND")
    if forward is None or (logits := forward.get("logits")) is None:
        return
    for row, _ in rows:
        if row.is_last:
            yield Observation("verify.choice", Key(row.one.index, 0, row=0), choice(logits[launch.rows.index(row)]))


def _verify(launch: RanBatch, rows: list[tuple[BatchedRow, int]], steps: int) -> Iterator[Observation]:
    forward = launch.forward(is_draft=False, mode="TARGET_VERIFY")
    if forward is None:
        return
    for row, start in rows:
        i, r = row.one.index, row.round
        drafts = tuple(int(token) for token in forward["ids"][start + 1 : start + steps + 1])
        yield Observation("propose.tokens", Key(i, r), row.proposed)
        yield Observation("round.drafts", Key(i, r), drafts)
        for place in range(steps + 1):
            key, at = Key(i, r, row=place), start + place
            yield from _given("verify", key, forward, at)
            if (hidden := forward.get("hidden")) is not None:
                yield Observation("verify.hidden", key, vector(hidden[at]))
            if (logits := forward.get("logits")) is not None:
                yield Observation("verify.choice", key, choice(logits[at]))


def _given(name: str, key: Key, forward: TappedForward, at: int) -> Iterator[Observation]:
    for what in ("ids", "positions", "slots"):
        if (values := forward.get(what)) is not None:
            yield Observation(f"{name}.{what}", key, int(values[at]))


def _draft_steps(launch: RanBatch, steps: int, ids: np.ndarray | None) -> Iterator[Observation]:
    forwards = [one for one in launch.forwards if one.is_draft and one.mode == "DECODE"]
    for step, forward in enumerate(forwards[: steps - 1], start=1):
        for place, row in enumerate(launch.rows):
            if row.was_over:
                continue
            key = Key(row.one.index, row.round, step=step)
            yield from _given("draft.step", key, forward, place)
            if (hidden := forward.get("hidden_in")) is not None:
                yield Observation("draft.step.hidden_in", key, vector(hidden[place]))
            if (logits := forward.get("logits")) is not None:
                yield Observation("draft.step.proposal", key, choice(logits[place], ids))


def _extend(
    launch: RanBatch, rows: list[tuple[BatchedRow, int]], forward: TappedForward, ids: np.ndarray | None
) -> Iterator[Observation]:
    hidden, logits = forward.get("hidden_in"), forward.get("logits")
    for row, start in rows:
        if row.ended:
            continue
        i, r = row.one.index, row.round
        for at in range(row.kept):
            key = Key(i, r, layer=0, row=row.first + at)
            yield from _given("extend", key, forward, start + at)
            if hidden is not None:
                yield Observation("extend.hidden_in", key, vector(hidden[start + at]))
        if logits is not None and row.is_last:
            last = launch.rows.index(row) if launch.is_prefill else start + row.kept - 1
            yield Observation("extend.proposal", Key(i, r, layer=0), choice(logits[last], ids))


def _states(launch: RanBatch) -> Iterator[Observation]:
    """Yield the recurrent states of a launch; a prefill leaves the state behind its last chunk alone."""
    for place, row in enumerate(launch.rows):
        if row.was_over or not row.is_last:
            continue
        i, r = row.one.index, row.round
        for layer, states in launch.states.items():
            yield Observation("commit.state", Key(i, r, layer=layer), vector(states[place]))
        if row.is_prefill:
            continue
        yield Observation("commit.step_index", Key(i, r), int(launch.step_indices[place]))
        for layer, states in launch.intermediate.items():
            for column, state in enumerate(states[place]):
                yield Observation("commit.intermediate", Key(i, r, layer=layer, row=column), vector(state))


def _entries(name: str, row: BatchedRow, pool: EntryPool) -> Iterator[Observation]:
    """Yield what a launch committed, and with a prompt's first chunk what a prefix cache served of it."""
    positions = np.arange(0 if row.is_prefill and not row.chunk else row.first, row.first + row.kept)
    for layer, entries in pool.read(row.slots[positions]):
        for position, entry in zip(positions, entries, strict=True):
            yield Observation(name, Key(row.one.index, row.round, layer=layer, row=int(position)), vector(entry))
