"""Eager convolutions with their windows, and moves of linear attention states.

`S` state slots, `B` rows, `W` tokens a row, `T` packed tokens, `R` sequences, `A` allocated steps, `L` layers, `C` conv
width, `D` channels. A window holds the last C - 1 inputs of the convolution, oldest first.
"""

import numpy as np
import torch

from draftproof.kernels.arrays import in_range, words
from draftproof.kernels.eager_delta import convolve, spans

# Tokens of a packed sequence that run at once; longer ones run piece after piece.
PIECE = 64


def conv_verify(
    out: torch.Tensor,
    windows: torch.Tensor,
    x: torch.Tensor,
    conv: torch.Tensor,
    weight: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Convolve rows x [B,W,D] from the windows conv[slots] of a pool [S,C-1,D] that keeps what it has.

    out [B,W,D] = act(sum over j of weight[:,j] * input t - C + 1 + j), weight [D,C]; windows[b,t] of [>=B,A,C-1,D] is
    the window after token t. A slot outside [0,S): out is 0 and no window is written.
    """
    index, rows = slots.numpy(), words(x)
    count, tokens = rows.shape[:2]
    result, kept = words(out), words(windows)[:count, :tokens]
    inside = in_range(index, conv.shape[0])
    if inside is not None:
        index, rows = index[inside], rows[inside]
        result[~inside] = 0
    held = np.concatenate((words(conv)[index], rows), 1)
    near = held[:, spans(tokens, weight.shape[1])]
    live = slice(None) if inside is None else inside
    kept[live] = near[:, :, 1:]
    result[live] = convolve(near, weight)


def conv_update(
    out: torch.Tensor,
    conv: torch.Tensor,
    track: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    track_slots: torch.Tensor,
    track_steps: torch.Tensor,
) -> None:
    """Convolve packed sequences x [T,D] from their windows conv[slots[r]] of [S,C-1,D], which move on in place.

    Sequence r has tokens starts[r] .. starts[r+1]-1. The window after its token track_steps[r], if it has that, also
    goes to track[track_slots[r]] of [S2,C-1,D]. A slot outside [0,S): out is 0; a track slot outside is skipped.
    """
    pool, rows, result, width = words(conv), words(x), words(out), weight.shape[1]
    index, begin, length, chosen = packed(slots, starts, conv.shape[0], result)
    if not len(index):
        return
    longest = int(length.max())
    place = begin[:, None] + np.minimum(spans(1, longest), length[:, None] - 1)
    held = np.concatenate((pool[index], rows[place]), 1)
    row = np.arange(len(index))[:, None]
    for start in range(0, longest, PIECE):
        tokens = min(PIECE, longest - start)
        near = held[:, start + spans(tokens, width)]
        live = start + spans(1, tokens) < length[:, None]
        result[place[:, start : start + tokens][live]] = convolve(near, weight)[live]
    pool[index] = held[row, length[:, None] + spans(1, width - 1)]
    tracked, target, step = track_targets(track_slots, track_steps, chosen, length, track.shape[0])
    if len(tracked):
        words(track)[target] = held[tracked[:, None], step[:, None] + 1 + spans(1, width - 1)]


def packed(
    slots: torch.Tensor, starts: torch.Tensor, size: int, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | slice]:
    """Return slot, first token and length of the sequences that run, and which they are.

    Sequences without tokens do not run; those whose slot is outside [0, size) do not either, and get zeros in `out`.
    """
    index, first = slots.numpy(), starts.numpy()
    begin, length = first[:-1], np.diff(first)
    inside = in_range(index, size)
    if inside is None and length.min(initial=1) > 0:
        return index, begin, length, slice(None)
    runs = length > 0 if inside is None else inside & (length > 0)
    for start, end in zip(begin[~runs], begin[~runs] + length[~runs], strict=True):
        out[start:end] = 0
    return index[runs], begin[runs], length[runs], runs


def track_targets(
    track_slots: torch.Tensor, track_steps: torch.Tensor, chosen: np.ndarray | slice, length: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which of the sequences that run are tracked, their track slots and the steps of theirs."""
    target, step = track_slots.numpy()[chosen], track_steps.numpy()[chosen]
    tracked = np.flatnonzero((step >= 0) & (step < length) & (target.view(np.uint64) < size))
    return tracked, target[tracked], step[tracked]


def state_scatter(
    pool: torch.Tensor, steps: torch.Tensor, slots: torch.Tensor, last_correct_step_indices: torch.Tensor
) -> None:
    """pool[:, slots[b]] = steps[:, b, last_correct_step_indices[b]] for pool [L,S,...] and steps [L,>=B,A,...].

    Bits move unchanged. A slot outside [0,S) or a step outside [0,A) is skipped.
    """
    target, step = slots.numpy(), last_correct_step_indices.numpy()
    row = np.flatnonzero((target.view(np.uint64) < pool.shape[1]) & (step.view(np.uint64) < steps.shape[2]))
    words(pool)[:, target[row]] = words(steps)[:, row, step[row]]


def checkpoint_steps(steps: torch.Tensor, lengths: torch.Tensor, counts: torch.Tensor, interval: int) -> None:
    """steps[b] = which of counts[b] tokens after lengths[b] reaches the last multiple of interval; -1 if none does."""
    before, count = lengths.numpy(), counts.numpy()
    after = before + count
    reached = after - after % interval
    steps.numpy()[...] = np.where((count > 0) & (reached > before), reached - before - 1, -1)


def replay_commit(cursor: torch.Tensor, slots: torch.Tensor, last_correct_step_indices: torch.Tensor) -> None:
    """cursor[slots[b]] of [S,2] = (index + 1 pending tokens, the other half), for an index that is not negative."""
    index, last, held = slots.numpy(), last_correct_step_indices.numpy(), cursor.numpy()
    chosen = (last >= 0) & (index.view(np.uint64) < held.shape[0])
    index = index[chosen]
    half = 1 - held[index, 1]
    held[index, 0] = last[chosen] + 1
    held[index, 1] = half


def replay_rewind(cursor: torch.Tensor, slots: torch.Tensor) -> None:
    """cursor[slots[b]] of [S,2] = (0, the other half) where tokens are pending: once after all layers' flushes."""
    index, held = slots.numpy(), cursor.numpy()
    index = index[index.view(np.uint64) < held.shape[0]]
    index = index[held[index, 0] > 0]
    held[index] = np.stack((np.zeros_like(index), 1 - held[index, 1]), 1)
