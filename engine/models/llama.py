"""Llama and Qwen3 as a target. `T` packed tokens, `D` hidden width, `V` vocabulary, `N` heads, `H` head size.

The residual stream is updated in place; each norm is fused with the addition before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, LayerOutputs
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.decoder import record_layer
from draftproof.engine.models.layers import (
    Attention,
    LayerSizes,
    LayerWeights,
    inverse_frequencies,
    is_narrow,
    mlp,
    narrow_layer,
    read_layer,
    rms_norm,
)
from draftproof.engine.models.target import CheckpointTarget, shared_weights
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig


class Llama(CheckpointTarget[LlamaConfig]):
    """LlamaForCausalLM and Qwen3ForCausalLM."""

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.sizes = sizes = LayerSizes.of(config)
        prefixes = [f"model.layers.{i}" for i in range(config.num_hidden_layers)]
        self.layer_weights = tuple(read_layer(sizes, tensors, prefix) for prefix in prefixes)
        names = [f"{prefix}.input_layernorm.weight" for prefix in prefixes] + ["model.norm.weight"]
        # One more than there are layers: the last is the final norm.
        self.norms = tuple(take(tensors, name, self.width) for name in names)
        self.cache_shape = sizes.cache_shape(config.num_hidden_layers, self.hidden_dtype)
        inv_freq = inverse_frequencies(config.rope_parameters, sizes.head_dim)
        self._attention = Attention(sizes, inv_freq.to(self.embedding.device))

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of one layer of the target."""
        return msgspec.structs.replace(config, num_hidden_layers=1, layer_types=None)

    def forward(
        self, ids: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None = None
    ) -> Tensor:
        """Return hidden states [T, D] after the final norm; `layer_outputs` is told of the output of every layer."""
        residual = F.embedding(ids, self.embedding)
        if is_narrow(residual, self.sizes):
            return self._narrow(residual, metadata, cache, layer_outputs)
        return run_dense(self.layer_weights, self.norms, self._attention, residual, metadata, cache, layer_outputs)

    def _narrow(
        self, residual: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None
    ) -> Tensor:
        eps = self.sizes.rms_norm_eps
        for i, weights in enumerate(self.layer_weights):
            attend = partial(self._attention, i, weights, metadata=metadata, cache=cache)
            narrow_layer(weights, self.norms[i], residual, attend, eps)
            record_layer(layer_outputs, i, residual)
        return rms_norm(residual, self.norms[-1], eps)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        if not is_narrow(hidden_states, self.sizes):
            return super().logits(hidden_states)
        out = hidden_states.new_empty((hidden_states.shape[0], self.vocab))
        kernels.narrow_linear(out, hidden_states, self.lm_head)
        return out

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that forward and logits read, each once."""
        layers = tuple(tensor for weights in self.layer_weights for tensor in weights.tensors())
        return (*shared_weights(self), *self.norms, *layers, self._attention.inv_freq)


def run_dense(
    layers: Sequence[LayerWeights],
    norms: Sequence[Tensor],
    attention: Attention,
    residual: Tensor,
    metadata: AttentionMetadata,
    cache: Cache,
    layer_outputs: LayerOutputs | None = None,
) -> Tensor:
    """Run the residual stream [T, D], changed in place, through all layers and the last of `norms`: [T, D]."""
    eps = attention.sizes.rms_norm_eps
    normed = rms_norm(residual, norms[0], eps)
    for i, weights in enumerate(layers):
        attended = attention(i, weights, F.linear(normed, weights.qkv), metadata, cache)
        kernels.add_rms_norm(normed, residual, F.linear(attended, weights.out), weights.mlp_norm, eps)
        kernels.add_rms_norm(normed, residual, mlp(weights, normed), norms[i + 1], eps)
        record_layer(layer_outputs, i, residual)
    return normed
