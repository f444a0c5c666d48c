"""Triton writes and moves of KV entries. `T` tokens, `S` pool slots, `N` KV heads, `H` head size of K or of V."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, kernel_for, power_of_two, strides

# What any probe has room in.
LEAST_N, LEAST_H = 4, 8
_STRIDES = ("s_kps", "s_kpn", "s_vps", "s_vpn", "s_kt", "s_kn", "s_vt", "s_vn")


@triton.jit(do_not_specialize=["size", "heads", "width", "s_ps", "s_pn", "s_xt", "s_xn", "s_it", "s_jt"])
def _copy_rows_kernel(
    p_pool, p_rows, p_index, p_other, size, heads, width, s_ps, s_pn, s_ph, s_xt, s_xn, s_xh, s_it, s_jt,
    TO_POOL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Copy row t between rows [T,N,H] and pool slot index[t]; nothing if index[t] or other[t] is outside [0,size)."""
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(p_index + i_t * s_it).to(tl.int64)
    other = tl.load(p_other + i_t * s_jt).to(tl.int64)
    heads = tl.where((slot >= 0) & (slot < size) & (other >= 0) & (other < size), heads, 0)
    o_n = tl.arange(0, BLOCK_N).to(tl.int64)[:, None]
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)[None, :]
    mask = (o_n < heads) & (o_h < width)
    p_entry = p_pool + slot * s_ps + o_n * s_pn + o_h * s_ph
    p_row = p_rows + i_t * s_xt + o_n * s_xn + o_h * s_xh
    if TO_POOL:
        tl.store(p_entry, tl.load(p_row, mask=mask), mask=mask)
    else:
        tl.store(p_row, tl.load(p_entry, mask=mask), mask=mask)


def _copy_rows(pool: Tensor, rows: Tensor, index: Tensor, other: Tensor, *, to_pool: bool) -> None:
    if rows.numel() == 0:
        return
    kernel_for(pool, _copy_rows_kernel)[(rows.shape[0],)](
        pool, rows, index, other, *pool.shape, *strides(pool, rows, index, other),
        TO_POOL=to_pool, BLOCK_N=power_of_two(pool.shape[1], LEAST_N), BLOCK_H=power_of_two(pool.shape[2], LEAST_H),
    )  # fmt: skip


@triton.jit(do_not_specialize=["size", "heads", "k_width", "v_width", "s_it", *_STRIDES])
def _kv_write_kernel(
    p_k_pool, p_v_pool, p_k, p_v, p_slot_mapping, size, heads, k_width, v_width, s_kps, s_kpn, s_kph, s_vps, s_vpn,
    s_vph, s_kt, s_kn, s_kh, s_vt, s_vn, s_vh, s_it,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Copy row t of k [T,N,Hk] and v [T,N,Hv] to slot slot_mapping[t] of the pools [S,N,H]."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(p_slot_mapping + i_t * s_it).to(tl.int64)
    # Only the stores are masked by the slot, so that the loads do not wait for it.
    stored = tl.where((slot >= 0) & (slot < size), heads, 0)
    o_n = tl.arange(0, BLOCK_N).to(tl.int64)[:, None]
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)[None, :]
    o_v = tl.arange(0, BLOCK_V).to(tl.int64)[None, :]
    k_mask = (o_n < heads) & (o_k < k_width)
    v_mask = (o_n < heads) & (o_v < v_width)
    b_k = tl.load(p_k + i_t * s_kt + o_n * s_kn + o_k * s_kh, mask=k_mask)
    b_v = tl.load(p_v + i_t * s_vt + o_n * s_vn + o_v * s_vh, mask=v_mask)
    tl.store(p_k_pool + slot * s_kps + o_n * s_kpn + o_k * s_kph, b_k, mask=k_mask & (o_n < stored))
    tl.store(p_v_pool + slot * s_vps + o_n * s_vpn + o_v * s_vph, b_v, mask=v_mask & (o_n < stored))


def kv_write(k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
    """Launch one program a token; see the eager function."""
    if slot_mapping.shape[0] == 0:
        return
    kernel_for(k_pool, _kv_write_kernel)[(slot_mapping.shape[0],)](
        k_pool, v_pool, k, v, slot_mapping, *k_pool.shape, v_pool.shape[2],
        *strides(k_pool, v_pool, k, v, slot_mapping),
        BLOCK_N=power_of_two(k_pool.shape[1], LEAST_N), BLOCK_K=power_of_two(k_pool.shape[2], LEAST_H),
        BLOCK_V=power_of_two(v_pool.shape[2], LEAST_H), **dependent_launch(k_pool.device),
    )  # fmt: skip


def kv_move(k_pool: Tensor, v_pool: Tensor, src: Tensor, dst: Tensor) -> None:
    """Gather into a temporary, then scatter, so that a slot may be both read and written; see the eager function."""
    for pool in (k_pool, v_pool):
        held = pool.new_empty((src.shape[0], *pool.shape[1:]))
        _copy_rows(pool, held, src, dst, to_pool=False)
        _copy_rows(pool, held, dst, src, to_pool=True)
