"""The multi-token prediction layers that a checkpoint brings along, in float64.

Entry i of layer j = 0, 1, .. is at position i and consumes the embedding of token t_{i+1+j} and x_i: h_i, the target's
hidden state after its final norm, for j = 0, else what layer j-1 handed on at entry i; its logits are for t_{i+2+j}:

    y_i = eh_proj(concat(enorm(embedding(t_{i+1+j})), hnorm(x_i)))    embedding first, no bias
    g   = shared_head.norm(layer(y))                                  a full attention layer of the target's kind
    logits = lm_head(g)                                               the target's, as is the embedding

What is handed on is g, after the norm. Used as an EAGLE head, layer 0 is run again on what it handed on itself. The
layer has experts if the target has any; norms are the target's. Shapes: `n` entries, `D` hidden size.

GLM-4-MoE and DeepSeek-V3 have layer j under the name `model.layers.{layers + j}.` Source: DeepSeek-V3 (2024), section
2.2, as transformers 5.23 (`modeling_layers.MtpModel`) runs it, save that entry i is at position i + 1 + j there: a
uniform shift, which RoPE cannot see. Qwen3-Next and Qwen3.5 have one layer under `mtp.` and names of their own. Source:
vLLM `qwen3_next_mtp.py` and SGLang, which run it so; transformers ignores these tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from draftproof.properties.values.drafts import StateOf
from draftproof.reference.models.layers import Places, look_up
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget, check_inputs
from draftproof.reference.models.tensors import Shapes


class MtpForm(NamedTuple):
    """How an architecture's MTP layers differ from GLM-4-MoE's (S-HEAD-6, S-HEAD-9)."""

    takes: StateOf = "after_norm"
    handed: StateOf = "after_norm"
    masks_first: bool = False
    hidden_first: bool = False


class MtpLayer:
    """One MTP layer of a target; `tensors` by their names in GLM-4-MoE, without `model.layers.{number}.`."""

    def __init__(
        self, target: ReferenceCheckpointTarget[Any], tensors: Mapping[str, Tensor], form: MtpForm | None = None
    ) -> None:
        self.target, self.tensors, self.form = target, tensors, form or MtpForm()
        self.takes = self.form.takes

    def forward(self, tokens: Sequence[int], hidden: Tensor, places: Places | None = None) -> HeadPass:
        """Run one causal pass over entries 0 .. n-1.

        `tokens[i]` is the token that entry i consumes; `hidden` [n, D] the states. Raises ValueError if their numbers
        differ or a token is outside the vocabulary.
        """
        target, tensors = self.target, self.tensors
        check_inputs(tokens, hidden, target.config.hidden_size)
        embedded = look_up(tensors.get("embed_tokens.weight", target.embedding), tokens)
        if self.form.masks_first:
            embedded[torch.arange(len(tokens)) == 0 if places is None else places.positions == 0] = 0
        parts = [target.norm(embedded, tensors["enorm.weight"]), target.norm(hidden, tensors["hnorm.weight"])]
        joined = torch.cat(parts[::-1] if self.form.hidden_first else parts, dim=-1)
        x, entry, gap = target.run_layer(joined @ tensors["eh_proj.weight"].T, tensors, places)
        assert not isinstance(entry, Tensor)  # full attention
        g = target.norm(x, tensors["shared_head.norm.weight"])
        head = tensors.get("shared_head.head.weight", target.lm_head)
        return HeadPass(g=x if self.form.handed == "before_norm" else g, logits=g @ head.T, kv=(entry,), gap=gap)


def joint_shapes(hidden_size: int) -> Shapes:
    """Return name and shape of what joins an MTP layer to the target."""
    d = hidden_size
    return {"enorm.weight": (d,), "hnorm.weight": (d,), "eh_proj.weight": (d, 2 * d), "shared_head.norm.weight": (d,)}
