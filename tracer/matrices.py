"""Operations as matrices: a bit is 1 or -1 in a dimension of its own, and so is every dimension that nobody wrote.

So the root mean square of a row is 1, norms change nothing, and an operation adds 0 to a dimension, or -2. All entries
but those of queries and keys are powers of two or small multiples, exact in every precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.tracer.kernel import DistanceKernel
from draftproof.tracer.program import TRUE, BitHead, CopyHead, Table

Matrix = NDArray[np.float64]
GATE = 64.0
"""What a gate is where all its literals hold; where one does not, it is that much below 0 at least."""
CODES = tuple(16.0 + 2.0**k for k in range(-3, 5))
"""The weights of the output bits: no two bytes have the same logit, whatever penalties do to the first."""


def signs(bits: NDArray[Any]) -> Matrix:
    """Return 1 for bits that are 1, else -1."""
    return 2.0 * bits - 1.0


def queries_and_keys(
    copies: Sequence[CopyHead], first: int, kernel: DistanceKernel, head_dim: int, rotary: int, width: int
) -> tuple[Matrix, Matrix, Matrix, int]:
    """Return the queries of every copy [heads, head_dim, width], their keys [head_dim, width], and the lanes' weights.

    Without the weights a query has a length of 1 in each of so many pairs of lanes (the last of what is returned) and
    in one lane for the first row; a key in each of those pairs, and that of the first row is as long. So norms of
    queries and of keys divide by a constant.
    """
    half, lane = rotary // 2, np.arange(rotary // 2)
    is_spare = rotary == head_dim
    sink, used = (half - 1, half - 1) if is_spare else (rotary, half)
    lane = lane[:used]
    key = np.zeros((head_dim, width))
    key[lane, TRUE], key[lane, first] = 0.5, -0.5
    key[sink, [TRUE, first]] = 0.5 * used**0.5
    queries = np.zeros((len(copies), head_dim, width))
    for query, copy in zip(queries, copies, strict=True):
        query[sink, TRUE] = 1.0
        # A bit of `select` is 1 or -1: half of the sum of all, and of each.
        for distance, chosen in zip(copy.distances, copy.select or (None,), strict=True):
            turned = np.concatenate([f(kernel.frequencies[:used] * distance) for f in (np.cos, lambda x: -np.sin(x))])
            where = np.concatenate([lane, half + lane])
            if chosen is None:
                query[where, TRUE] += turned
            else:
                query[where, TRUE] += turned / 2
                query[where, chosen] += turned / 2
    weights = np.zeros(head_dim)
    weights[lane] = weights[half + lane] = (kernel.scale * head_dim**0.5 * kernel.amplitudes[:used]) ** 0.5
    weights[sink] = (kernel.scale * head_dim**0.5 * (1 - kernel.valley / 2) / used**0.5) ** 0.5
    return queries, key, weights, used


def values_and_outputs(copies: Sequence[CopyHead], groups: int, head_dim: int, width: int) -> tuple[Matrix, Matrix]:
    """Return the values [groups * head_dim, width] of the key-value heads, and the output projection."""
    each = len(copies) // groups
    values, outputs = np.zeros((groups, head_dim, width)), np.zeros((width, len(copies), head_dim))
    for group in range(groups):
        lanes: dict[int, int] = {}
        for number in range(group * each, (group + 1) * each):
            for source, target in zip(copies[number].sources, copies[number].targets, strict=True):
                outputs[target, number, lanes.setdefault(source, len(lanes))] = 1.0
        for source, lane in lanes.items():
            values[group, lane, source], values[group, lane, TRUE] = 1.0, -1.0
    return values.reshape(-1, width), outputs.reshape(width, -1)


def mlp(tables: Sequence[Table], units: int, width: int, route: Sequence[int] = ()) -> tuple[Matrix, Matrix, Matrix]:
    """Return gate, up and down: a unit for every line of every table, or for those lines that begin with a route."""
    gates, ups, downs = [], [], []
    for table in tables:
        inputs = table.inputs[len(route) :]
        for line, value in enumerate(table.values):
            digits = [line >> k & 1 for k in range(len(table.inputs))]
            if digits[: len(route)] != list(route):
                continue
            gate, up, down = np.zeros(width), np.zeros(width), np.zeros(width)
            gate[list(inputs)] = GATE * (2.0 * np.array(digits[len(route) :]) - 1.0)
            gate[TRUE] -= GATE * (len(inputs) - 1)
            up[table.lead] = (1 if value else -1) / GATE
            up[table.target if table.again else TRUE] -= 1 / GATE
            down[table.target] = 1.0
            for below, times in ((0.0, 2.0), (GATE / 2, -2.0)) if table.firm else ((0.0, 1.0),):
                if up.any():
                    gates.append(gate - below * (np.arange(width) == TRUE))
                    ups.append(times * up)
                    downs.append(down)
    matrices = np.zeros((3, units, width))
    for matrix, lines in zip(matrices, (gates, ups, downs), strict=True):
        matrix[: len(lines)] = np.array(lines).reshape(-1, width)
    return matrices[0], matrices[1], matrices[2].T


def head_matrix(outputs: Sequence[int], vocabulary: int, width: int) -> Matrix:
    """Return the lm_head: a row of weights with signs for each byte, and of ids that are not emitted what is least."""
    matrix, count = np.zeros((vocabulary, width)), 1 << len(outputs)
    digits = np.arange(count)[:, None] >> np.arange(len(outputs)) & 1
    matrix[:count, list(outputs)] = np.array(CODES) * signs(digits)
    matrix[count:, TRUE] = -sum(CODES)
    return matrix


def tied_weights(outputs: Sequence[int], embedded: Sequence[int], width: int) -> Matrix:
    """Return the weights of the last norm with which the embedding is such a head: for a byte the last bit is 0."""
    weights = np.zeros(width)
    weights[list(outputs)] = CODES
    weights[embedded[len(outputs) + 1]] = min(CODES)
    return weights


def joined(head: BitHead, width: int) -> Matrix:
    """Return the projection [width, 2 * width] of a draft, of an embedding and a state side by side."""
    matrix = np.zeros((width, 2 * width))
    taken = [*head.embedded] + [(to, width + source) for to, source in head.handed]
    matrix[:, TRUE] = 1.0
    for to, source in taken:
        matrix[to, TRUE], matrix[to, source] = 0.0, 1.0
    matrix[list(head.zeros), TRUE] = -1.0
    return matrix


def of_features(head: BitHead, writers: dict[int, int], width: int) -> Matrix:
    """Return the projection [width, 3 * width] of an EAGLE-3 head: a bit is taken of the layer that writes it."""
    matrix = np.zeros((width, 3, width))
    matrix[:, 2, TRUE] = 1.0
    for to, source in head.handed:
        matrix[to, 2, TRUE] = 0.0
        matrix[to, writers.get(source, 0), source] = 1.0
    return matrix.reshape(width, -1)
