"""Llama and Qwen3 as a target. `T` packed tokens, `D` hidden width, `V` vocabulary, `N` heads, `H` head size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import BEFORE_NORM, AttentionMetadata, Cache, LayerOutputs
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.decoder import Layer, record_layer, run_layers
from draftproof.engine.models.layers import (
    LayerSizes,
    Mlp,
    SelfAttention,
    inverse_frequencies,
    read_attention,
    read_mlp,
    rms_norm,
)
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig

# At one token the narrow kernels read weights faster than cuBLAS, at four no more (`bench.py linear`). They hold
# a whole row of a weight at once, hence the second limit.
NARROW_TOKENS, NARROW_INPUTS = 1, 8192


def is_narrow(x: Tensor, sizes: LayerSizes) -> bool:
    """Return if the narrow kernels serve activations x [T, D]: a choice by shape and device, the same at replays."""
    inputs = max(sizes.hidden_size, sizes.intermediate_size, sizes.num_attention_heads * sizes.head_dim)
    return x.is_cuda and x.shape[0] <= NARROW_TOKENS and inputs <= NARROW_INPUTS and x.dtype != torch.float64


@dataclass(frozen=True)
class LlamaLayer(Layer):
    """A layer of known parts."""

    mixer: SelfAttention
    mlp: Mlp


def read_layers(
    config: LlamaConfig | DFlashConfig, tensors: Mapping[str, Tensor], prefix: str
) -> tuple[LlamaLayer, ...]:
    """Take the layers `prefix`.0, `prefix`.1, .. Raises CheckpointError."""
    sizes = LayerSizes.of(config)
    width, inner = sizes.hidden_size, sizes.intermediate_size
    biased = isinstance(config, LlamaConfig) and config.biased
    inv_freq = inverse_frequencies(config.rope_parameters, sizes.head_dim)
    return tuple(
        LlamaLayer(
            norm=take(tensors, f"{prefix}.{i}.input_layernorm.weight", width),
            mixer=read_attention(sizes, tensors, f"{prefix}.{i}.self_attn", i, inv_freq, biased=biased),
            mlp_norm=take(tensors, f"{prefix}.{i}.post_attention_layernorm.weight", width),
            mlp=read_mlp(tensors, f"{prefix}.{i}.mlp", width, inner),
        )
        for i in range(config.num_hidden_layers)
    )


class Llama(CheckpointTarget[LlamaConfig]):
    """LlamaForCausalLM and Qwen3ForCausalLM."""

    layers: tuple[LlamaLayer, ...]

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.sizes = LayerSizes.of(config)
        self.layers = read_layers(config, tensors, "model.layers")
        self.norm = take(tensors, "model.norm.weight", self.width)
        self.cache_shape = self.sizes.cache_shape(config.num_hidden_layers, self.hidden_dtype)

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of one layer of the target."""
        return msgspec.structs.replace(config, num_hidden_layers=1, layer_types=None)

    def forward(
        self, ids: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None = None
    ) -> Tensor:
        """Return hidden states [T, D] after the final norm; `layer_outputs` is told of the output of every layer."""
        residual, eps = F.embedding(ids, self.embedding), self.sizes.rms_norm_eps
        if is_narrow(residual, self.sizes) and not self.config.biased:
            return self._narrow(residual, metadata, cache, layer_outputs)
        return run_layers(self.layers, self.norm, residual, metadata, cache, eps, layer_outputs)

    def _narrow(
        self, residual: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None
    ) -> Tensor:
        """Run the residual stream [T, D], in place, with norms, gate and additions inside the projections."""
        eps = self.sizes.rms_norm_eps
        for i, layer in enumerate(self.layers):
            attention, mlp = layer.mixer, layer.mlp
            kernels.linear_add(residual, attention.attend_normed(residual, layer.norm, metadata, cache), attention.out)
            active = residual.new_empty((residual.shape[0], mlp.down.shape[1]))
            kernels.norm_gate_up(active, residual, layer.mlp_norm, mlp.gate_up, eps)
            kernels.linear_add(residual, active, mlp.down)
            record_layer(layer_outputs, i, residual)
        record_layer(layer_outputs, BEFORE_NORM, residual)
        return rms_norm(residual, self.norm, eps)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        if is_narrow(hidden_states, self.sizes):
            return self._narrow_logits(hidden_states)
        return super().logits(hidden_states)

    def _narrow_logits(self, hidden_states: Tensor) -> Tensor:
        """Return what `logits` does, for few rows at once."""
        out = hidden_states.new_empty((hidden_states.shape[0], self.vocab))
        kernels.narrow_linear(out, hidden_states, self.lm_head)
        return out
