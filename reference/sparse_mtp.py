"""The multi-token prediction layers that a GLM-4-MoE or DeepSeek-V3 checkpoint brings along, in float64.

Layer j = 0, 1, .. follows the model's own layers under the name `model.layers.{layers + j}.`. Entry i is at position i
and consumes the embedding of token t_{i+1+j} and x_i: h_i, the target's hidden state after its final norm, for j = 0,
else what layer j-1 handed on at entry i; its logits are for t_{i+2+j}:

    y_i = eh_proj(concat(enorm(embedding(t_{i+1+j})), hnorm(x_i)))    embedding first, no bias
    g   = shared_head.norm(layer(y))                                  a layer of the target's kind with experts
    logits = lm_head(g)                                               the target's, as is the embedding

What is handed on is g, after the norm. Used as an EAGLE head, layer 0 is run again on what it handed on itself.
Source: DeepSeek-V3 (2024), section 2.2, as transformers 5.23 (`modeling_layers.MtpModel`) runs it, save that entry i is
at position i + 1 + j there: a uniform shift, which RoPE cannot see. Shapes: `n` entries, `D` hidden size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from draftproof.reference.dense_layer import look_up, rms_norm
from draftproof.reference.eagle_head import HeadPass, check_inputs
from draftproof.reference.sparse import Sparse
from draftproof.reference.sparse_checkpoint import load_mtp_layers
from draftproof.reference.sparse_layer import layer


class SparseMtp:
    """One MTP layer of a target; `tensors` by name without `model.layers.{number}.`."""

    def __init__(self, target: Sparse, tensors: Mapping[str, Tensor]) -> None:
        self.target = target
        self.config = target.config
        self.tensors = tensors

    @classmethod
    def load(cls, target: Sparse, directory: str | Path) -> "tuple[SparseMtp, ...]":
        """Read every layer from the target's directory. Raises CheckpointError, also where there is none."""
        return tuple(cls(target, tensors) for tensors in load_mtp_layers(directory, target.checkpoint))

    def forward(self, tokens: Sequence[int], hidden: Tensor) -> HeadPass:
        """One causal pass over entries 0 .. n-1.

        `tokens[i]` is the token that entry i consumes; `hidden` [n, D] the states. Raises ValueError if their numbers
        differ or a token is outside the vocabulary.
        """
        check_inputs(tokens, hidden, self.config.hidden)
        eps = self.config.eps
        embedded = rms_norm(look_up(self.target.embedding, tokens), self.tensors["enorm.weight"], eps)
        state = rms_norm(hidden, self.tensors["hnorm.weight"], eps)
        x = torch.cat((embedded, state), dim=-1) @ self.tensors["eh_proj.weight"].T
        x, entry = layer(x, self.tensors, self.config)
        g = rms_norm(x, self.tensors["shared_head.norm.weight"], eps)
        return HeadPass(g=g, logits=g @ self.target.lm_head.T, kv=(entry,))
