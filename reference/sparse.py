"""GLM-4-MoE and DeepSeek-V3 in float64: one causal pass over a sequence from token zero, no cache.

Shapes: `n` tokens, `D` hidden size, `V` vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

from draftproof.reference.checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD
from draftproof.reference.dense import Pass
from draftproof.reference.dense_layer import look_up, rms_norm, with_prefix
from draftproof.reference.sparse_checkpoint import SparseCheckpoint, load_sparse
from draftproof.reference.sparse_layer import layer


class Sparse:
    """A target with experts in groups. Nothing is remembered between passes."""

    def __init__(self, checkpoint: SparseCheckpoint) -> None:
        self.checkpoint = checkpoint
        self.config = checkpoint.config
        self.embedding = checkpoint.tensors[EMBEDDING]
        self.final_norm = checkpoint.tensors[FINAL_NORM]
        self.lm_head = checkpoint.tensors[LM_HEAD]
        prefixes = [f"model.layers.{i}." for i in range(self.config.layers)]
        self.layers = tuple(with_prefix(checkpoint.tensors, prefix) for prefix in prefixes)

    @classmethod
    def load(cls, directory: str | Path) -> "Sparse":
        """Read a checkpoint directory. Raises CheckpointError."""
        return cls(load_sparse(directory))

    def forward(self, tokens: Sequence[int]) -> Pass:
        """One causal pass over `tokens` at positions 0 .. n-1. Raises ValueError for none, or one out of vocabulary."""
        x = look_up(self.embedding, tokens)
        kv, outputs = [], []
        for weights in self.layers:
            x, entry = layer(x, weights, self.config)
            kv.append(entry)
            outputs.append(x)
        hidden = rms_norm(x, self.final_norm, self.config.eps)
        logits = hidden @ self.lm_head.T
        return Pass(hidden=hidden, before_norm=x, logits=logits, kv=tuple(kv), layers=tuple(outputs))
