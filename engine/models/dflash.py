"""DFlash as transformers has it for Muse Glimmer: a block of masked tokens filled in at once.

The context of layer l at position p is made of f_p, the outputs of chosen layers of the target side by side:
c = output_norm_enc(fc f_p), then this layer's keys and values of c, without its input norm. A block's rows see the
context and each other. Embedding and lm_head are the target's, which has the embedding of the masked token too.
Source: sgl-project/sglang#25029.
`T` packed tokens, `B` rows of a launch, `W` tokens a row, `D` hidden width, `Df` width of the features, `Nq` and `N`
query and kv heads, `H` their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.checkpoint import open_tensors, take
from draftproof.engine.models.decoder import run_layers
from draftproof.engine.models.layers import LayerSizes, head_norm, rms_norm
from draftproof.engine.models.llama import read_layers
from draftproof.engine.models.target import CheckpointTarget, LanguageModel
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig


class DFlashModel(LanguageModel):
    """A `Block`. Tensors: encoder.fc [D, Df], encoder.output_norm_enc [D], layers.*, norm."""

    def __init__(self, config: DFlashConfig, tensors: Mapping[str, Tensor], target: LanguageModel) -> None:
        self.sizes, width = LayerSizes.of(config), config.hidden_size
        self.features, self.mask, self.block = config.target_layer_ids, config.mask_token_id, config.block_size
        self.fc = take(tensors, "encoder.fc.weight", width, width * len(self.features))
        self.context_norm = take(tensors, "encoder.output_norm_enc.weight", width)
        self.layers = read_layers(config, tensors, "layers")
        self.norm = take(tensors, "norm.weight", width)
        self.lm_head, self.embedding = target.lm_head, target.embedding
        self.cache_shape = self.sizes.cache_shape(config.num_hidden_layers, self.fc.dtype)

    def append(self, features: Tensor, metadata: AttentionMetadata, cache: Cache) -> None:
        """Write the context entries of features [T, Df] in every layer."""
        kv_heads, size, eps = self.sizes.num_key_value_heads, self.sizes.head_dim, self.sizes.rms_norm_eps
        context = rms_norm(F.linear(features, self.fc), self.context_norm, eps)
        for i, attention in enumerate(layer.mixer for layer in self.layers):
            assert attention.k_norm is not None
            entries = F.linear(context, attention.projection[self.sizes.num_attention_heads * size :])
            k, v = entries.view(-1, 2 * kv_heads, size).split(kv_heads, dim=1)
            k = head_norm(k, attention.k_norm, eps)
            # There are no queries to rotate.
            kernels.rope(k[:, :0], k, metadata.positions, attention.inv_freq)
            cache.write(i, k, v, metadata)

    def forward(self, ids: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """Return states [B * W, D] after the final norm for ids [B, W]; `metadata` has B * W tokens."""
        residual = F.embedding(ids.reshape(-1), self.embedding)
        return run_layers(self.layers, self.norm, residual, metadata, cache, self.sizes.rms_norm_eps)

    def tensors(self) -> tuple[Tensor, ...]:
        layers = (tensor for layer in self.layers for tensor in layer.tensors())
        return (self.fc, self.context_norm, self.norm, *layers)


def load_dflash(
    directory: str | Path, target: CheckpointTarget, device: str | torch.device, dtype: torch.dtype
) -> DFlashModel:
    """Read a draft's directory. Raises CheckpointError, also where it does not fit the target."""
    config, tensors = read_config(directory, DFlashConfig), open_tensors(directory, device, dtype)
    config.check_fits(target.width, target.vocab, len(target.layer_types), f"{directory}/config.json")
    draft = DFlashModel(config, tensors, target)
    tensors.refuse_unread()
    return draft
