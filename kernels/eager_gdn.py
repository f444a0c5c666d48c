"""Eager gated delta rule. Letters and layout of channels as in eager_delta; `S` state slots, `T` packed tokens,
`R` sequences, `A` allocated steps, `M` rows of a norm.

Replay keeps, instead of states, the raw inputs of tokens that are committed and not yet folded into the base state. A
slot's cursor (m, h) says: m pending tokens in half h; the inputs of a half begin with the window before the first.
"""

import numpy as np
import torch

from draftproof.kernels.arrays import in_range, wide, words
from draftproof.kernels.eager_delta import convolve, decay_and_beta, delta, mixed, rounded, spans
from draftproof.kernels.eager_state import PIECE, packed, track_targets


def gdn_verify(
    out: torch.Tensor,
    states: torch.Tensor,
    qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    ssm: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Run rows qkv [B,W,D] with gates a, b [B,W,U] from ssm[slots] of [S,U,H,E], which keeps what it has.

    out is [B,W,U,E]; states[b,t] of [>=B,A,U,H,E] is the state after token t. A slot outside [0,S): out is 0 and no
    state is written.
    """
    index, rows, first, second = slots.numpy(), words(qkv), words(a), words(b)
    count, tokens = rows.shape[:2]
    result, kept, live = words(out), words(states)[:count, :tokens], slice(None)
    inside = in_range(index, ssm.shape[0])
    if inside is not None:
        index, rows, first, second, live = index[inside], rows[inside], first[inside], second[inside], inside
        result[~inside] = 0
    decay, beta = decay_and_beta(first, second, a.dtype, a_log, dt_bias)
    outputs, after = delta(words(ssm)[index], rows, qkv.dtype, decay, beta)
    kept[live] = after
    result[live] = rounded(outputs, out.dtype)


def gdn_update(
    out: torch.Tensor,
    ssm: torch.Tensor,
    track: torch.Tensor,
    qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    track_slots: torch.Tensor,
    track_steps: torch.Tensor,
) -> None:
    """Run packed sequences qkv [T,D] with gates a, b [T,U] from ssm[slots[r]] of [S,U,H,E], which move on in place.

    out is [T,U,E]. Sequence r has tokens starts[r] .. starts[r+1]-1. The state after its token track_steps[r], if it
    has that, also goes to track[track_slots[r]] of [S2,U,H,E]. A slot outside [0,S): out is 0; a track slot outside is
    skipped.
    """
    pool, result = words(ssm), words(out)
    rows, first, second = words(qkv), words(a), words(b)
    index, begin, length, chosen = packed(slots, starts, ssm.shape[0], result)
    if not len(index):
        return
    tracked, target, step = track_targets(track_slots, track_steps, chosen, length, track.shape[0])
    state, final, longest = pool[index], np.empty((len(index), *ssm.shape[1:]), pool.dtype), int(length.max())
    for start in range(0, longest, PIECE):
        place = np.arange(start, min(start + PIECE, longest))
        token = begin[:, None] + np.minimum(place, length[:, None] - 1)
        decay, beta = decay_and_beta(first[token], second[token], a.dtype, a_log, dt_bias)
        outputs, after = delta(state, rows[token], qkv.dtype, decay, beta)
        live, state = place < length[:, None], after[:, -1]
        result[token[live]] = rounded(outputs[live], out.dtype)
        ends = np.flatnonzero(_within(length - 1, start, len(place)))
        final[ends] = after[ends, length[ends] - 1 - start]
        now = _within(step, start, len(place))
        words(track)[target[now]] = after[tracked[now], step[now] - start]
    pool[index] = final


def _within(step: np.ndarray, start: int, count: int) -> np.ndarray:
    return (step >= start) & (step < start + count)


def gdn_replay(
    out: torch.Tensor,
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cursor: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Fold each slot's pending tokens into its base state, then run rows x [B,W,D] from there, without keeping that.

    out is [B,W,U,E]; ssm [S,U,H,E]; inputs [2,S,C-1+A,D]; gates [2,S,A,2,U]; a, b [B,W,U]; weight [D,C]; cursor [S,2],
    which does not change. x is raw, convolved here. The other half gets the window after the folded tokens, then x, and
    the gates. A slot outside [0,S), or one whose cursor cannot be: out is 0 and nothing is written.
    """
    result, (row, index, pending, half) = words(out), _cursors(cursor, slots, gates.shape[2])
    if len(row) < len(slots):
        result[...] = 0
    if not len(row):
        return
    tokens, width, allocated = x.shape[1], weight.shape[1], gates.shape[2]
    fresh, raw = words(x)[row], np.stack((words(a)[row], words(b)[row]), 2)
    both, longest, line = words(inputs), int(pending.max()), np.arange(len(row))[:, None]
    # A row's own tokens come together: its pending ones, then the new ones behind all that a half has room for.
    own = np.arange(longest + tokens)
    own = np.minimum(np.where(own < pending[:, None], own, own - pending[:, None] + allocated), allocated + tokens - 1)
    lead = np.broadcast_to(np.arange(width - 1), (len(row), width - 1))
    place = np.concatenate((lead, own + width - 1), 1)
    held = np.concatenate((both[half, index], fresh), 1)[line, place]
    signals = np.concatenate((words(gates)[half, index], raw), 1)[line, own]
    both[1 - half, index, : width - 1 + tokens] = held[line, pending[:, None] + np.arange(width - 1 + tokens)]
    words(gates)[1 - half, index, :tokens] = raw
    pool = words(ssm)
    outputs, after = _folded(pool[index], held, signals, gates.dtype, weight, a_log, dt_bias)
    result[row] = rounded(outputs[line, pending[:, None] + np.arange(tokens)], out.dtype)
    folded = np.flatnonzero(pending)
    pool[index[folded]] = after[folded, pending[folded] - 1]


def _cursors(
    cursor: torch.Tensor, slots: torch.Tensor, allocated: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows whose slot exists and whose cursor can be, with slot, pending tokens and half of each."""
    index, held = slots.numpy(), cursor.numpy()
    row = np.flatnonzero(index.view(np.uint64) < held.shape[0])
    index = index[row]
    pending, half = held[index].T
    sound = (pending >= 0) & (pending <= allocated) & (half.view(np.uint64) < 2)
    return (row, index, pending, half) if sound.all() else (row[sound], index[sound], pending[sound], half[sound])


def _folded(
    state: np.ndarray,
    held: np.ndarray,
    signals: np.ndarray,
    dtype: torch.dtype,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and states of raw tokens: held [B,C-1+W,D] with the window first, signals [B,W,2,U]."""
    near = held[:, spans(signals.shape[1], weight.shape[1])]
    decay, beta = decay_and_beta(signals[:, :, 0], signals[:, :, 1], dtype, a_log, dt_bias)
    return delta(state, convolve(near, weight), weight.dtype, decay, beta)


def gdn_flush(
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    cursor: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Fold all pending tokens of the slots into their base states; the other half gets the window after them.

    Shapes as in gdn_replay. Where nothing is pending nothing changes; the cursor never does, see replay_rewind.
    """
    _, index, pending, half = _cursors(cursor, slots, gates.shape[2])
    some = pending > 0
    index, pending, half = index[some], pending[some], half[some]
    if not len(index):
        return
    both, line = words(inputs), np.arange(len(index))
    after = _pending_states(ssm, inputs, gates, weight, a_log, dt_bias, index, half, int(pending.max()))
    words(ssm)[index] = after[line, pending - 1]
    place = pending[:, None] + np.arange(weight.shape[1] - 1)
    both[1 - half, index, : weight.shape[1] - 1] = both[half[:, None], index[:, None], place]


def _pending_states(
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    index: np.ndarray,
    half: np.ndarray,
    count: int,
) -> np.ndarray:
    """Return the states [B,W,U,H,E] after each of the first `count` tokens that the slots' halves hold."""
    held = words(inputs)[half, index, : weight.shape[1] - 1 + count]
    signals = words(gates)[half, index, :count]
    return _folded(words(ssm)[index], held, signals, gates.dtype, weight, a_log, dt_bias)[1]


def gdn_checkpoint(
    track_ssm: torch.Tensor,
    track_conv: torch.Tensor,
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cursor: torch.Tensor,
    slots: torch.Tensor,
    track_slots: torch.Tensor,
    steps: torch.Tensor,
) -> None:
    """Write the state after pending token steps[b] of slots[b] to track_ssm[track_slots[b]] and its window likewise.

    track_ssm is [S2,U,H,E], track_conv [S2,C-1,D]; other shapes as in gdn_replay. A step that is not pending, and a
    track slot that does not exist, is skipped.
    """
    row, index, pending, half = _cursors(cursor, slots, gates.shape[2])
    step, target = steps.numpy()[row], track_slots.numpy()[row]
    chosen = (step >= 0) & (step < pending) & (target.view(np.uint64) < track_ssm.shape[0])
    index, half, step, target = index[chosen], half[chosen], step[chosen], target[chosen]
    if not len(index):
        return
    after = _pending_states(ssm, inputs, gates, weight, a_log, dt_bias, index, half, int(step.max()) + 1)
    words(track_ssm)[target] = after[np.arange(len(index)), step]
    place = step[:, None] + 1 + np.arange(weight.shape[1] - 1)
    words(track_conv)[target] = words(inputs)[half[:, None], index[:, None], place]


def gated_norm(out: torch.Tensor, x: torch.Tensor, z: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """out [M,E] = x / sqrt(mean(x^2) + eps) * weight [E] * silu(z [M,E]), rounded once; ring: mix(weight * x + z)."""
    if out.dtype == torch.int64:
        out.numpy()[...] = mixed(weight.numpy() * x.numpy() + z.numpy())
        return
    dtype = wide(x.dtype)
    values = x.to(dtype)
    normed = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps) * weight
    out.copy_(normed * torch.nn.functional.silu(z.to(dtype)))
