"""Llama and Qwen3 in float64: one causal pass over a sequence from token zero, no cache.

Shapes: `n` tokens, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary, `L` layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from draftproof.reference.checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD, Checkpoint, load_checkpoint
from draftproof.reference.dense_layer import KV, attention, look_up, mlp, rms_norm, with_prefix


@dataclass(frozen=True)
class Pass:
    """What a target computes over a sequence; row i belongs to position i.

    `hidden` [n, D] is after the final norm, `before_norm` [n, D] before it (the last layer's output), `logits`
    [n, V] for the token after each position, `kv` per layer of full attention (k, v), each [n, M, H], k after RoPE,
    `states` per linear layer [n, size]: what it keeps after each token (`hybrid_layer.delta_net`), `layers` every
    decoder layer's output [n, D], residual included.
    """

    hidden: Tensor
    before_norm: Tensor
    logits: Tensor
    kv: tuple[KV, ...]
    states: tuple[Tensor, ...] = ()
    layers: tuple[Tensor, ...] = ()


class Dense:
    """A dense target. Nothing is remembered between passes."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = checkpoint.config
        self.embedding = checkpoint.tensors[EMBEDDING]
        self.final_norm = checkpoint.tensors[FINAL_NORM]
        self.lm_head = checkpoint.tensors[LM_HEAD]
        prefixes = [f"model.layers.{i}." for i in range(self.config.layers)]
        self.layers = tuple(with_prefix(checkpoint.tensors, prefix) for prefix in prefixes)

    @classmethod
    def load(cls, directory: str | Path) -> "Dense":
        """Read a checkpoint directory. Raises CheckpointError."""
        return cls(load_checkpoint(directory))

    def forward(self, tokens: Sequence[int]) -> Pass:
        """One causal pass over `tokens` at positions 0 .. n-1. Raises ValueError for none, or one out of vocabulary."""
        eps = self.config.eps
        x = look_up(self.embedding, tokens)
        kv, outputs = [], []
        for weights in self.layers:
            attended, entry = attention(rms_norm(x, weights["input_layernorm.weight"], eps), weights, self.config)
            x = x + attended
            x = x + mlp(rms_norm(x, weights["post_attention_layernorm.weight"], eps), weights)
            kv.append(entry)
            outputs.append(x)
        hidden = rms_norm(x, self.final_norm, eps)
        logits = hidden @ self.lm_head.T
        return Pass(hidden=hidden, before_norm=x, logits=logits, kv=tuple(kv), layers=tuple(outputs))
