"""Eager writes and moves of KV entries. `T` tokens, `S` pool slots, `N` KV heads, `H` head size of K or of V."""

from torch import Tensor

from draftproof.kernels.arrays import in_range, words
from draftproof.kernels.registry import register


@register("k_pool", "v_pool")
def kv_write(k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
    """Write row t of k [T,N,Hk] and v [T,N,Hv] to slot slot_mapping[t] of the pools [S,N,H].

    Slots outside [0,S) are skipped. Only slot 0, the scratch slot, may be named twice; which of its values stays is
    not defined.
    """
    index, k_rows, v_rows = slot_mapping.numpy(), words(k), words(v)
    inside = in_range(index, k_pool.shape[0])
    if inside is not None:
        index, k_rows, v_rows = index[inside], k_rows[inside], v_rows[inside]
    words(k_pool)[index] = k_rows
    words(v_pool)[index] = v_rows


@register("k_pool", "v_pool")
def kv_move(k_pool: Tensor, v_pool: Tensor, src: Tensor, dst: Tensor) -> None:
    """Set pool[dst] = pool[src] in both pools [S,N,H], all reads before all writes; dst [T] names no slot twice.

    A row whose src or dst lies outside [0,S) is skipped.
    """
    source, target, size = src.numpy(), dst.numpy(), k_pool.shape[0]
    inside = in_range(source, size)
    if inside is not None:
        source, target = source[inside], target[inside]
    inside = in_range(target, size)
    if inside is not None:
        source, target = source[inside], target[inside]
    for pool in (words(k_pool), words(v_pool)):
        pool[target] = pool[source]
