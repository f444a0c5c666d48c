"""DFlash as transformers has it for Muse Glimmer: a block of masked tokens filled in at once.

The context of layer l at position p is made of f_p, the outputs of chosen layers of the target side by side:
c = output_norm_enc(fc f_p), then this layer's keys and values of c, without its input norm. A block's rows see the
context and each other. Embedding and lm_head are the target's, which has the embedding of the masked token too.
Source: sgl-project/sglang#25029.
`T` packed tokens, `B` rows of `W` tokens, `D` hidden width, `M` features, `Nq` and `N` query and kv heads, `H` their
size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from draftproof import kernels
from draftproof.engine.models.base import Cache, Where
from draftproof.engine.models.checkpoint import (
    CheckpointError,
    DenseConfig,
    Rope,
    open_tensors,
    read_json,
    rope_fields,
    take,
)
from draftproof.engine.models.config_fields import FULL, divisor, number, only, positive
from draftproof.engine.models.dense import run_dense
from draftproof.engine.models.eagle_head import Lender
from draftproof.engine.models.layers import (
    Attention,
    cache_shape,
    head_norm,
    inverse_frequencies,
    read_layer,
    rms_norm,
)

ARCHITECTURE = "MuseGlimmerAssistantModel"
_THETA = 500000.0


@dataclass(frozen=True)
class DFlashConfig:
    """`block` is the most rows of a block, the pending token's included; `features` are layers of the target."""

    layers: DenseConfig
    block: int
    mask: int
    features: tuple[int, ...]


class Layered(Lender, Protocol):
    """A target by what a DFlash draft has to know of it."""

    layer_types: tuple[str, ...]


class DFlash:
    """A `Block`. Tensors: encoder.fc [D, MD], encoder.output_norm_enc [D], layers.*, norm."""

    def __init__(self, config: DFlashConfig, tensors: Mapping[str, torch.Tensor], target: Lender) -> None:
        sizes, width = config.layers, config.layers.width
        self.config, self.features, self.mask, self.block = config, config.features, config.mask, config.block
        self.fc = take(tensors, "encoder.fc.weight", width, width * len(config.features))
        self.context_norm = take(tensors, "encoder.output_norm_enc.weight", width)
        self.layers = tuple(read_layer(sizes, tensors, f"layers.{i}") for i in range(sizes.layers))
        names = [f"layers.{i}.input_layernorm.weight" for i in range(sizes.layers)] + ["norm.weight"]
        # One more than there are layers: the last is the final norm.
        self.norms = tuple(take(tensors, name, width) for name in names)
        self.lm_head, self.embedding = target.lm_head, target.embedding
        self.cache_shape = cache_shape(sizes, self.fc.dtype)
        self._attention = Attention(sizes, inverse_frequencies(sizes.rope, sizes.head_dim).to(self.fc.device))

    def append(self, features: torch.Tensor, where: Where, cache: Cache) -> None:
        """Write the context entries of features [T, MD] in every layer."""
        sizes = self.config.layers
        context = rms_norm(F.linear(features, self.fc), self.context_norm, sizes.norm_eps)
        for i, weights in enumerate(self.layers):
            assert weights.k_norm is not None
            entries = F.linear(context, weights.qkv[sizes.heads * sizes.head_dim :])
            k, v = entries.view(-1, 2 * sizes.kv_heads, sizes.head_dim).split(sizes.kv_heads, dim=1)
            k = head_norm(k, weights.k_norm, sizes.norm_eps)
            # There are no queries to rotate.
            kernels.rope(k[:, :0], k, where.positions, self._attention.inv_freq)
            cache.write(i, k, v, where)

    def forward(self, ids: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """ids [B, W], of which `where` has B * W -> states [B * W, D] after the final norm."""
        residual = F.embedding(ids.reshape(-1), self.embedding)
        return run_dense(self.layers, self.norms, self._attention, residual, where, cache)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(states, self.lm_head)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that append, forward and logits read, each once."""
        shared = (self.embedding,) if self.embedding is self.lm_head else (self.embedding, self.lm_head)
        layers = tuple(tensor for layer in self.layers for tensor in layer.tensors())
        return (*shared, self.fc, self.context_norm, *self.norms, *layers, self._attention.inv_freq)


def parse_dflash(fields: Mapping[str, Any], target: Layered) -> DFlashConfig:
    """Check the fields of a config.json for this target. Raises CheckpointError."""
    if fields.get("architectures") != [ARCHITECTURE]:
        raise CheckpointError(f"architectures is {fields.get('architectures')!r}; allowed: {ARCHITECTURE}")
    only(fields, "hidden_act", ("silu",))
    only(fields, "quantization_config", (None,))
    layers = positive(fields, "num_hidden_layers")
    # Left out it means sliding windows.
    if fields.get("layer_types") != [FULL] * layers:
        raise CheckpointError(f"layer_types is {fields.get('layer_types')!r}; allowed: {FULL!r} for each of {layers}")
    width, mask = positive(fields, "hidden_size"), positive(fields, "mask_token_id", least=0)
    if width != target.width:
        raise CheckpointError(f"hidden_size of the draft is {width}; allowed for this target: {target.width}")
    if mask >= target.vocab:
        raise CheckpointError(f"mask_token_id is {mask}; allowed: below the target's vocab_size ({target.vocab})")
    return DFlashConfig(
        layers=_sizes(fields, layers, width, target.vocab),
        block=positive(fields, "block_size", least=2),
        mask=mask,
        features=_features(fields, len(target.layer_types)),
    )


def _sizes(fields: Mapping[str, Any], layers: int, width: int, vocab: int) -> DenseConfig:
    heads, kv_heads = positive(fields, "num_attention_heads"), positive(fields, "num_key_value_heads")
    head_dim = positive(fields, "head_dim")
    if head_dim % 2:
        raise CheckpointError(f"head_dim is {head_dim}; allowed: even numbers")
    _, rope = rope_fields(fields, ("default",))
    for holder in (fields, rope):
        only(holder, "partial_rotary_factor", (1.0,))
    return DenseConfig(
        vocab=vocab,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=divisor(kv_heads, "num_key_value_heads", heads, "num_attention_heads"),
        head_dim=head_dim,
        intermediate=positive(fields, "intermediate_size"),
        norm_eps=number(fields, "rms_norm_eps", 1e-5),
        max_len=positive(fields, "max_position_embeddings", 131072),
        tied=False,
        qk_norm=True,
        rope=Rope(number(rope, "rope_theta", number(fields, "rope_theta", _THETA))),
    )


def _features(fields: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    found = fields.get("target_layer_ids")
    listed = found if isinstance(found, list) else []
    whole = all(isinstance(layer, int) and not isinstance(layer, bool) for layer in listed)
    if not listed or not whole or len(set(listed)) != len(listed) or not 0 <= min(listed) <= max(listed) < layers - 1:
        raise CheckpointError(
            f"target_layer_ids is {found!r}; allowed: distinct layers of 0 .. {layers - 2} (the last one's output is"
            " ambiguous: before or after the final norm)"
        )
    return tuple(listed)


def load_dflash(directory: str | Path, target: Layered, device: str | torch.device, dtype: torch.dtype) -> DFlash:
    """Read a draft's checkpoint directory. Raises CheckpointError."""
    config, tensors = parse_dflash(read_json(directory), target), open_tensors(directory, device, dtype)
    draft = DFlash(config, tensors, target)
    tensors.refuse_unread()
    return draft
