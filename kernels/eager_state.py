"""Eager convolutions with their windows, and moves of linear attention states.

`S` state slots, `B` rows of a launch, `W` tokens a row, `T` packed tokens, `R` sequences, `A` allocated steps, `L`
layers, `C` conv width, `Q` channels. A window holds the last C - 1 inputs of the convolution, oldest first.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from draftproof.kernels.arrays import in_range, words
from draftproof.kernels.eager_delta import convolve, near_inputs, rows_above, spans
from draftproof.kernels.registry import register

# Tokens of a packed sequence that run at once; longer ones run piece after piece.
PIECE = 64


@register("out", "windows")
def conv_verify(out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor) -> None:
    """Convolve rows x [B,W,Q] from the windows conv[state_slots] of a pool [S,C-1,Q], which stays.

    out [B,W,Q] = act(sum over j of weight[:,j] * input t - C + 1 + j), weight [Q,C]; windows[b,t] of [>=B,A,C-1,Q] is
    the window after token t. A slot outside [0,S): out is 0 and no window is written.
    """
    _verify(out, windows, x, conv, weight, state_slots, None)


@register("out", "windows")
def conv_verify_tree(
    out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor, parents: Tensor
) -> None:
    """Convolve rows as conv_verify, each behind the inputs of its ancestors; parents [B,W-1] are for rows 1 ..

    Row 0, and a row with a parent that is not an earlier row, comes behind conv[state_slots].
    """
    _verify(out, windows, x, conv, weight, state_slots, rows_above(parents))


def _verify(
    out: Tensor,
    windows: Tensor,
    x: Tensor,
    conv: Tensor,
    weight: Tensor,
    state_slots: Tensor,
    above: np.ndarray | None,
) -> None:
    index, rows = state_slots.numpy(), words(x)
    count, tokens = rows.shape[:2]
    result, kept = words(out), words(windows)[:count, :tokens]
    inside = in_range(index, conv.shape[0])
    if inside is not None:
        index, rows = index[inside], rows[inside]
        result[~inside] = 0
        above = None if above is None else above[inside]
    held = np.concatenate((words(conv)[index], rows), 1)
    near = near_inputs(held, weight.shape[1], above)
    live = slice(None) if inside is None else inside
    kept[live] = near[:, :, 1:]
    result[live] = convolve(near, weight)


@register("out", "conv", "checkpoint_conv")
def conv_update(
    out: Tensor, conv: Tensor, checkpoint_conv: Tensor, x: Tensor, weight: Tensor, state_slots: Tensor,
    cu_seqlens: Tensor, checkpoint_slots: Tensor, checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Convolve packed sequences x [T,Q] on their windows conv[state_slots[r]] of [S,C-1,Q], in place.

    Sequence r has tokens cu_seqlens[r] .. cu_seqlens[r+1]-1. The window after its token checkpoint_steps[r], if it has
    that, also goes to checkpoint_conv[checkpoint_slots[r]] of a pool [S,C-1,Q] of its own. Where a state slot does not
    exist out is 0; a checkpoint slot that does not exist is skipped.
    """
    pool, rows, result, width = words(conv), words(x), words(out), weight.shape[1]
    run = live_sequences(state_slots, cu_seqlens, conv.shape[0], result)
    if not run.length:
        return
    longest = max(run.length)
    place = run.places(0, longest)
    held = np.concatenate((pool[run.slot], rows[place]), 1)
    for start in range(0, longest, PIECE):
        tokens = min(PIECE, longest - start)
        outputs = convolve(held[:, start + spans(tokens, width)], weight)
        run.put(result, place[:, start : start + tokens], outputs, start)
    line, ends = np.arange(len(run.length))[:, None], np.array(run.length)[:, None]
    pool[run.slot] = held[line, ends + np.arange(width - 1)]
    row, target, step = run.targets(checkpoint_slots, checkpoint_steps, checkpoint_conv.shape[0])
    if row:
        words(checkpoint_conv)[target] = held[line[row], np.array(step)[:, None] + 1 + np.arange(width - 1)]


@dataclass(frozen=True)
class Packed:
    """The sequences that run: which ones, and slot, first token and length of each."""

    row: list[int]
    slot: list[int]
    begin: list[int]
    length: list[int]

    def places(self, start: int, end: int) -> np.ndarray:
        """Return where each sequence's tokens start .. end - 1 lie; beyond its end, its last one."""
        step = np.arange(start, end)
        if min(self.length) < end:
            return np.array(self.begin)[:, None] + np.minimum(step, np.array(self.length)[:, None] - 1)
        return np.array(self.begin)[:, None] + step

    def put(self, out: np.ndarray, place: np.ndarray, values: np.ndarray, start: int) -> None:
        """Write values of tokens start .. to their places, without those beyond a sequence's end."""
        end = start + place.shape[1]
        if min(self.length) < end:
            live = np.arange(start, end) < np.array(self.length)[:, None]
            place, values = place[live], values[live]
        out[place] = values

    def targets(
        self, checkpoint_slots: Tensor, checkpoint_steps: Tensor, size: int
    ) -> tuple[list[int], list[int], list[int]]:
        """Return which of the sequences that run have a checkpoint, its slots and its steps."""
        slots, steps = checkpoint_slots.tolist(), checkpoint_steps.tolist()
        chosen = [i for i, r in enumerate(self.row) if 0 <= steps[r] < self.length[i] and 0 <= slots[r] < size]
        return chosen, [slots[self.row[i]] for i in chosen], [steps[self.row[i]] for i in chosen]


def live_sequences(state_slots: Tensor, cu_seqlens: Tensor, size: int, out: np.ndarray) -> Packed:
    """Return the sequences that have tokens and a slot in [0, size); those with no such slot get zeros in `out`."""
    slot, first = state_slots.tolist(), cu_seqlens.tolist()
    row = []
    for r, number in enumerate(slot):
        if first[r + 1] > first[r]:
            if 0 <= number < size:
                row.append(r)
            else:
                out[first[r] : first[r + 1]] = 0
    return Packed(row, [slot[r] for r in row], [first[r] for r in row], [first[r + 1] - first[r] for r in row])


@register("pool")
def state_scatter(pool: Tensor, steps: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Copy steps[:, b, last_correct_step_indices[b]] to pool[:, state_slots[b]].

    pool is [L,S,...] and steps [L,R,A,...] with R >= B rows. Bits move unchanged. A slot outside [0,S) or a step
    outside [0,A) is skipped.
    """
    target, step = state_slots.numpy(), last_correct_step_indices.numpy()
    row = np.flatnonzero((target.view(np.uint64) < pool.shape[1]) & (step.view(np.uint64) < steps.shape[2]))
    words(pool)[:, target[row]] = words(steps)[:, row, step[row]]


@register("steps")
def checkpoint_steps(steps: Tensor, seq_lens: Tensor, num_tokens: Tensor, interval: int) -> None:
    """Find which of num_tokens[b] tokens after seq_lens[b] reaches the last multiple of interval; -1 if none does."""
    before, count = seq_lens.numpy(), num_tokens.numpy()
    after = before + count
    reached = after - after % interval
    steps.numpy()[...] = np.where((count > 0) & (reached > before), reached - before - 1, -1)


@register("cursor")
def replay_commit(cursor: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Set cursor[state_slots[b]] of [S,2] to (index + 1 pending tokens, the other half) where the index is >= 0."""
    index, last, held = state_slots.numpy(), last_correct_step_indices.numpy(), cursor.numpy()
    chosen = (last >= 0) & (index.view(np.uint64) < held.shape[0])
    index = index[chosen]
    half = 1 - held[index, 1]
    held[index, 0] = last[chosen] + 1
    held[index, 1] = half


@register("cursor")
def replay_rewind(cursor: Tensor, state_slots: Tensor) -> None:
    """Set cursor[state_slots[b]] of [S,2] to (0, the other half) where tokens are pending, once all layers flushed."""
    held = cursor.numpy()
    named = [slot for slot in state_slots.tolist() if 0 <= slot < held.shape[0]]
    index = [slot for slot, pending in zip(named, held[named, 0].tolist(), strict=True) if pending > 0]
    half = 1 - held[index, 1]
    held[index, 0] = 0
    held[index, 1] = half
