"""MiMo (7B) as a target: Llama with biases of queries, keys and values. Its MTP layers are `model.mtp_layers.{j}.`.

`D` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from draftproof.engine.models.base import Chain
from draftproof.engine.models.checkpoint import Tensors, take
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.layers import LayerSizes
from draftproof.engine.models.llama import Llama, LlamaLayer, read_layers
from draftproof.engine.models.mtp_chain import ChainForm, MtpChain, NextTokenLayer
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, MimoConfig, eagle_layer

_PREFIX = "model.mtp_layers"


class Mimo(Llama):
    """MiMoForCausalLM."""

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head, which has no biases."""
        sizes = LayerSizes.of(config)
        return eagle_layer(config, sizes.num_key_value_heads, sizes.head_dim, sizes.intermediate_size)

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None, *, chain: bool) -> Chain:
        """Return the first `count` MTP layers, or all. Raises CheckpointError."""
        own = parse_config(target_fields(config), MimoConfig)
        own.check_mtp("config.json")
        number = own.num_nextn_predict_layers if count is None else count
        decoders = read_layers(msgspec.structs.replace(own, num_hidden_layers=number), tensors, _PREFIX)
        layers = [self._read_mtp(tensors, f"{_PREFIX}.{j}", decoder) for j, decoder in enumerate(decoders)]
        if isinstance(tensors, Tensors):
            tensors.refuse_unread_of(*(f"{_PREFIX}.{j}." for j in range(number)))
        entries = self.sizes.cache_shape(number, self.hidden_dtype)
        form = ChainForm(takes="before_norm", masks_first=True)
        return MtpChain(self, layers, own.rms_norm_eps, entries, chain=chain, form=form)

    def _read_mtp(self, tensors: Mapping[str, Tensor], prefix: str, decoder: LlamaLayer) -> NextTokenLayer:
        """Take what joins a layer to the target. It is stored for the hidden state first, then the embedding."""
        width = self.width
        hidden, embedding = take(tensors, f"{prefix}.input_proj.weight", width, 2 * width).split(width, dim=1)
        norms = [take(tensors, f"{prefix}.{name}_layernorm.weight", width) for name in ("token", "hidden", "final")]
        return NextTokenLayer(torch.cat((embedding, hidden), dim=1), norms[0], norms[1], decoder, norms[2])

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return the prefix of the MTP layers."""
        return (f"{_PREFIX}.",)
