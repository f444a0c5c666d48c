"""Arithmetic of a linear attention layer for the naive twins: the causal convolution and the gated delta rule.

`S` state slots, `B` rows of a launch, `W` verify width, `T` packed tokens, `R` sequences, `A`
allocated steps, `L` layers, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` conv width,
`Q` channels, 2*N*H + U*E: all queries, then all keys, then all values. The window before a token is the C-1 inputs
before it, oldest first.
Tensors of int64 are elements of the ring modulo 2^64; floats are computed in float64.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from draftproof.reference.ops.arithmetic import mix, rounded, sigmoid, signed, softplus

Vector = list[float]
Matrix = list[Vector]
State = list[Matrix]


def is_ring(tensor: Tensor) -> bool:
    """Return whether a tensor holds elements of the ring."""
    return tensor.dtype == torch.int64


def exact(values: list, like: Tensor) -> Tensor:
    """Return values unrounded: int64 where `like` is of the ring, float64 else."""
    return torch.tensor(values, dtype=torch.int64 if is_ring(like) else torch.float64)


def convolve(inputs: Tensor, weight: Tensor) -> Matrix:
    """Return [T,Q] of inputs [C-1+T,Q], which begin with the window: after the activation, in inputs' dtype."""
    width, ring = weight.shape[1], is_ring(inputs)
    rows, taps = inputs.tolist(), weight.tolist()
    outputs: Matrix = []
    for t in range(len(rows) - width + 1):
        sums = [sum(taps[c][j] * rows[t + j][c] for j in range(width)) for c in range(len(taps))]
        outputs.append(
            [signed(mix(y)) for y in sums] if ring else rounded([y * sigmoid(y) for y in sums], inputs.dtype)
        )
    return outputs


def delta_rule(
    state: State, tokens: Matrix, a: Matrix, b: Matrix, a_log: Tensor, dt_bias: Tensor
) -> Iterator[tuple[Matrix, State]]:
    """Yield out [U,E] and the state [U,H,E] after each of tokens [T,Q]; a, b [T,U] are the raw gates.

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
    """Return one value head's output [E] and state [H,E] after a token, unreduced in the ring."""
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


def path_to(parents: list[int], row: int) -> list[int]:
    """Return the rows from the root of a tree down to `row`.

    `parents` has the parents of rows 1, ..; a parent that is not an earlier row ends the path there.
    """
    above = parents[row - 1] if row else -1
    return [*(path_to(parents, above) if 0 <= above < row else []), row]
