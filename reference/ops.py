"""A naive twin of every kernel, of the same name and signature, from the definitions alone.

Those of recurrent state are in ops_state.py and ops_replay.py, and found here too. The judge of kernel contracts; the
oracle itself never imports them. Loops over tokens, heads and positions, floats in Python's float64, the ring in Python
integers modulo 2^64, one rounding at the end where the definition has one.
`T` tokens, `S` pool slots, `N` KV heads, `H` head size, `D` width, `R` rows, `W` verify width, `V` vocabulary.
"""

import itertools
import math

import torch

from draftproof.reference.ops_arithmetic import GOLDEN, MODULUS, mix, rounded, signed
from draftproof.reference.ops_replay import (
    gdn_checkpoint,
    gdn_flush,
    gdn_replay,
    replay_commit,
    replay_rewind,
)
from draftproof.reference.ops_state import (
    checkpoint_steps,
    conv_update,
    conv_verify,
    gated_norm,
    gdn_update,
    gdn_verify,
    state_scatter,
)

__all__ = [
    "add_rms_norm",
    "assign_slots",
    "checkpoint_steps",
    "conv_update",
    "conv_verify",
    "gated_norm",
    "gdn_checkpoint",
    "gdn_flush",
    "gdn_replay",
    "gdn_update",
    "gdn_verify",
    "greedy_accept",
    "greedy_choice",
    "kv_move",
    "kv_write",
    "linear_add",
    "narrow_linear",
    "norm_gate_up",
    "norm_linear",
    "paged_attention",
    "replay_commit",
    "replay_rewind",
    "ring_linear",
    "ring_mix",
    "rms_norm",
    "rope",
    "silu_mul",
    "state_scatter",
]


def kv_write(k_pool: torch.Tensor, v_pool: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
    """Write each row to its slot in [S,N,H]; a slot that does not exist is skipped."""
    for t, slot in enumerate(slots.tolist()):
        if 0 <= slot < k_pool.shape[0]:
            k_pool[slot] = k[t]
            v_pool[slot] = v[t]


def kv_move(k_pool: torch.Tensor, v_pool: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    """pool[dst] = pool[src] as the pools [S,N,H] were before; a row with an index that does not exist is skipped."""
    size = k_pool.shape[0]
    for pool in (k_pool, v_pool):
        before = pool.clone()
        for source, target in zip(src.tolist(), dst.tolist(), strict=True):
            if 0 <= source < size and 0 <= target < size:
                pool[target] = before[source]


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    table: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Each token attends to what its row's table holds of positions 0 .. its own; see `_attend` for the weights."""
    group = q.shape[1] // k_pool.shape[1]
    for t, (row, position) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
        slots = _visible_slots(table, row, position, page_size, k_pool.shape[0])
        for head in range(q.shape[1]):
            keys = [k_pool[slot, head // group].tolist() for slot in slots]
            values = [v_pool[slot, head // group].tolist() for slot in slots]
            attend = _attend_ring if out.dtype == torch.int64 else _attend
            mixed = attend(q[t, head].tolist(), keys, values, scale, out.shape[2])
            out[t, head] = torch.tensor(mixed, dtype=torch.int64 if out.dtype == torch.int64 else torch.float64)


def _visible_slots(table: torch.Tensor, row: int, position: int, page_size: int, size: int) -> list[int]:
    if not 0 <= row < table.shape[0]:
        return []
    entries = table[row].tolist()
    slots = []
    for p in range(min(position + 1, len(entries) * page_size)):
        entry = entries[p // page_size]
        slot = entry * page_size + p % page_size
        if entry >= 0 and slot < size:
            slots.append(slot)
    return slots


def _attend(
    query: list[float], keys: list[list[float]], values: list[list[float]], scale: float, width: int
) -> list[float]:
    """Softmax of scale * q.k, in float64."""
    if not keys:
        return [0.0] * width
    scores = [scale * math.fsum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    return [math.fsum(w * value[e] for w, value in zip(weights, values, strict=True)) / total for e in range(width)]


def _attend_ring(
    query: list[int], keys: list[list[int]], values: list[list[int]], scale: float, width: int
) -> list[int]:
    """The sum of (mix(q.k) | 1) * v modulo 2^64: odd weights, since an even one would lose bits of v."""
    weights = [mix(sum(a * b for a, b in zip(query, key, strict=True)) % MODULUS) | 1 for key in keys]
    return [signed(sum(w * value[e] for w, value in zip(weights, values, strict=True))) for e in range(width)]


def rms_norm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """out [T,D] = x / sqrt(mean of squares + eps), rounded to x's dtype unless weight's is wider, then times weight."""
    weights = weight.tolist()
    for t in range(x.shape[0]):
        values = x[t].tolist()
        divisor = math.sqrt(math.fsum(value * value for value in values) / len(values) + eps)
        normed = [value / divisor for value in values]
        if weight.dtype == x.dtype:
            normed = [rounded(value, x.dtype) for value in normed]
        scaled = [a * b for a, b in zip(normed, weights, strict=True)]
        out[t] = torch.tensor(scaled, dtype=torch.float64)


def add_rms_norm(out: torch.Tensor, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """residual += x, rounded to residual's dtype; out = rms_norm(residual)."""
    residual.copy_(residual.double() + x.double())
    rms_norm(out, residual, weight, eps)


def silu_mul(out: torch.Tensor, gate_up: torch.Tensor) -> None:
    """out [T,D] = gate / (1 + exp(-gate)) * up; gate_up [T,2D] holds the gate first."""
    width = out.shape[1]
    for t in range(out.shape[0]):
        values = gate_up[t].tolist()
        gated = [gate / (1.0 + math.exp(-gate)) * up for gate, up in zip(values[:width], values[width:], strict=True)]
        out[t] = torch.tensor(gated, dtype=torch.float64)


def rope(q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, inv_freq: torch.Tensor) -> None:
    """Rotate pairs (i, i + h) of q and k [T,N,H] by the angle position * inv_freq [h], a float32 unless q is float64.

    Components from 2h on stay.
    """
    half = inv_freq.shape[0]
    for t, position in enumerate(positions.tolist()):
        angles = [position * frequency for frequency in inv_freq.tolist()]
        if q.dtype != torch.float64:
            angles = [rounded(angle, torch.float32) for angle in angles]
        for heads in (q, k):
            for n in range(heads.shape[1]):
                x = heads[t, n].tolist()
                pairs = [(x[i], x[i + half], math.cos(angles[i]), math.sin(angles[i])) for i in range(half)]
                turned = [a * c - b * s for a, b, c, s in pairs] + [b * c + a * s for a, b, c, s in pairs]
                heads[t, n, : 2 * half] = torch.tensor(turned, dtype=torch.float64)


def assign_slots(
    positions: torch.Tensor,
    slots: torch.Tensor,
    table: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    counts: torch.Tensor,
    page_size: int,
    max_len: int,
) -> None:
    """Positions and slots [R,W] of verify rows: live up to counts[r], then surplus; a negative count is padding."""
    entries = table.tolist()
    for r, (row, length, count) in enumerate(zip(rows.tolist(), lengths.tolist(), counts.tolist(), strict=True)):
        for i in range(positions.shape[1]):
            position, slot = length + i, 0
            if count < 0:
                position = 0
            elif i > count:
                position = min(position, max_len - 1)
            else:
                slot = _slot_of(entries, row, position, page_size)
            positions[r, i] = position
            slots[r, i] = slot


def _slot_of(entries: list[list[int]], row: int, position: int, page_size: int) -> int:
    """Return the slot that the table gives to a position, or -1 if it gives none."""
    page = position // page_size
    if not 0 <= row < len(entries) or not 0 <= page < len(entries[row]) or entries[row][page] < 0:
        return -1
    return entries[row][page] * page_size + position % page_size


def greedy_accept(
    correct_len: torch.Tensor, bonus: torch.Tensor, ids: torch.Tensor, choice: torch.Tensor, counts: torch.Tensor
) -> None:
    """correct_len = the largest a <= count with d_i = y_{i-1} for all 1 <= i <= a; bonus = y_a; ids are t_n, d_1, .."""
    for r, count in enumerate(counts.tolist()):
        if count < 0:
            correct_len[r], bonus[r] = -1, 0
            continue
        agreed = 0
        while agreed < min(count, ids.shape[1] - 1) and ids[r, agreed + 1] == choice[r, agreed]:
            agreed += 1
        correct_len[r], bonus[r] = agreed, choice[r, agreed]


def greedy_choice(choice: torch.Tensor, logits: torch.Tensor) -> None:
    """choice[t] = the lowest id among the highest of logits [T,V]; NaN loses to every number, 0 if all are NaN."""
    for t in range(logits.shape[0]):
        values = logits[t].tolist()
        numbers = [(-value, i) for i, value in enumerate(values) if value == value]
        choice[t] = min(numbers)[1] if numbers else 0


def ring_mix(out: torch.Tensor, x: torch.Tensor, salt: int) -> None:
    """out = mix(x + salt * golden ratio) modulo 2^64, elementwise."""
    for index in itertools.product(*(range(size) for size in x.shape)):
        out[index] = signed(mix((int(x[index]) + salt * GOLDEN) % MODULUS))


def ring_linear(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """out [T,O] = x [T,I] @ weight [O,I].T modulo 2^64."""
    for t in range(out.shape[0]):
        for o in range(out.shape[1]):
            products = (a * b for a, b in zip(x[t].tolist(), weight[o].tolist(), strict=True))
            out[t, o] = signed(sum(products))


def narrow_linear(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """out [T,O] = x [T,I] @ weight [O,I].T."""
    for t in range(x.shape[0]):
        sums = [_dot(x[t].tolist(), weight[o].tolist()) for o in range(weight.shape[0])]
        out[t] = torch.tensor(sums, dtype=torch.float64)


def norm_linear(out: torch.Tensor, x: torch.Tensor, norm: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """out = rms_norm(x) @ weight.T, the norm rounded to x's dtype."""
    normed = torch.empty_like(x)
    rms_norm(normed, x, norm, eps)
    narrow_linear(out, normed, weight)


def norm_gate_up(out: torch.Tensor, x: torch.Tensor, norm: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """out [T,O] = silu_mul(norm_linear(x)) with weight [2O,I]; the product before the gate is rounded to x's dtype."""
    both = x.new_empty((x.shape[0], weight.shape[0]))
    norm_linear(both, x, norm, weight, eps)
    silu_mul(out, both)


def linear_add(residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """residual += x @ weight.T, the product rounded to residual's dtype first."""
    product = torch.empty_like(residual)
    narrow_linear(product, x, weight)
    residual.copy_(residual.double() + product.double())


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(left * right for left, right in zip(a, b, strict=True))
