"""A DFlash draft of a target, in float64, by definition.

f_p are the outputs of the target's layers `features` at position p, side by side. In every layer

    c_p = output_norm_enc(fc(f_p))          the same in all layers
    k_p = rope(k_norm(k_proj(c_p)), p)      a context entry: no layernorm before the projections
    v_p = v_proj(c_p)

A block after positions 0 .. n-1 has rows at n, n + 1, ..: the target's embeddings of its ids, then per layer x +
attention(input_layernorm(x)) and that + mlp(post_attention_layernorm(that)), where every row sees all context entries
and all rows of the block; logits are the target's head on the final norm. Queries and keys have norms per head.

Source: transformers 5.23, `MuseGlimmerAssistantModel` and `DFlashTokenCandidateGenerator`.
Shapes: `n` positions, `W` rows of a block, `D` hidden size, `Df` features, `Nq` query heads, `N` key-value heads, `H`
head size, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.reference.models.attention import project_heads
from draftproof.reference.models.layers import (
    KV,
    attend_all,
    look_up,
    mlp,
    rms_norm,
    rope_frequencies,
    rotate,
    with_prefix,
)
from draftproof.reference.models.llama import dense_shapes
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import Shapes, read_tensors


class ReferenceDFlashModel:
    """A DFlash draft that shares the embedding and the head of its target."""

    def __init__(
        self,
        target: ReferenceCheckpointTarget[Any],
        config: DFlashConfig,
        tensors: Mapping[str, Tensor],
        source: str = "draft",
    ) -> None:
        sizes = target.config
        config.check_fits(sizes.hidden_size, sizes.vocab_size, sizes.num_hidden_layers, source)
        self.target, self.config, self.tensors = target, config, tensors
        self.layers = tuple(with_prefix(tensors, f"layers.{i}.") for i in range(config.num_hidden_layers))

    @classmethod
    def load(cls, target: ReferenceCheckpointTarget[Any], directory: str | Path) -> ReferenceDFlashModel:
        """Read a draft's directory. Raises CheckpointError, also where it does not fit the target."""
        config = read_config(directory, DFlashConfig)
        tensors = read_tensors(directory, dflash_shapes(config), dtype=target.dtype)
        return cls(target, config, tensors, source=str(Path(directory) / "config.json"))

    def entries(self, features: Tensor, first: int = 0) -> tuple[KV, ...]:
        """Context entries (k, v), each [n, N, H], of every layer, of features [n, Df] at positions `first`, .."""
        fc, norm = self.tensors["encoder.fc.weight"], self.tensors["encoder.output_norm_enc.weight"]
        context = rms_norm(features @ fc.T, norm, self.config.rms_norm_eps)
        return tuple(self._keys_values(context, weights, first) for weights in self.layers)

    def forward(self, ids: Sequence[int], features: Tensor, ahead: int = 0) -> HeadPass:
        """Return the pass over a block of ids [W] after features [n, Df].

        `g` [W, D] of the pass are states after the final norm, `kv` the block's own entries. Its positions are n +
        `ahead`, n + `ahead` + 1, .. (S-AUDIT-8).

        Raises ValueError for no ids or one outside the target's vocabulary.
        """
        x, own = look_up(self.target.embedding, ids), []
        for weights, context in zip(self.layers, self.entries(features), strict=True):
            normed = rms_norm(x, weights["input_layernorm.weight"], self.config.rms_norm_eps)
            entry = self._keys_values(normed, weights, len(features) + ahead)
            x = x + self._attention(normed, weights, context, entry, ahead)
            x = x + mlp(rms_norm(x, weights["post_attention_layernorm.weight"], self.config.rms_norm_eps), weights)
            own.append(entry)
        g = rms_norm(x, self.tensors["norm.weight"], self.config.rms_norm_eps)
        return HeadPass(g=g, logits=g @ self.target.lm_head.T, kv=tuple(own))

    def _attention(self, x: Tensor, weights: Mapping[str, Tensor], context: KV, own: KV, ahead: int) -> Tensor:
        """Return the block's attention [W, D] over x [W, D] and over the context: nothing is hidden from any row."""
        q = self._turned(x, weights, "q", len(context[0]) + ahead)
        k, v = (torch.cat(parts) for parts in zip(context, own, strict=True))
        nothing = torch.zeros(len(x), len(k), dtype=torch.bool)
        return attend_all(q, k, v, nothing) @ weights["self_attn.o_proj.weight"].T

    def _keys_values(self, x: Tensor, weights: Mapping[str, Tensor], first: int) -> KV:
        v = project_heads(x, weights, "v", self.config.head_dim, self.config.rms_norm_eps)
        return self._turned(x, weights, "k", first), v

    def _turned(self, x: Tensor, weights: Mapping[str, Tensor], name: str, first: int) -> Tensor:
        """Return queries or keys of x [n, D] at positions `first`, .., normed and turned: [n, Nq or N, H]."""
        size = self.config.head_dim
        heads = project_heads(x, weights, name, size, self.config.rms_norm_eps)
        return rotate(heads, rope_frequencies(self.config.rope_parameters, size), first)


def dflash_shapes(config: DFlashConfig) -> Shapes:
    """Return name and shape of every tensor; the embedding and the head are the target's."""
    d, layer = config.hidden_size, dense_shapes(config)
    shapes: Shapes = {
        "encoder.fc.weight": (d, d * len(config.target_layer_ids)),
        "encoder.output_norm_enc.weight": (d,),
        "norm.weight": (d,),
    }
    layers = range(config.num_hidden_layers)
    return shapes | {f"layers.{i}.{name}": shape for i in layers for name, shape in layer.items()}
