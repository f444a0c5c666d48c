"""The EAGLE-1 draft head of a target, in float64, by definition.

Entry i is at position i and consumes the embedding of token t_{i+1} and h_i, the target's hidden state at position
i after its final norm; its output g_i stands in for h_{i+1}, and its logits are for t_{i+2}:

    x_i = fc(concat(embedding(t_{i+1}), h_i))       embedding first, no norm on either, no bias
    y   = x + attention(x)                          the layer has no input layernorm
    g   = y + mlp(post_attention_layernorm(y))      no final norm
    logits = lm_head(g)                             the target's

The layer is one of the target's architecture if that is Llama or Qwen3, else a Qwen3 layer: plain norms of queries and
keys, no gate, no bias, RoPE of the target's base over the whole head, an MLP. A made-up one has the target's head sizes
(of a value, where attention is latent) and its MLP's intermediate size, or that of one expert where the target is a
hybrid with experts.

Source: Li et al., EAGLE (2024), and SafeAILab/EAGLE `eagle/model/cnets1.py`, whose tensor names are used.
Shapes: `n` entries, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from draftproof.properties.values.eagle_weights import HeadSizes, random_head
from draftproof.reference.checkpoint import layer_shapes, read_config, read_tensors
from draftproof.reference.config import QWEN3, CheckpointError, Config
from draftproof.reference.dense import Dense
from draftproof.reference.dense_layer import KV, attention, look_up, mlp, rms_norm, with_prefix
from draftproof.reference.hybrid import Hybrid
from draftproof.reference.hybrid_config import HybridConfig
from draftproof.reference.sparse import Sparse
from draftproof.reference.sparse_config import SparseConfig

FC = "fc.weight"
EMBEDDING = "embed_tokens.weight"
LAYER = "layers.0."


@dataclass(frozen=True)
class HeadPass:
    """What the head computes: `g` [n, D], `logits` [n, V], `kv` = one layer's (k, v), each [n, M, H], k after RoPE."""

    g: Tensor
    logits: Tensor
    kv: tuple[KV, ...]


class EagleHead:
    """An EAGLE-1 head on a target. Its config is the target's, save for what its own config.json changes."""

    def __init__(
        self, target: Dense | Hybrid | Sparse, tensors: Mapping[str, Tensor], config: Config | None = None
    ) -> None:
        self.target = target
        self.config = config or head_config(target.config)
        self.fc = tensors[FC]
        self.embedding = tensors.get(EMBEDDING, target.embedding)
        self.layer = with_prefix(tensors, LAYER)

    @classmethod
    def load(cls, target: Dense | Hybrid | Sparse, directory: str | Path) -> "EagleHead":
        """Read a head's directory, config.json and model.safetensors. Raises CheckpointError."""
        config = read_config(directory)
        _check_fits(config, head_config(target.config), str(Path(directory) / "config.json"))
        optional = {EMBEDDING: (config.vocab, config.hidden)}
        return cls(target, read_tensors(directory, head_shapes(config), optional), config)

    @classmethod
    def random(cls, target: Dense | Hybrid | Sparse, seed: int) -> "EagleHead":
        """The head of `properties.values.heads.random_head` for this target."""
        return cls.from_arrays(target, random_head(head_sizes(target.config), seed))

    @classmethod
    def from_arrays(cls, target: Dense | Hybrid | Sparse, arrays: Mapping[str, np.ndarray]) -> "EagleHead":
        """A head of the target's own sizes from float32 arrays by tensor name."""
        return cls(target, {name: torch.from_numpy(array).to(torch.float64) for name, array in arrays.items()})

    def forward(self, tokens: Sequence[int], hidden: Tensor) -> HeadPass:
        """One causal pass over entries 0 .. n-1.

        `tokens[i]` is t_{i+1}, the token after position i; `hidden` [n, D] has in row i the state h_i, or the g_{i-1}
        that stands in for it. Raises ValueError if their numbers differ or a token is outside the vocabulary.
        """
        check_inputs(tokens, hidden, self.config.hidden)
        x = torch.cat((look_up(self.embedding, tokens), hidden), dim=-1) @ self.fc.T
        attended, entry = attention(x, self.layer, self.config)
        x = x + attended
        g = x + mlp(rms_norm(x, self.layer["post_attention_layernorm.weight"], self.config.eps), self.layer)
        return HeadPass(g=g, logits=g @ self.target.lm_head.T, kv=(entry,))


def check_inputs(tokens: Sequence[int], hidden: Tensor, size: int) -> None:
    """Raise ValueError unless `hidden` has a row of `size` for every token."""
    if hidden.shape != (len(tokens), size):
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}; {len(tokens)} tokens need {(len(tokens), size)}")


def head_config(target: Config | HybridConfig | SparseConfig) -> Config:
    """The config of a head of the target's own sizes: one layer. Raises CheckpointError if it cannot have them."""
    if isinstance(target, Config):
        return replace(target, layers=1)
    intermediate = target.intermediate
    if isinstance(target, HybridConfig) and target.experts:
        intermediate = target.experts.intermediate
    assert intermediate is not None
    if target.head_dim % 2:
        name = "v_head_dim" if isinstance(target, SparseConfig) and target.latent else "head_dim"
        raise CheckpointError(
            f"{name} is {target.head_dim}; allowed for an EAGLE head: even numbers (RoPE turns pairs)"
        )
    return Config(
        architecture=QWEN3,
        layers=1,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_dim=target.head_dim,
        hidden=target.hidden,
        intermediate=intermediate,
        vocab=target.vocab,
        eps=target.eps,
        rope=target.rope,
        tie_word_embeddings=target.tie_word_embeddings,
        max_position_embeddings=target.max_position_embeddings,
        eos=target.eos,
    )


def head_sizes(target: Config | HybridConfig | SparseConfig) -> HeadSizes:
    """What `random_head` needs to know of a target."""
    config = head_config(target)
    return HeadSizes(
        hidden=config.hidden,
        intermediate=config.intermediate,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        qk_norm=config.qk_norm,
    )


def head_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a head must have."""
    layer = {LAYER + name: shape for name, shape in layer_shapes(config).items()}
    return {FC: (config.hidden, 2 * config.hidden), **layer}


def _check_fits(head: Config, made_up: Config, source: str) -> None:
    """Compare with the head that would be made up for the target."""
    allowed = {
        "architectures": (head.architecture, made_up.architecture),
        "num_hidden_layers": (head.layers, made_up.layers),
        "hidden_size": (head.hidden, made_up.hidden),
        "vocab_size": (head.vocab, made_up.vocab),
    }
    for name, (value, wanted) in allowed.items():
        if value != wanted:
            raise CheckpointError(f"{source}: {name} is {value!r}; allowed for a head of this target: {wanted!r}")
