"""Grouped-query attention in float64 for Llama, Qwen3 and GLM-4-MoE, and the shapes of every kind of it.

Shapes: `n` tokens, `D` hidden size, `Nq` query heads, `N` key-value heads, `H` head size.
"""

from collections.abc import Mapping

from torch import Tensor

from draftproof.properties.formats.checkpoint_config.base import DecoderConfig
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig
from draftproof.reference.models.layers import KV, EntryStore, Places, attend_causally, rms_norm, rotate_first
from draftproof.reference.models.tensors import Shapes


def head_size(config: LlamaConfig | DFlashConfig | Glm4MoeConfig | Eagle3Config) -> int:
    """Return the size of a head: by default heads share out the hidden size."""
    return config.hidden_size // config.num_attention_heads if config.head_dim is None else config.head_dim


def kv_head_count(config: DecoderConfig) -> int:
    """Return the number of key-value heads: by default one for each query head."""
    return config.num_attention_heads if config.num_key_value_heads is None else config.num_key_value_heads


def attention_shapes(
    config: DecoderConfig, size: int, *, norms: bool, biases: bool = False, gated: bool = False, inputs: int = 1
) -> Shapes:
    """Return name and shape of every tensor, of as many inputs side by side.

    Gated, the rows of `q_proj` are, by head, of the query and of its gate.
    """
    d, queries, keys = config.hidden_size, config.num_attention_heads * size, kv_head_count(config) * size
    rows = {"q_proj": 2 * queries if gated else queries, "k_proj": keys, "v_proj": keys}
    shapes: Shapes = {f"{name}.weight": (count, inputs * d) for name, count in rows.items()}
    shapes["o_proj.weight"] = (d, queries)
    if biases:
        shapes |= {f"{name}.bias": (count,) for name, count in rows.items()}
    if norms:
        shapes |= {"q_norm.weight": (size,), "k_norm.weight": (size,)}
    return {f"self_attn.{name}": shape for name, shape in shapes.items()}


def attention(
    x: Tensor,
    weights: Mapping[str, Tensor],
    config: LlamaConfig | Glm4MoeConfig | Eagle3Config,
    places: Places | None = None,
    store: EntryStore | None = None,
) -> tuple[Tensor, KV]:
    """Return causal self-attention over x [n, D], and the layer's keys and values.

    Positions are 0 .. n-1 if `places` are not given; RoPE turns the first components of a head. The output is [n, D];
    (k, v) are each [n, N, H], k after RoPE, as a KV cache holds them. With a `store` they are what is read from it, and
    what rows attend to.
    """
    size, rope = head_size(config), config.rope_parameters
    q, k, v = (project_heads(x, weights, name, size, config.rms_norm_eps) for name in "qkv")
    q, k = (rotate_first(part, rope, int(size * rope.partial_rotary_factor), places) for part in (q, k))
    if store is not None:
        k, v = store.kept(k, v)
    return project(attend_causally(q, k, v, places), weights, "o_proj"), (k, v)


def project_heads(x: Tensor, weights: Mapping[str, Tensor], name: str, size: int, eps: float) -> Tensor:
    """Return queries, keys or values of x [n, D] by head, [n, Nq or N, H], normed if the weights have a norm."""
    heads, norm = project(x, weights, f"{name}_proj").unflatten(-1, (-1, size)), f"self_attn.{name}_norm.weight"
    return rms_norm(heads, weights[norm], eps) if norm in weights else heads


def project(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return x times a matrix of the attention, plus its bias if it has one."""
    out = x @ weights[f"self_attn.{name}.weight"].T
    bias = weights.get(f"self_attn.{name}.bias")
    return out if bias is None else out + bias
