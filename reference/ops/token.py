"""Naive twin of the attention of one token. `N` KV heads, `G` query heads per KV head, `H` head size."""

from torch import Tensor

from draftproof.reference.ops.cache import kv_write, paged_attention
from draftproof.reference.ops.dense import norm_linear, rope


def token_attention(
    out: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    x: Tensor,
    norm: Tensor,
    weight: Tensor,
    eps: float,
    inv_freq: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Project the normed token x [1,D] by weight [(N*G+2N)*H,D], rotate q and k, write k and v, then attend."""
    queries, heads = out.shape[1], k_pool.shape[1]
    qkv = x.new_empty((1, weight.shape[0]))
    norm_linear(qkv, x, norm, weight, eps)
    rows = qkv.reshape(1, queries + 2 * heads, -1)
    q, k, v = rows[:, :queries], rows[:, queries:-heads], rows[:, -heads:]
    rope(q, k, positions, inv_freq)
    kv_write(k_pool, v_pool, k, v, slot_mapping)
    paged_attention(out, q, k_pool, v_pool, page_table, req_rows, positions, page_size, scale)
