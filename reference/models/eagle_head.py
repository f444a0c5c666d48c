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
Shapes: `n` entries, `D` hidden size, `N` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, check_head_fits
from draftproof.properties.values.drafts import StateOf
from draftproof.properties.weights.eagle import HeadSizes, random_head
from draftproof.reference.models.attention import attention, head_size, kv_head_count
from draftproof.reference.models.layers import EntryStore, Places, look_up, mlp, rms_norm, with_prefix
from draftproof.reference.models.llama import dense_shapes
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget, check_inputs
from draftproof.reference.models.tensors import Shapes, read_tensors

FC = "fc.weight"
HEAD_EMBEDDING = "embed_tokens.weight"
LAYER = "layers.0."


class ReferenceEagleHead:
    """An EAGLE-1 head on a target. Its config is the target's, save for what its own config.json changes."""

    takes: StateOf = "after_norm"
    store: EntryStore | None = None

    def __init__(
        self, target: ReferenceCheckpointTarget[Any], tensors: Mapping[str, Tensor], config: LlamaConfig | None = None
    ) -> None:
        self.config = config or target.eagle_config(target.config)
        self.fc, self.lm_head = tensors[FC], target.lm_head
        self.embedding = tensors.get(HEAD_EMBEDDING, target.embedding)
        self.layer = with_prefix(tensors, LAYER)

    @classmethod
    def load(cls, target: ReferenceCheckpointTarget[Any], directory: str | Path) -> "ReferenceEagleHead":
        """Read a head's directory, config.json and model.safetensors. Raises CheckpointError."""
        config = read_config(directory, LlamaConfig)
        check_head_fits(config, target.eagle_config(target.config), str(Path(directory) / "config.json"))
        optional: Shapes = {HEAD_EMBEDDING: (config.vocab_size, config.hidden_size)}
        return cls(target, read_tensors(directory, head_shapes(config), optional, dtype=target.dtype), config)

    @classmethod
    def random(cls, target: ReferenceCheckpointTarget[Any], seed: int) -> "ReferenceEagleHead":
        """Return the head of `properties.weights.eagle.random_head` for this target."""
        return cls.from_arrays(target, random_head(head_sizes(target), seed))

    @classmethod
    def from_arrays(
        cls, target: ReferenceCheckpointTarget[Any], arrays: Mapping[str, np.ndarray]
    ) -> "ReferenceEagleHead":
        """Return a head of the target's own sizes from float32 arrays by tensor name."""
        return cls(target, {name: torch.from_numpy(array).to(target.dtype) for name, array in arrays.items()})

    def forward(self, tokens: Sequence[int], hidden: Tensor, places: Places | None = None) -> HeadPass:
        """Run one causal pass over entries 0 .. n-1, at these positions if no places are given.

        `tokens[i]` is t_{i+1}, the token after position i; `hidden` [n, D] has in row i the state h_i, or the g_{i-1}
        that stands in for it. Raises ValueError if their numbers differ or a token is outside the vocabulary.
        """
        check_inputs(tokens, hidden, self.config.hidden_size)
        x = torch.cat((look_up(self.embedding, tokens), hidden), dim=-1) @ self.fc.T
        attended, entry = attention(x, self.layer, self.config, places, self.store)
        x = x + attended
        normed = rms_norm(x, self.layer["post_attention_layernorm.weight"], self.config.rms_norm_eps)
        g = x + mlp(normed, self.layer)
        return HeadPass(g=g, logits=g @ self.lm_head.T, kv=(entry,))


def head_sizes(target: ReferenceCheckpointTarget[Any]) -> HeadSizes:
    """Return what `random_head` needs to know of a target."""
    config = target.eagle_config(target.config)
    return HeadSizes(
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=kv_head_count(config),
        head_dim=head_size(config),
        qk_norm=config.qk_norm,
    )


def head_shapes(config: LlamaConfig) -> Shapes:
    """Return name and shape of every tensor that a head must have: the layer has no input norm."""
    layer = {LAYER + name: shape for name, shape in dense_shapes(config).items() if name != "input_layernorm.weight"}
    return {FC: (config.hidden_size, 2 * config.hidden_size), **layer}
