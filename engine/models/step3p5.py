"""Step-3.5 as a target: a gate for each head, norms by 1 + weight, experts. MTP layers have heads of their own.

`T` packed tokens, `D` hidden width, `Nq` query heads, `N` kv heads, `H` head size, `Hr` rotated components, `X`
experts, `F` inner width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape, Chain
from draftproof.engine.models.checkpoint import Tensors, take, take_wide
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.decoder import Layer
from draftproof.engine.models.gated_attention import GatedAttention, read_norm
from draftproof.engine.models.grouped_moe import GroupedMoe
from draftproof.engine.models.layers import head_norm, inverse_frequencies, read_mlp
from draftproof.engine.models.mtp_chain import ChainForm, MtpChain, NextTokenLayer
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.step3p5 import Step3p5Config


class HeadGatedAttention(GatedAttention):
    """`index` is the layer of the cache. projection [(Nq + 2N)H + Nq, D] gives q, k, v of all heads, then gates."""

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        size, count = self.q_norm.shape[0], x.shape[0]
        projected = F.linear(x, self.projection)
        gates, heads = projected[:, -self.heads :], projected[:, : -self.heads].reshape(count, -1, size)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = head_norm(q, self.q_norm, self.eps), head_norm(k, self.k_norm, self.eps)
        kernels.rope(q, k, metadata.positions, self.inv_freq)
        attended = cache.attend(self.index, q, k, v, metadata, size**-0.5)
        return F.linear((attended * torch.sigmoid(gates).unsqueeze(2)).reshape(count, -1), self.out)


class Step3p5(CheckpointTarget[Step3p5Config]):
    """Step3p5ForCausalLM."""

    def __init__(self, config: Step3p5Config, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        count = config.num_hidden_layers
        self.layers = tuple(read_layer(config, tensors, f"model.layers.{i}", i, i) for i in range(count))
        self.norm = read_norm(tensors, "model.norm.weight", self.width)
        self.cache_shape = entries(config, count, self.hidden_dtype)

    @staticmethod
    def eagle_config(config: Step3p5Config) -> LlamaConfig:
        """Return the configuration of an EAGLE head: with an MLP as the dense layers'."""
        return eagle_layer(config, config.num_attention_groups, config.head_dim, config.intermediate_size)

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None, *, chain: bool) -> Chain:
        """Return the first `count` MTP layers, or all. Raises CheckpointError."""
        own = parse_config(target_fields(config), Step3p5Config)
        own.check_mtp("config.json")
        numbers = range(own.num_hidden_layers, own.num_hidden_layers + own.num_nextn_predict_layers)[:count]
        layers = [self._read_mtp(own, tensors, number) for number in numbers]
        if isinstance(tensors, Tensors):
            tensors.refuse_unread_of(*(f"model.layers.{number}." for number in numbers))
        shape, form = entries(own, len(layers), self.hidden_dtype), ChainForm("before_norm", "before_norm")
        return MtpChain(self, layers, own.rms_norm_eps, shape, chain=chain, form=form)

    def _read_mtp(self, config: Step3p5Config, tensors: Mapping[str, Tensor], number: int) -> NextTokenLayer:
        """Take an MTP layer; parts of it may be below `transformer.`."""
        prefix, width, table = f"model.layers.{number}", self.width, (self.vocab, self.width)

        def place(name: str) -> str:
            below = f"{prefix}.transformer.{name}.weight"
            return below if below in tensors else f"{prefix}.{name}.weight"

        decoder = place("input_layernorm").removesuffix(".input_layernorm.weight")
        own = place("embed_tokens")
        return NextTokenLayer(
            projection=take(tensors, place("eh_proj"), width, 2 * width),
            embedding_norm=read_norm(tensors, place("enorm"), width),
            hidden_norm=read_norm(tensors, place("hnorm"), width),
            layer=read_layer(config, tensors, decoder, number, number - config.num_hidden_layers),
            norm=read_norm(tensors, place("shared_head.norm"), width),
            lm_head=take(tensors, place("shared_head.output"), *table),
            embedding=take(tensors, own, *table) if own in tensors else None,
        )

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of the MTP layers."""
        first = self.config.num_hidden_layers
        return tuple(f"model.layers.{first + j}." for j in range(self.config.num_nextn_predict_layers))


def entries(config: Step3p5Config, layers: int, dtype: torch.dtype) -> CacheShape:
    """Return what `layers` layers keep per token."""
    return CacheShape(layers, config.num_attention_groups, config.head_dim, config.head_dim, dtype)


def read_layer(config: Step3p5Config, tensors: Mapping[str, Tensor], prefix: str, number: int, index: int) -> Layer:
    """Take layer `number` of the checkpoint, which is layer `index` of its cache. Raises CheckpointError."""
    width = config.hidden_size
    before, after = (
        read_norm(tensors, f"{prefix}.{name}_layernorm.weight", width) for name in ("input", "post_attention")
    )
    attention = _read_attention(config, tensors, f"{prefix}.self_attn", index)
    if number in config.moe_layers_enum:
        return Layer(before, attention, after, _read_moe(config, tensors, prefix))
    return Layer(before, attention, after, read_mlp(tensors, f"{prefix}.mlp", width, config.intermediate_size))


def _read_attention(
    config: Step3p5Config, tensors: Mapping[str, Tensor], prefix: str, index: int
) -> HeadGatedAttention:
    width, size, rope = config.hidden_size, config.head_dim, config.rope_parameters
    heads, kv_heads = config.num_attention_heads, config.num_attention_groups
    rows = {"q": heads * size, "k": kv_heads * size, "v": kv_heads * size, "g": heads}
    parts = [take(tensors, f"{prefix}.{name}_proj.weight", count, width) for name, count in rows.items()]
    return HeadGatedAttention(
        index=index,
        heads=heads,
        kv_heads=kv_heads,
        eps=config.rms_norm_eps,
        projection=torch.cat(parts),
        out=take(tensors, f"{prefix}.o_proj.weight", width, heads * size),
        q_norm=read_norm(tensors, f"{prefix}.q_norm.weight", size),
        k_norm=read_norm(tensors, f"{prefix}.k_norm.weight", size),
        inv_freq=inverse_frequencies(rope, int(size * rope.partial_rotary_factor)).to(parts[0].device),
    )


def _read_moe(config: Step3p5Config, tensors: Mapping[str, Tensor], prefix: str) -> GroupedMoe:
    """Experts are stored as one tensor a projection, [X, F, D] or [X, D, F]."""
    width, count, inner = config.hidden_size, config.moe_num_experts, config.moe_intermediate_size
    router = take(tensors, f"{prefix}.moe.gate.weight", count, width)
    gate, up = (take(tensors, f"{prefix}.moe.{name}_proj.weight", count, inner, width) for name in ("gate", "up"))
    return GroupedMoe(
        config=config,
        router=router.to(torch.promote_types(router.dtype, torch.float32)),
        correction=take_wide(tensors, f"{prefix}.moe.router_bias", count),
        gate_up=torch.cat((gate, up), dim=1),
        down=take(tensors, f"{prefix}.moe.down_proj.weight", count, width, inner),
        shared=read_mlp(tensors, f"{prefix}.share_expert", width, config.share_expert_dim),
    )
