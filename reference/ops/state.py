"""Naive twins of the ops on recurrent state; letters as in delta.py."""

import math

import torch
from torch import Tensor

from draftproof.reference.ops.arithmetic import mix, sigmoid, signed
from draftproof.reference.ops.delta import convolve, delta_rule, exact, is_ring, path_to


def conv_verify(out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor) -> None:
    """Convolve x [B,W,Q] after the window conv[state_slots[b]]; windows[b,t] of [R,A,C-1,Q] is that after token t."""
    for b, slot in enumerate(state_slots.tolist()):
        if not 0 <= slot < conv.shape[0]:
            out[b] = 0
            continue
        inputs = torch.cat((conv[slot], x[b]))
        out[b] = exact(convolve(inputs, weight), out)
        for t in range(x.shape[1]):
            windows[b, t] = inputs[t + 1 : t + weight.shape[1]]


def conv_verify_tree(
    out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor, parents: Tensor
) -> None:
    """Convolve each row as conv_verify, behind the rows on the way to it by the parents [B,W-1] of rows 1 .."""
    for b, slot in enumerate(state_slots.tolist()):
        if not 0 <= slot < conv.shape[0]:
            out[b] = 0
            continue
        for t in range(x.shape[1]):
            inputs = torch.cat((conv[slot], x[b, path_to(parents[b].tolist(), t)]))
            out[b, t] = exact(convolve(inputs[-weight.shape[1] :], weight)[0], out)
            windows[b, t] = inputs[1 - weight.shape[1] :]


def gdn_verify_tree(
    out: Tensor,
    states: Tensor,
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    ssm: Tensor,
    state_slots: Tensor,
    parents: Tensor,
) -> None:
    """Run each row as gdn_verify, after the rows on the way to it by the parents [B,W-1] of rows 1 .."""
    for row, slot in enumerate(state_slots.tolist()):
        if not 0 <= slot < ssm.shape[0]:
            out[row] = 0
            continue
        for t in range(qkv.shape[1]):
            path = path_to(parents[row].tolist(), t)
            tokens, *gates = (one[row, path].tolist() for one in (qkv, a, b))
            *_, (o, state) = delta_rule(ssm[slot].tolist(), tokens, gates[0], gates[1], a_log, dt_bias)
            out[row, t] = exact(o, out)
            states[row, t] = exact(state, states)


def gdn_verify(
    out: Tensor,
    states: Tensor,
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    ssm: Tensor,
    state_slots: Tensor,
) -> None:
    """Run qkv [B,W,Q] after ssm[state_slots[b]] [U,H,E]; states[b,t] of [R,A,U,H,E] is the one after token t."""
    for row, slot in enumerate(state_slots.tolist()):
        if not 0 <= slot < ssm.shape[0]:
            out[row] = 0
            continue
        gates = a[row].tolist(), b[row].tolist()
        steps = delta_rule(ssm[slot].tolist(), qkv[row].tolist(), *gates, a_log, dt_bias)
        for t, (o, state) in enumerate(steps):
            out[row, t] = exact(o, out)
            states[row, t] = exact(state, states)


def conv_update(
    out: Tensor,
    conv: Tensor,
    checkpoint_conv: Tensor,
    x: Tensor,
    weight: Tensor,
    state_slots: Tensor,
    cu_seqlens: Tensor,
    checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:
    """Convolve packed sequences x [T,Q] on conv[state_slots[r]], in place, with a copy after a step as checkpoint."""
    bounds = cu_seqlens.tolist()
    for r, slot in enumerate(state_slots.tolist()):
        first, last = bounds[r], bounds[r + 1]
        if not 0 <= slot < conv.shape[0]:
            out[first:last] = 0
        elif last > first:
            inputs = torch.cat((conv[slot], x[first:last]))
            out[first:last] = exact(convolve(inputs, weight), out)
            conv[slot] = inputs[last - first :]
            step, target = int(checkpoint_steps[r]), int(checkpoint_slots[r])
            if 0 <= step < last - first and 0 <= target < checkpoint_conv.shape[0]:
                checkpoint_conv[target] = inputs[step + 1 : step + weight.shape[1]]


def gdn_update(
    out: Tensor,
    ssm: Tensor,
    checkpoint_ssm: Tensor,
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state_slots: Tensor,
    cu_seqlens: Tensor,
    checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:
    """Run packed sequences qkv [T,Q] on ssm[state_slots[r]] [U,H,E], in place, with checkpoints as in conv_update."""
    bounds = cu_seqlens.tolist()
    for r, slot in enumerate(state_slots.tolist()):
        first, last = bounds[r], bounds[r + 1]
        if not 0 <= slot < ssm.shape[0]:
            out[first:last] = 0
            continue
        step, target = int(checkpoint_steps[r]), int(checkpoint_slots[r])
        tokens, *gates = (tensor[first:last].tolist() for tensor in (qkv, a, b))
        for t, (o, state) in enumerate(delta_rule(ssm[slot].tolist(), tokens, gates[0], gates[1], a_log, dt_bias)):
            out[first + t] = exact(o, out)
            if t == step and 0 <= target < checkpoint_ssm.shape[0]:
                checkpoint_ssm[target] = exact(state, checkpoint_ssm)
            if t == last - first - 1:
                ssm[slot] = exact(state, ssm)


def state_scatter(pool: Tensor, steps: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Copy steps[:,b,last_correct_step_indices[b]] [L,R,A,..] to pool[:,state_slots[b]] [L,S,..] if both exist."""
    for b, (slot, step) in enumerate(zip(state_slots.tolist(), last_correct_step_indices.tolist(), strict=True)):
        if 0 <= slot < pool.shape[1] and 0 <= step < steps.shape[2]:
            for layer in range(pool.shape[0]):
                pool[layer, slot] = steps[layer, b, step]


def checkpoint_steps(steps: Tensor, seq_lens: Tensor, num_tokens: Tensor, interval: int) -> None:
    """Set steps [B] to the row that reaches the last multiple of `interval` in (n, n+c], -1 if there is none."""
    for b, (length, count) in enumerate(zip(seq_lens.tolist(), num_tokens.tolist(), strict=True)):
        reached = [n for n in range(length + 1, length + count + 1) if n % interval == 0]
        steps[b] = reached[-1] - length - 1 if reached else -1


def gated_norm(out: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,E] = x / sqrt(mean of squares + eps) * weight [E] * silu(z); in the ring mix(weight * x + z)."""
    weights = weight.tolist()
    for m in range(x.shape[0]):
        values, gates = x[m].tolist(), z[m].tolist()
        if is_ring(x):
            row = [signed(mix(w * a + g)) for w, a, g in zip(weights, values, gates, strict=True)]
        else:
            root = math.sqrt(sum(value * value for value in values) / len(values) + eps)
            row = [a / root * w * g * sigmoid(g) for w, a, g in zip(weights, values, gates, strict=True)]
        out[m] = exact(row, out)
