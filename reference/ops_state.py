"""Naive twins of the ops on recurrent state: gated delta nets (GDN) and their causal convolution.

`S` state slots, `B` rows of a launch, `W` verify width, `T` packed tokens, `R` sequences or rows of a pool, `A`
allocated steps, `L` layers, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` conv width,
`D` = 2*N*H + U*E channels: all queries, then all keys, then all values. The window before a token is the C-1 inputs
before it, oldest first.
Tensors of int64 are elements of the ring modulo 2^64; floats are computed in float64.
"""

import math
from collections.abc import Iterator

import torch

from draftproof.reference.ops_arithmetic import mix, rounded, sigmoid, signed, softplus

Vector = list[float]
Matrix = list[Vector]
State = list[Matrix]


def is_ring(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds elements of the ring."""
    return tensor.dtype == torch.int64


def exact(values: list, like: torch.Tensor) -> torch.Tensor:
    """Return values unrounded: int64 where `like` is of the ring, float64 else."""
    return torch.tensor(values, dtype=torch.int64 if is_ring(like) else torch.float64)


def convolve(inputs: torch.Tensor, weight: torch.Tensor) -> Matrix:
    """inputs [C-1+T,D], of which the first C-1 are the window before: [T,D] after the activation, in inputs' dtype."""
    width, ring = weight.shape[1], is_ring(inputs)
    rows, taps = inputs.tolist(), weight.tolist()
    outputs = []
    for t in range(len(rows) - width + 1):
        sums = [sum(taps[c][j] * rows[t + j][c] for j in range(width)) for c in range(len(taps))]
        outputs.append([signed(mix(y)) if ring else rounded(y * sigmoid(y), inputs.dtype) for y in sums])
    return outputs


def delta_rule(
    state: State,
    tokens: Matrix,
    a: Matrix,
    b: Matrix,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
) -> Iterator[tuple[Matrix, State]]:
    """After each of tokens [T,D] yield out [U,E] and the state [U,H,E]; a, b [T,U] are the raw gates.

    S = decay S; w = beta (v - S^T k); S += k w^T; out = S^T q.
    """
    heads, height, width = len(state), len(state[0]), len(state[0][0])
    keys = (len(tokens[0]) - heads * width) // (2 * height) if tokens else 0
    ring = is_ring(a_log)
    for token, a_t, b_t in zip(tokens, a, b, strict=True):
        out: Matrix = []
        after: State = []
        for u in range(heads):
            n = u * keys // heads
            q = token[n * height : (n + 1) * height]
            k = token[(keys + n) * height : (keys + n + 1) * height]
            v = token[2 * keys * height + u * width :][:width]
            if not ring:
                q, k = [x * height**-0.5 for x in _unit(q)], _unit(k)
            decay, beta = _gates(a_t[u], b_t[u], a_log[u].item(), dt_bias[u].item(), ring)
            o, s = _step(state[u], q, k, v, decay, beta)
            out.append([_reduced(x, ring) for x in o])
            after.append([[_reduced(x, ring) for x in row] for row in s])
        state = after
        yield out, state


def _reduced(x: float, ring: bool) -> float:
    return signed(int(x)) if ring else x


def _step(s: Matrix, q: Vector, k: Vector, v: Vector, decay: float, beta: float) -> tuple[Vector, Matrix]:
    """One token of one value head, unreduced in the ring: its output [E] and the state [H,E] after it."""
    s = [[decay * x for x in row] for row in s]
    w = [beta * (v[e] - sum(k[h] * s[h][e] for h in range(len(k)))) for e in range(len(v))]
    s = [[s[h][e] + k[h] * w[e] for e in range(len(v))] for h in range(len(k))]
    return [sum(q[h] * s[h][e] for h in range(len(q))) for e in range(len(v))], s


def _unit(vector: Vector) -> Vector:
    divisor = math.sqrt(sum(x * x for x in vector) + 1e-6)
    return [x / divisor for x in vector]


def _gates(a: float, b: float, a_log: float, dt_bias: float, ring: bool) -> tuple[float, float]:
    """Return decay and beta; in the ring both are odd, since an even factor would lose bits."""
    if ring:
        return mix(int(a_log * (a + dt_bias))) | 1, mix(int(b)) | 1
    return math.exp(-math.exp(a_log) * softplus(a + dt_bias)), sigmoid(b)


def conv_verify(
    out: torch.Tensor,
    windows: torch.Tensor,
    x: torch.Tensor,
    conv: torch.Tensor,
    weight: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """out [B,W,D] of x [B,W,D] after the window conv[slots[b]]; windows [R,A,C-1,D] at [b,t] is that after token t."""
    for b, slot in enumerate(slots.tolist()):
        if not 0 <= slot < conv.shape[0]:
            out[b] = 0
            continue
        inputs = torch.cat((conv[slot], x[b]))
        out[b] = exact(convolve(inputs, weight), out)
        for t in range(x.shape[1]):
            windows[b, t] = inputs[t + 1 : t + weight.shape[1]]


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
    """out [B,W,U,E] of qkv [B,W,D] after ssm[slots[b]] [U,H,E]; states [R,A,U,H,E] at [b,t] is that after token t."""
    for row, slot in enumerate(slots.tolist()):
        if not 0 <= slot < ssm.shape[0]:
            out[row] = 0
            continue
        gates = a[row].tolist(), b[row].tolist()
        steps = delta_rule(ssm[slot].tolist(), qkv[row].tolist(), *gates, a_log, dt_bias)
        for t, (o, state) in enumerate(steps):
            out[row, t] = exact(o, out)
            states[row, t] = exact(state, states)


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
    """out [T,D] of the packed sequences x [T,D]; conv[slots[r]] moves on, track[track_slots[r]] is it after a step."""
    bounds = starts.tolist()
    for r, slot in enumerate(slots.tolist()):
        first, last = bounds[r], bounds[r + 1]
        if not 0 <= slot < conv.shape[0]:
            out[first:last] = 0
        elif last > first:
            inputs = torch.cat((conv[slot], x[first:last]))
            out[first:last] = exact(convolve(inputs, weight), out)
            conv[slot] = inputs[last - first :]
            step, target = int(track_steps[r]), int(track_slots[r])
            if 0 <= step < last - first and 0 <= target < track.shape[0]:
                track[target] = inputs[step + 1 : step + weight.shape[1]]


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
    """out [T,U,E] of the packed sequences qkv [T,D]; ssm[slots[r]] [U,H,E] and track as in conv_update."""
    bounds = starts.tolist()
    for r, slot in enumerate(slots.tolist()):
        first, last = bounds[r], bounds[r + 1]
        if not 0 <= slot < ssm.shape[0]:
            out[first:last] = 0
            continue
        step, target = int(track_steps[r]), int(track_slots[r])
        tokens, *gates = (tensor[first:last].tolist() for tensor in (qkv, a, b))
        for t, (o, state) in enumerate(delta_rule(ssm[slot].tolist(), tokens, gates[0], gates[1], a_log, dt_bias)):
            out[first + t] = exact(o, out)
            if t == step and 0 <= target < track.shape[0]:
                track[target] = exact(state, track)
            if t == last - first - 1:
                ssm[slot] = exact(state, ssm)


def state_scatter(
    pool: torch.Tensor, steps: torch.Tensor, slots: torch.Tensor, last_correct_step_indices: torch.Tensor
) -> None:
    """pool [L,S,..] at [:,slots[b]] = steps [L,R,A,..] at [:,b,last_correct_step_indices[b]], where both exist."""
    for b, (slot, step) in enumerate(zip(slots.tolist(), last_correct_step_indices.tolist(), strict=True)):
        if 0 <= slot < pool.shape[1] and 0 <= step < steps.shape[2]:
            for layer in range(pool.shape[0]):
                pool[layer, slot] = steps[layer, b, step]


def checkpoint_steps(steps: torch.Tensor, lengths: torch.Tensor, counts: torch.Tensor, interval: int) -> None:
    """steps [B] = the row after which the last multiple of `interval` in (n, n+c] is reached, -1 if there is none."""
    for b, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        reached = [n for n in range(length + 1, length + count + 1) if n % interval == 0]
        steps[b] = reached[-1] - length - 1 if reached else -1


def gated_norm(out: torch.Tensor, x: torch.Tensor, z: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """out [M,E] = x / sqrt(mean of squares + eps) * weight [E] * silu(z); in the ring mix(weight * x + z)."""
    weights = weight.tolist()
    for m in range(x.shape[0]):
        values, gates = x[m].tolist(), z[m].tolist()
        if is_ring(x):
            row = [signed(mix(w * a + g)) for w, a, g in zip(weights, values, gates, strict=True)]
        else:
            root = math.sqrt(sum(value * value for value in values) / len(values) + eps)
            row = [a / root * w * g * sigmoid(g) for w, a, g in zip(weights, values, gates, strict=True)]
        out[m] = exact(row, out)
