"""Eager attention of one token. `N` KV heads, `G` query heads per KV head, `H` head size, `D` width."""

from torch import Tensor

from draftproof.kernels.eager_attention import paged_attention
from draftproof.kernels.eager_cache import kv_write
from draftproof.kernels.eager_dense import rope
from draftproof.kernels.eager_linear import norm_linear
from draftproof.kernels.registry import register


@register("out", "k_pool", "v_pool")
def token_attention(
    out: Tensor, k_pool: Tensor, v_pool: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float, inv_freq: Tensor,
    positions: Tensor, slot_mapping: Tensor, page_table: Tensor, req_rows: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Let the one token x [1,D] attend after its norm [D], projected by weight [(N*G+2N)*H,D]; out is [1,N*G,H].

    What norm_linear, rope, kv_write and paged_attention do, one after the other: each rounds where it does alone. All
    of a head is rotated, so inv_freq is [H/2].
    """
    qkv = x.new_empty((x.shape[0], weight.shape[0]))
    norm_linear(qkv, x, norm, weight, eps)
    heads = [out.shape[1], k_pool.shape[1], k_pool.shape[1]]
    q, k, v = qkv.view(x.shape[0], sum(heads), -1).split(heads, dim=1)
    rope(q, k, positions, inv_freq)
    kv_write(k_pool, v_pool, k, v, slot_mapping)
    paged_attention(out, q, k_pool, v_pool, page_table, req_rows, positions, page_size, scale)
