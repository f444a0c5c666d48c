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
from typing import Protocol

import torch
from torch import Tensor

from draftproof.properties.values.checkpoint_config.base import TargetConfig
from draftproof.reference.models.layers import KV, look_up, rms_norm
from draftproof.reference.models.target import HeadPass, check_inputs
from draftproof.reference.models.tensors import Shapes


class MtpTarget(Protocol):
    """A target whose layers, embedding and head its MTP layers use."""

    @property
    def config(self) -> TargetConfig: ...

    embedding: Tensor
    lm_head: Tensor

    def run_layer(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, KV]: ...


class MtpLayer:
    """One MTP layer of a target; `tensors` by name without `model.layers.{number}.`."""

    def __init__(self, target: MtpTarget, tensors: Mapping[str, Tensor]) -> None:
        self.target, self.tensors = target, tensors

    def forward(self, tokens: Sequence[int], hidden: Tensor) -> HeadPass:
        """Run one causal pass over entries 0 .. n-1.

        `tokens[i]` is the token that entry i consumes; `hidden` [n, D] the states. Raises ValueError if their numbers
        differ or a token is outside the vocabulary.
        """
        config = self.target.config
        check_inputs(tokens, hidden, config.hidden_size)
        eps = config.rms_norm_eps
        embedded = rms_norm(look_up(self.target.embedding, tokens), self.tensors["enorm.weight"], eps)
        state = rms_norm(hidden, self.tensors["hnorm.weight"], eps)
        x = torch.cat((embedded, state), dim=-1) @ self.tensors["eh_proj.weight"].T
        x, entry = self.target.run_layer(x, self.tensors)
        g = rms_norm(x, self.tensors["shared_head.norm.weight"], eps)
        return HeadPass(g=g, logits=g @ self.target.lm_head.T, kv=(entry,))


def joint_shapes(hidden_size: int) -> Shapes:
    """Return name and shape of what joins an MTP layer to the target."""
    d = hidden_size
    return {"enorm.weight": (d,), "hnorm.weight": (d,), "eh_proj.weight": (d, 2 * d), "shared_head.norm.weight": (d,)}
