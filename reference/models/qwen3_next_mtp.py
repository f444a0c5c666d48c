"""The multi-token prediction layer that a Qwen3-Next or Qwen3.5 checkpoint brings along (`mtp.*`), in float64.

Its entries are those of an EAGLE head: entry i is at position i and consumes the embedding of token t_{i+1} and h_i,
the target's hidden state at position i after its final norm; its output g_i stands in for h_{i+1}, and its logits are
for t_{i+2}:

    x_i = fc(concat(norm_e(embedding(t_{i+1})), norm_h(h_i)))     embedding first, no bias
    g   = norm(layer(x))                                          a full attention layer of the target's kind
    logits = lm_head(g)                                           the target's, as is the embedding

What is handed on is g, after the norm. It serves as an EAGLE head, and as a chain of one layer. All norms multiply by
1 + weight. The layer has experts if the target has any.
Source: vLLM `qwen3_next_mtp.py` and SGLang, which run it so; transformers ignores these tensors.
Shapes: `n` entries, `D` hidden size.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from draftproof.properties.values.checkpoint_config.qwen3_next import GatedDeltaNetConfig
from draftproof.reference.models.layers import look_up, with_prefix
from draftproof.reference.models.qwen3_next_layer import centred_norm, full_layer
from draftproof.reference.models.target import HeadPass, check_inputs

PREFIX = "mtp."


class Qwen3NextMtpLayer:
    """The MTP layer of a target, with its embedding and head; `tensors` by name without `mtp.`."""

    def __init__(
        self, config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], embedding: Tensor, lm_head: Tensor
    ) -> None:
        self.config, self.tensors, self.embedding, self.lm_head = config, tensors, embedding, lm_head
        self.weights = with_prefix(tensors, "layers.0.")

    def forward(self, tokens: Sequence[int], hidden: Tensor) -> HeadPass:
        """Run one causal pass over entries 0 .. n-1.

        `tokens[i]` is t_{i+1}, the token after position i; `hidden` [n, D] has in row i the state h_i, or the g_{i-1}
        that stands in for it. Raises ValueError if their numbers differ or a token is outside the vocabulary.
        """
        check_inputs(tokens, hidden, self.config.hidden_size)
        eps = self.config.rms_norm_eps
        embedded = centred_norm(look_up(self.embedding, tokens), self.tensors["pre_fc_norm_embedding.weight"], eps)
        state = centred_norm(hidden, self.tensors["pre_fc_norm_hidden.weight"], eps)
        x = torch.cat((embedded, state), dim=-1) @ self.tensors["fc.weight"].T
        x, entry = full_layer(x, self.weights, self.config)
        g = centred_norm(x, self.tensors["norm.weight"], eps)
        return HeadPass(g=g, logits=g @ self.lm_head.T, kv=(entry,))
