"""Qwen3-Next and Qwen3.5 (text) in float64: one causal pass over a sequence from token zero, no cache.

Shapes: `n` tokens, `D` hidden size, `V` vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from draftproof.reference.checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD
from draftproof.reference.dense import Pass
from draftproof.reference.dense_layer import KV, look_up, with_prefix
from draftproof.reference.hybrid_checkpoint import HybridCheckpoint, load_hybrid
from draftproof.reference.hybrid_config import FULL
from draftproof.reference.hybrid_layer import centred_norm, full_layer, linear_layer


class Hybrid:
    """A hybrid target. Nothing is remembered between passes."""

    def __init__(self, checkpoint: HybridCheckpoint) -> None:
        self.config = checkpoint.config
        self.embedding = checkpoint.tensors[EMBEDDING]
        self.final_norm = checkpoint.tensors[FINAL_NORM]
        self.lm_head = checkpoint.tensors[LM_HEAD]
        prefixes = [f"model.layers.{i}." for i in range(len(self.config.types))]
        self.layers = tuple(with_prefix(checkpoint.tensors, prefix) for prefix in prefixes)

    @classmethod
    def load(cls, directory: str | Path) -> "Hybrid":
        """Read a checkpoint directory. Raises CheckpointError."""
        return cls(load_hybrid(directory))

    def forward(self, tokens: Sequence[int]) -> Pass:
        """One causal pass over `tokens` at positions 0 .. n-1. Raises ValueError for none, or one out of vocabulary."""
        x = look_up(self.embedding, tokens)
        kv: list[KV] = []
        states: list[Tensor] = []
        outputs: list[Tensor] = []
        for kind, weights in zip(self.config.types, self.layers, strict=True):
            if kind == FULL:
                x, entry = full_layer(x, weights, self.config)
                kv.append(entry)
            else:
                x, state = linear_layer(x, weights, self.config)
                states.append(state)
            outputs.append(x)
        hidden = centred_norm(x, self.final_norm, self.config.eps)
        logits = hidden @ self.lm_head.T
        return Pass(
            hidden=hidden, before_norm=x, logits=logits, kv=tuple(kv), states=tuple(states), layers=tuple(outputs)
        )
