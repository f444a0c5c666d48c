"""Eager gated delta rule.

Letters and layout of channels as in eager_delta; `S` state slots, `T` packed tokens or rows of a norm, `R` sequences,
`A` allocated steps.
"""

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.arrays import in_range, wide, words
from draftproof.kernels.eager_delta import decay_and_beta, delta, mixed, rounded, rows_above
from draftproof.kernels.eager_state import PIECE, live_sequences
from draftproof.kernels.registry import register


@register("out", "states")
def gdn_verify(
    out: Tensor, states: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, ssm: Tensor,
    state_slots: Tensor,
) -> None:  # fmt: skip
    """Run rows qkv [B,W,Q] with gates a, b [B,W,U] from ssm[state_slots] of [S,U,H,E], which stays.

    out is [B,W,U,E]; states[b,t] of [>=B,A,U,H,E] is the state after token t. A slot outside [0,S): out is 0 and no
    state is written.
    """
    _verify(out, states, (qkv, a, b), a_log, dt_bias, ssm, state_slots, None)


@register("out", "states")
def gdn_verify_tree(
    out: Tensor, states: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, ssm: Tensor,
    state_slots: Tensor, parents: Tensor,
) -> None:  # fmt: skip
    """Run rows as gdn_verify, each from the state after its parent; parents [B,W-1] are for rows 1 ..

    Row 0, and a row with a parent that is not an earlier row, goes on from ssm[state_slots].
    """
    _verify(out, states, (qkv, a, b), a_log, dt_bias, ssm, state_slots, rows_above(parents))


def _verify(
    out: Tensor,
    states: Tensor,
    raw: tuple[Tensor, Tensor, Tensor],
    a_log: Tensor,
    dt_bias: Tensor,
    ssm: Tensor,
    state_slots: Tensor,
    above: np.ndarray | None,
) -> None:
    """Run rows raw, which are qkv, a and b, each from the one that above [B,W] names, if any does."""
    qkv, a, b = raw
    index, rows, first, second = state_slots.numpy(), words(qkv), words(a), words(b)
    count, tokens = rows.shape[:2]
    result, kept = words(out), words(states)[:count, :tokens]
    inside = in_range(index, ssm.shape[0])
    live = slice(None) if inside is None else inside
    if inside is not None:
        index, rows, first, second = index[inside], rows[inside], first[inside], second[inside]
        result[~inside] = 0
        above = None if above is None else above[inside]
    decay, beta = decay_and_beta(first, second, a.dtype, a_log, dt_bias)
    outputs, after = delta(words(ssm)[index], rows, qkv.dtype, decay, beta, above)
    kept[live] = after
    result[live] = rounded(outputs, out.dtype)


@register("out", "ssm", "checkpoint_ssm")
def gdn_update(
    out: Tensor, ssm: Tensor, checkpoint_ssm: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor,
    state_slots: Tensor, cu_seqlens: Tensor, checkpoint_slots: Tensor, checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Run packed sequences qkv [T,Q] with gates a, b [T,U] on ssm[state_slots[r]] of [S,U,H,E], in place.

    out is [T,U,E]. Sequence r has tokens cu_seqlens[r] .. cu_seqlens[r+1]-1. The state after its token
    checkpoint_steps[r], if it has that, also goes to checkpoint_ssm[checkpoint_slots[r]] of a pool [S,U,H,E] of its
    own. Where a state slot does not exist out is 0; a checkpoint slot that does not exist is skipped.
    """
    pool, result = words(ssm), words(out)
    rows, first, second = words(qkv), words(a), words(b)
    run = live_sequences(state_slots, cu_seqlens, ssm.shape[0], result)
    if not run.length:
        return
    row, target, step = run.targets(checkpoint_slots, checkpoint_steps, checkpoint_ssm.shape[0])
    state, longest = pool[run.slot], max(run.length)
    for start in range(0, longest, PIECE):
        token = run.places(start, min(start + PIECE, longest))
        decay, beta = decay_and_beta(first[token], second[token], a.dtype, a_log, dt_bias)
        outputs, after = delta(state, rows[token], qkv.dtype, decay, beta)
        run.put(result, token, rounded(outputs, out.dtype), start)
        state = after[:, -1]
        last = start + token.shape[1]
        ends = [i for i, length in enumerate(run.length) if start < length <= last]
        pool[[run.slot[i] for i in ends]] = after[ends, [run.length[i] - 1 - start for i in ends]]
        now = [j for j, s in enumerate(step) if start <= s < last]
        if now:
            words(checkpoint_ssm)[[target[j] for j in now]] = after[
                [row[j] for j in now], [step[j] - start for j in now]
            ]


@register("out")
def gated_norm(out: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,E] = x / sqrt(mean(x^2) + eps) * weight [E] * silu(z [T,E]), rounded once.

    In the ring it is mix(weight * x + z).
    """
    if out.dtype == torch.int64:
        out.numpy()[...] = mixed(weight.numpy() * x.numpy() + z.numpy())
        return
    dtype = wide(x.dtype)
    values = x.to(dtype)
    normed = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps) * weight
    out.copy_(normed * torch.nn.functional.silu(z.to(dtype)))
