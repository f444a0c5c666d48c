"""A DFlash draft of a target, in float64, by definition.

f_p are the outputs of the target's layers `features` at position p, side by side. In every layer

    c_p = output_norm_enc(fc(f_p))          the same in all layers
    k_p = rope(k_norm(k_proj(c_p)), p)      a context entry: no layernorm before the projections
    v_p = v_proj(c_p)

A block after positions 0 .. n-1 has rows at n, n + 1, ..: the target's embeddings of its ids, then per layer x +
attention(input_layernorm(x)) and that + mlp(post_attention_layernorm(that)), where every row sees all context entries
and all rows of the block; logits are the target's head on the final norm. Queries and keys have norms per head.

Source: transformers 5.23, `MuseGlimmerAssistantModel` and `DFlashTokenCandidateGenerator`.
Shapes: `n` positions, `B` rows of a block, `D` hidden size, `F` features, `N` query heads, `M` key-value heads, `H`
head size, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from draftproof.reference.dense import Dense
from draftproof.reference.dense_layer import KV, attend, look_up, mlp, rms_norm, rope_frequencies, rotate, with_prefix
from draftproof.reference.dflash_config import DFlashConfig, check_fits, load_dflash
from draftproof.reference.eagle_head import HeadPass
from draftproof.reference.hybrid import Hybrid
from draftproof.reference.sparse import Sparse


class DFlashHead:
    """A DFlash draft on a target, whose embedding and head it shares."""

    def __init__(
        self,
        target: Dense | Hybrid | Sparse,
        config: DFlashConfig,
        tensors: Mapping[str, Tensor],
        source: str = "draft",
    ) -> None:
        check_fits(config, target.config.hidden, target.config.vocab, layer_count(target), source)
        self.target = target
        self.config = config
        self.tensors = tensors
        self.layers = tuple(with_prefix(tensors, f"layers.{i}.") for i in range(config.layers))

    @classmethod
    def load(cls, target: Dense | Hybrid | Sparse, directory: str | Path) -> DFlashHead:
        """Read a draft's directory. Raises CheckpointError, also where it does not fit the target."""
        return cls(target, *load_dflash(directory), source=str(Path(directory) / "config.json"))

    def entries(self, features: Tensor, first: int = 0) -> tuple[KV, ...]:
        """Context entries (k, v), each [n, M, H], of every layer, of features [n, F] at positions `first`, .."""
        fc, norm = self.tensors["encoder.fc.weight"], self.tensors["encoder.output_norm_enc.weight"]
        context = rms_norm(features @ fc.T, norm, self.config.eps)
        return tuple(self._keys_values(context, weights, first) for weights in self.layers)

    def forward(self, ids: Sequence[int], features: Tensor) -> HeadPass:
        """A block of ids [B] after features [n, F]: `g` [B, D] are states after the final norm, `kv` its own entries.

        Raises ValueError for no ids or one outside the target's vocabulary.
        """
        x, own = look_up(self.target.embedding, ids), []
        for weights, context in zip(self.layers, self.entries(features), strict=True):
            normed = rms_norm(x, weights["input_layernorm.weight"], self.config.eps)
            entry = self._keys_values(normed, weights, len(features))
            x = x + self._attention(normed, weights, context, entry)
            x = x + mlp(rms_norm(x, weights["post_attention_layernorm.weight"], self.config.eps), weights)
            own.append(entry)
        g = rms_norm(x, self.tensors["norm.weight"], self.config.eps)
        return HeadPass(g=g, logits=g @ self.target.lm_head.T, kv=tuple(own))

    def _attention(self, x: Tensor, weights: Mapping[str, Tensor], context: KV, own: KV) -> Tensor:
        """The block's attention [B, D] over x [B, D] and over the context: nothing is hidden from any row."""
        config = self.config
        q = self._heads(x, weights, "q", len(context[0]))
        k, v = (torch.cat(parts) for parts in zip(context, own, strict=True))
        nothing = torch.zeros(len(x), len(k), dtype=torch.bool)
        group = config.heads // config.kv_heads
        heads = [attend(q[:, i], k[:, i // group], v[:, i // group], nothing) for i in range(config.heads)]
        return torch.cat(heads, dim=-1) @ weights["self_attn.o_proj.weight"].T

    def _keys_values(self, x: Tensor, weights: Mapping[str, Tensor], first: int) -> KV:
        v = (x @ weights["self_attn.v_proj.weight"].T).unflatten(-1, (-1, self.config.head_dim))
        return self._heads(x, weights, "k", first), v

    def _heads(self, x: Tensor, weights: Mapping[str, Tensor], name: str, first: int) -> Tensor:
        """Queries or keys of x [n, D] at positions `first`, .., normed and turned: [n, N or M, H]."""
        size = self.config.head_dim
        heads = (x @ weights[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, size))
        normed = rms_norm(heads, weights[f"self_attn.{name}_norm.weight"], self.config.eps)
        return rotate(normed, rope_frequencies(self.config.rope, size), first)


def layer_count(target: Dense | Hybrid | Sparse) -> int:
    """Number of a target's decoder layers of any type."""
    return len(target.layers)
