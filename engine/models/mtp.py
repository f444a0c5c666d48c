"""The built-in draft of Qwen3-Next and Qwen3.5: one full attention layer that predicts a token further.

x = fc(embedding of token i + 1, hidden i), embedding first, each after a norm of its own; one decoder layer; a final
norm, whose output is handed on and read by the target's lm_head. The embedding is the target's too.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, Where
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.config_fields import draft_fields, only
from draftproof.engine.models.decoder import run_layers
from draftproof.engine.models.eagle_head import Lender
from draftproof.engine.models.gated_attention import read_norm
from draftproof.engine.models.hybrid import cache_shape
from draftproof.engine.models.hybrid_config import HybridConfig, parse_hybrid
from draftproof.engine.models.hybrid_layer import read_layers
from draftproof.engine.models.layers import rms_norm


class Mtp:
    """A `Head`. Tensors: mtp.fc.weight [D, 2D], mtp.pre_fc_norm_{embedding,hidden}, mtp.layers.0.*, mtp.norm."""

    def __init__(self, config: HybridConfig, tensors: Mapping[str, torch.Tensor], target: Lender) -> None:
        width = config.width
        self.config = config
        self.fc = take(tensors, "mtp.fc.weight", width, 2 * width)
        self.embedding_norm = read_norm(tensors, "mtp.pre_fc_norm_embedding.weight", width)
        self.hidden_norm = read_norm(tensors, "mtp.pre_fc_norm_hidden.weight", width)
        self.layers = read_layers(config, tensors, "mtp.layers")
        self.norm = read_norm(tensors, "mtp.norm.weight", width)
        self.lm_head, self.embedding = target.lm_head, target.embedding
        self.cache_shape = cache_shape(config, self.fc.dtype)

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """ids [T], hidden [T, D] -> handed-on states [T, D]."""
        eps = self.config.norm_eps
        embedded = rms_norm(F.embedding(ids, self.embedding), self.embedding_norm, eps)
        joined = torch.cat((embedded, rms_norm(hidden, self.hidden_norm, eps)), dim=1)
        return run_layers(self.layers, self.norm, F.linear(joined, self.fc), where, cache, eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden, self.lm_head)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, each once."""
        shared = (self.embedding,) if self.embedding is self.lm_head else (self.embedding, self.lm_head)
        layers = tuple(tensor for layer in self.layers for tensor in layer.tensors())
        return (*shared, self.fc, self.embedding_norm, self.hidden_norm, *layers, self.norm)


def build_mtp(config: Any, tensors: Mapping[str, torch.Tensor], target: Lender) -> Mtp:
    """The built-in draft of a configuration that is only read (config_fields). Raises CheckpointError."""
    fields = draft_fields(config)
    only(fields, "mtp_num_hidden_layers", (1,))
    only(fields, "mtp_use_dedicated_embeddings", (False,))
    return Mtp(parse_hybrid(fields), tensors, target)
