"""Eager gated delta rule from raw inputs. Letters and layout of channels as in eager_delta.

`S` state slots, `A` allocated steps.

Replay keeps, instead of states, the raw inputs of tokens that are committed and not yet folded into the base state. A
slot's cursor (m, h) says: m pending tokens in half h; the inputs of a half begin with the window before the first.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.arrays import words
from draftproof.kernels.eager_delta import convolve, decay_and_beta, delta, near_inputs, rounded, rows_above
from draftproof.kernels.registry import register


@register("out", "ssm", "inputs", "gates")
def gdn_replay(
    out: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, x: Tensor, a: Tensor, b: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor,
) -> None:  # fmt: skip
    """Fold each slot's pending tokens into its base state, then run rows x [B,W,Q] from there; keep neither.

    out is [B,W,U,E]; ssm [S,U,H,E]; inputs [2,S,C-1+A,Q]; gates [2,S,A,2,U]; a, b [B,W,U]; weight [Q,C]; cursor [S,2],
    which does not change. x is raw, convolved here. The other half gets the window after the folded tokens, then x, and
    the gates. A slot outside [0,S), or one whose cursor cannot be: out is 0 and nothing is written.
    """
    _replay(out, ssm, (inputs, gates), (x, a, b), (weight, a_log, dt_bias), cursor, state_slots, None)


@register("out", "ssm", "inputs", "gates")
def gdn_replay_tree(
    out: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, x: Tensor, a: Tensor, b: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor, parents: Tensor,
) -> None:  # fmt: skip
    """Run rows as gdn_replay, each behind its ancestors; parents [B,W-1] are for rows 1 ..

    Row 0, and a row with a parent that is not an earlier row, goes on from the folded state.
    """
    above = rows_above(parents)
    _replay(out, ssm, (inputs, gates), (x, a, b), (weight, a_log, dt_bias), cursor, state_slots, above)


def _replay(
    out: Tensor,
    ssm: Tensor,
    kept: tuple[Tensor, Tensor],
    raw: tuple[Tensor, Tensor, Tensor],
    model: tuple[Tensor, Tensor, Tensor],
    cursor: Tensor,
    state_slots: Tensor,
    above: np.ndarray | None,
) -> None:
    """Fold and go on: kept are inputs and gates, raw are x, a and b, model is weight, a_log and dt_bias."""
    (inputs, gates), (x, a, b), (weight, a_log, dt_bias) = kept, raw, model
    result, (row, index, pending, half) = words(out), _cursors(cursor, state_slots, gates.shape[2])
    every = len(row) == len(state_slots)
    if not every:
        result[...] = 0
    if not len(row):
        return
    tokens, window, allocated = x.shape[1], weight.shape[1] - 1, gates.shape[2]
    both, signals, pool, line = words(inputs), words(gates), words(ssm), np.arange(len(row))[:, None]
    held = np.empty((len(row), window + allocated + tokens, x.shape[2]), both.dtype)
    held[:, : window + allocated] = both[half, index]
    signal = np.empty((len(row), allocated + tokens, *signals.shape[3:]), signals.dtype)
    signal[:, :allocated] = signals[half, index]
    chosen = slice(None) if every else row
    held[:, window + allocated :] = words(x)[chosen]
    signal[:, allocated:, 0], signal[:, allocated:, 1] = words(a)[chosen], words(b)[chosen]
    signals[1 - half, index, :tokens] = signal[:, allocated:]
    # A row's own tokens come together: its pending ones, then the new ones behind all that a half has room for.
    counts = pending.tolist()
    longest = max(counts)
    place = np.array([_places(count, longest, window, allocated, tokens) for count in counts])
    held, signal = held[line, place], signal[line, place[:, window:] - window]
    after_pending = pending[:, None] + np.arange(window + tokens)
    both[1 - half, index, : window + tokens] = held[line, after_pending]
    behind = None if above is None else _behind_pending(above[chosen], pending, longest)
    outputs, after = _folded(pool[index], held, signal, gates.dtype, weight, a_log, dt_bias, behind)
    result[chosen] = rounded(outputs[line, after_pending[:, :tokens]], out.dtype)
    if longest:
        folded = pending.nonzero()[0]
        pool[index[folded]] = after[folded, pending[folded] - 1]


def _behind_pending(above: np.ndarray, pending: np.ndarray, longest: int) -> np.ndarray:
    """Return what each token goes on from, of the pending ones one after the other and the rows of a tree behind."""
    count, tokens = above.shape
    behind = np.broadcast_to(np.arange(longest + tokens) - 1, (count, longest + tokens)).copy()
    own = pending[:, None] + np.arange(tokens)
    behind[np.arange(count)[:, None], own] = pending[:, None] + above
    return behind


@lru_cache(maxsize=1024)
def _places(pending: int, longest: int, window: int, allocated: int, tokens: int) -> tuple[int, ...]:
    """Return where a row's window, pending and new tokens lie; beyond its own, the last one."""
    own, new = range(window + pending), range(window + allocated, window + allocated + tokens)
    return (*own, *new, *[new[-1]] * (longest - pending))


def _cursors(
    cursor: Tensor, state_slots: Tensor, allocated: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows that have a valid slot and a possible cursor, with slot, pending tokens and half of each."""
    size, named = cursor.shape[0], state_slots.tolist()
    row = [r for r, slot in enumerate(named) if 0 <= slot < size]
    entries = cursor.numpy()[[named[r] for r in row]].tolist()
    found = [
        (r, named[r], pending, half)
        for r, (pending, half) in zip(row, entries, strict=True)
        if 0 <= pending <= allocated and 0 <= half < 2
    ]
    columns = np.array(found, dtype=np.int64).reshape(-1, 4).T
    return columns[0], columns[1], columns[2], columns[3]


def _folded(
    state: np.ndarray,
    held: np.ndarray,
    signals: np.ndarray,
    dtype: torch.dtype,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    above: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and states of raw tokens: held [B,C-1+W,Q] with the window first, signals [B,W,2,U]."""
    near = near_inputs(held, weight.shape[1], above)
    decay, beta = decay_and_beta(signals[:, :, 0], signals[:, :, 1], dtype, a_log, dt_bias)
    return delta(state, convolve(near, weight), weight.dtype, decay, beta, above)


@register("ssm", "inputs")
def gdn_flush(
    ssm: Tensor, inputs: Tensor, cursor: Tensor, gates: Tensor, weight: Tensor, a_log: Tensor, dt_bias: Tensor,
    state_slots: Tensor,
) -> None:  # fmt: skip
    """Fold all pending tokens of the slots into their base states; the other half gets the window after them.

    Shapes as in gdn_replay. Where nothing is pending nothing changes; the cursor never does, see replay_rewind.
    """
    _, index, pending, half = _cursors(cursor, state_slots, gates.shape[2])
    some = pending > 0
    index, pending, half = index[some], pending[some], half[some]
    if not len(index):
        return
    both, line = words(inputs), np.arange(len(index))
    after = _pending_states(ssm, inputs, gates, weight, a_log, dt_bias, index, half, pending)
    words(ssm)[index] = after[line, pending - 1]
    place = pending[:, None] + np.arange(weight.shape[1] - 1)
    both[1 - half, index, : weight.shape[1] - 1] = both[half[:, None], index[:, None], place]


def _pending_states(
    ssm: Tensor,
    inputs: Tensor,
    gates: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    index: np.ndarray,
    half: np.ndarray,
    count: np.ndarray,
) -> np.ndarray:
    """Return the states [B,W,U,H,E] after each of the first count[b] tokens that the slots' halves hold.

    A row with fewer tokens than another runs its last one again, because memory behind it was never written.
    """
    own, window = np.minimum(np.arange(int(count.max())), count[:, None] - 1), weight.shape[1] - 1
    place = np.concatenate((np.broadcast_to(np.arange(window), (len(own), window)), own + window), 1)
    held = words(inputs)[half[:, None], index[:, None], place]
    signals = words(gates)[half[:, None], index[:, None], own]
    return _folded(words(ssm)[index], held, signals, gates.dtype, weight, a_log, dt_bias)[1]


@register("checkpoint_ssm", "checkpoint_conv")
def gdn_checkpoint(
    checkpoint_ssm: Tensor, checkpoint_conv: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor, checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Write the state and window after pending token checkpoint_steps[b] of state_slots[b] to checkpoint_slots[b].

    checkpoint_ssm [S,U,H,E] and checkpoint_conv [S,C-1,Q] are pools of their own; other shapes as in gdn_replay. A step
    that is not pending, and a checkpoint slot that does not exist, is skipped.
    """
    row, index, pending, half = _cursors(cursor, state_slots, gates.shape[2])
    step, target = checkpoint_steps.numpy()[row], checkpoint_slots.numpy()[row]
    chosen = (step >= 0) & (step < pending) & (target.view(np.uint64) < checkpoint_ssm.shape[0])
    index, half, step, target = index[chosen], half[chosen], step[chosen], target[chosen]
    if not len(index):
        return
    after = _pending_states(ssm, inputs, gates, weight, a_log, dt_bias, index, half, step + 1)
    words(checkpoint_ssm)[target] = after[np.arange(len(index)), step]
    place = step[:, None] + 1 + np.arange(weight.shape[1] - 1)
    words(checkpoint_conv)[target] = words(inputs)[half[:, None], index[:, None], place]


@register("inputs", "gates")
def replay_move(inputs: Tensor, gates: Tensor, cursor: Tensor, state_slots: Tensor, accept_index: Tensor) -> None:
    """Move what the last gdn_replay_tree kept of rows accept_index [B,P] of a slot to rows 0, 1, .., in every layer.

    inputs [L,2,S,C-1+A,Q] and gates [L,2,S,A,2,U]. The rows of b ascend and are followed by -1, where nothing moves;
    they are in the half that cursor[state_slots[b]] does not name. A slot outside [0,S), or one with a cursor that
    names no half, is skipped.
    """
    both, signals, held = words(inputs), words(gates), cursor.numpy()
    allocated = signals.shape[3]
    window = both.shape[3] - allocated
    for slot, rows in zip(state_slots.tolist(), accept_index.tolist(), strict=True):
        if not 0 <= slot < held.shape[0] or held[slot, 1] not in (0, 1):
            continue
        half = 1 - held[slot, 1]
        path = np.array([row for row in rows if 0 <= row < allocated], dtype=np.int64)
        both[:, half, slot, window : window + len(path)] = both[:, half, slot, window + path]
        signals[:, half, slot, : len(path)] = signals[:, half, slot, path]
