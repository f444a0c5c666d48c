"""What the gated delta rule's Triton kernels share: one token's arithmetic, floats or ring, and the shape of a tile.

`B` rows of a launch, `U` value heads, `H` key size, `E` value size, `C` conv width.

A program holds the tile [H, BLOCK_E] of one row's and value head's state in registers, over all its tokens; columns of
a state never meet, so nothing goes between programs.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import mix, power_of_two

NORM_EPS = tl.constexpr(1e-6)
# (columns of a tile, warps, programs from which on it is fastest): measured on a GPU of 132 multiprocessors.
# Of the ring: what any probe has room in.
_RING_TILE, _LEAST_H = 16, 8
CONSTANT_SIZES = ("group", "keys", "k_width", "v_width")
"""Arguments of a kernel that are constants where it is compiled for floats, and free where it is for the ring."""
_TILES = ((64, 4, 2048), (32, 1, 528), (16, 1, 0))


@triton.jit
def widened(x, RING: tl.constexpr):
    """Return x in the dtype of arithmetic."""
    if RING:
        return x
    else:
        return x.to(tl.float32)


@triton.jit
def row_above(p_parents, row, s_parent):
    """Return the row that a row of a tree goes on from, by parents [W-1] of rows 1 ..; -1 for none.

    A parent that is not an earlier row counts as none.
    """
    parent = tl.load(p_parents + (row - 1) * s_parent, mask=row > 0, other=-1).to(tl.int64)
    return tl.where((parent >= 0) & (parent < row), parent, -1)


@triton.jit
def replayed_row(
    p_state_slots, p_cursor, p_targets, p_steps, i_b, size, kept_size, allocated, s_slot, s_cs, s_cm, s_target, s_step,
    TRACK: tl.constexpr,
):  # fmt: skip
    """Return slot, target, pending tokens and half of a row; pending is -1 where the row takes no part."""
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    known = (slot >= 0) & (slot < size)
    pending = tl.load(p_cursor + slot * s_cs, mask=known, other=-1).to(tl.int64)
    half = tl.load(p_cursor + slot * s_cs + s_cm, mask=known, other=-1).to(tl.int64)
    known = known & (pending >= 0) & (pending <= allocated) & (half >= 0) & (half < 2)
    kept = slot
    if TRACK:
        kept = tl.load(p_targets + i_b * s_target).to(tl.int64)
        step = tl.load(p_steps + i_b * s_step).to(tl.int64)
        known = known & (kept >= 0) & (kept < kept_size) & (step >= 0) & (step < pending)
        pending = step + 1
    return slot, kept, tl.where(known, pending, -1), half


@triton.jit
def places_in_tree(p_parents, row, o_c, s_parent, WINDOW: tl.constexpr):
    """Return where the taps o_c of a row's convolution are among window and rows; in a chain they are at row + o_c.

    These are its nearest ancestors and itself, and behind row 0 the end of the window.
    """
    token = tl.where(o_c == WINDOW, row, -1)
    above, depth = row, row * 0
    for step in tl.static_range(WINDOW):
        above = row_above(p_parents, above, s_parent)
        token = tl.where(o_c == WINDOW - 1 - step, above, token)
        depth += tl.where(above >= 0, 1, 0)
    return tl.where(token >= 0, WINDOW + token, o_c + depth)


@triton.jit
def tile_offsets(o_h, o_e, s_h, s_e, v_width, PACKED: tl.constexpr):
    """Return the offsets of a tile; for a packed state they are constants, which take no registers."""
    if PACKED:
        return o_h[:, None] * v_width + o_e[None, :]
    else:
        return o_h[:, None] * s_h + o_e[None, :] * s_e


@triton.jit
def convolved(b_taps, b_weight, RING: tl.constexpr):
    """Return act(sum over axis 0 of taps * weight), rounded to the dtype of the taps and widened again."""
    return widened(activated(tl.sum(widened(b_taps, RING) * widened(b_weight, RING), 0), b_taps.dtype, RING), RING)


@triton.jit
def activated(b_sum, dtype: tl.constexpr, RING: tl.constexpr):
    """Return act(sum) in the dtype of the inputs."""
    if RING:
        return mix(b_sum)
    else:
        return (b_sum / (1.0 + tl.exp(-b_sum))).to(dtype)


@triton.jit
def gate(a, b, a_log, dt_bias, RING: tl.constexpr):
    """Return decay and beta of a value head."""
    if RING:
        return mix(a_log * (a + dt_bias)) | 1, mix(b) | 1
    else:
        step = a + dt_bias
        step = tl.where(step > 20.0, step, tl.log(1.0 + tl.exp(step)))
        return tl.exp(-tl.exp(a_log) * step), 1.0 / (1.0 + tl.exp(-b))


@triton.jit
def unit(b_x, RING: tl.constexpr):
    """Return a key or query of length 1; in the ring as it is."""
    if RING:
        return b_x
    else:
        return b_x * tl.rsqrt(tl.sum(b_x * b_x, 0) + NORM_EPS)


@triton.jit
def fold_token(b_state, b_k, b_v, decay, beta, RING: tl.constexpr):
    """Return state [H, BLOCK_E] after one token whose output is not needed."""
    b_k = unit(b_k, RING)
    b_write = beta * (b_v - decay * tl.sum(b_state * b_k[:, None], 0))
    return decay * b_state + b_k[:, None] * b_write[None, :]


@triton.jit
def directions(b_q, b_k, scale, RING: tl.constexpr):
    """Return query and key of length 1, the query scaled, and their product: what a token needs except the state."""
    b_q, b_k = unit(b_q, RING), unit(b_k, RING)
    if not RING:
        b_q = b_q * scale
    return b_q, b_k, tl.sum(b_k * b_q, 0)


@triton.jit
def delta_step(b_state, b_q, b_k, near, b_v, decay, beta):
    """Return state [H, BLOCK_E] and output after one token of these directions.

    Both sums over the old state come first, side by side: S^T q of the new one is decay * S^T q + (k . q) * w.
    """
    b_held = tl.sum(b_state * b_k[:, None], 0)
    b_read = tl.sum(b_state * b_q[:, None], 0)
    b_write = beta * (b_v - decay * b_held)
    return decay * b_state + b_k[:, None] * b_write[None, :], decay * b_read + near * b_write


@triton.jit
def delta_token(b_state, b_q, b_k, b_v, decay, beta, scale, RING: tl.constexpr):
    """Return state [H, BLOCK_E] and output after one token."""
    b_q, b_k, near = directions(b_q, b_k, scale, RING)
    return delta_step(b_state, b_q, b_k, near, b_v, decay, beta)


@dataclass(frozen=True)
class Tile:
    """Columns of a state that a program holds, rows padded, and warps."""

    block_e: int
    block_h: int
    warps: int


def is_packed(*states: Tensor) -> bool:
    """Return whether all states [..., H, E] of floats have their rows one after the other."""
    return states[0].is_floating_point() and all(state.stride()[-2:] == (state.shape[-1], 1) for state in states)


def inner_sizes(state: Tensor, channels: int) -> tuple[int, int, int, int]:
    """Return SIZES: value heads to a key head, channels of all keys, key and value size, of state [S,U,H,E]."""
    heads, k_width, v_width = state.shape[1:]
    keys = (channels - heads * v_width) // 2
    return heads * k_width // keys, keys, k_width, v_width


def constants(state: Tensor, sizes: tuple[int, int, int, int]) -> dict[str, int]:
    """Return the constants that are compiled in for SIZES: 0 for the ring, whose kernel takes any sizes."""
    ring = not state.is_floating_point()
    return {name.upper(): 0 if ring else size for name, size in zip(CONSTANT_SIZES, sizes, strict=True)}


def tile_of(rows: int, state: Tensor) -> Tile:
    """Return the tile for `rows` rows of state [S,U,H,E]: narrow where wide ones would leave the GPU idle."""
    heads, size, width = state.shape[1:]
    if not state.is_floating_point():
        return _ring_tile(size)
    most = power_of_two(width)
    block, warps = next(
        (min(block, most), warps) for block, warps, least in _TILES if rows * heads * triton.cdiv(width, block) >= least
    )
    return Tile(block, power_of_two(size), warps)


def fold_tile(state: Tensor, tokens: float) -> Tile:
    """Return the tile for state [S,U,H,E] of a program that runs `tokens` tokens and stores no state between them.

    With many tokens arithmetic takes longer than memory, and narrow tiles leave room for more warps.
    """
    size, width = state.shape[2:]
    if not state.is_floating_point():
        return _ring_tile(size)
    return Tile(min(32 if tokens <= 2 else 16, power_of_two(width)), power_of_two(size), 1)


def _ring_tile(size: int) -> Tile:
    return Tile(_RING_TILE, power_of_two(size, _LEAST_H), 1)
