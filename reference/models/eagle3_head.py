"""An EAGLE-3 head of a target, in float64, by definition (S-EAGLE-8 .. S-EAGLE-12).

f_i are the outputs of the target's layers `features` at position i side by side. Entry i consumes the embedding of
token t_{i+1} and a state x_i, which is fc f_i, or what the entry before handed on:

    e = input_layernorm(embedding(t_{i+1}));   s = hidden_norm(x_i)
    y = r + attention(concat(e, s))         r is x_i, or s with norm_before_residual
    g = y + mlp(post_attention_layernorm(y))
    logits = lm_head(norm(g))               of the head's own tokens: v is the target's v + d2t[v]

Source: Li et al., EAGLE-3 (2025), SafeAILab/EAGLE `eagle/model/cnets.py`, vllm-project/speculators
`src/speculators/models/eagle3/`, whose tensor names are used.
Shapes: `n` entries, `D` hidden size of the head, `Df` width of the features, `V` vocabulary,
`Vd` that part of the vocabulary that the head has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.attention import attention, attention_shapes, head_size
from draftproof.reference.models.layers import (
    EntryStore,
    Places,
    look_up,
    mlp,
    mlp_shapes,
    norm_shapes,
    rms_norm,
    with_prefix,
)
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget, check_inputs
from draftproof.reference.models.tensors import Shapes, read_tensors, tensor_names

_EMBEDDING = "embed_tokens.weight"


class ReferenceEagle3Head:
    """An EAGLE-3 head on a target; `ids` are the target's of its own tokens, None if these are all of them."""

    store: EntryStore | None = None

    def __init__(
        self,
        target: ReferenceCheckpointTarget[Any],
        config: Eagle3Config,
        tensors: Mapping[str, Tensor],
        source: str = "draft",
    ) -> None:
        self.config, self.tensors, self.fc = config, tensors, tensors["fc.weight"]
        self.features = feature_layers(config, target.config.num_hidden_layers, source)
        self.embedding = tensors.get(_EMBEDDING, target.embedding)
        if self.embedding.shape[1] != config.hidden_size:
            raise CheckpointError(
                f"{source}: {_EMBEDDING} is missing, and the target's has {target.config.hidden_size}"
            )
        self.layer = with_prefix(tensors, "layers.0.") or with_prefix(tensors, "midlayer.")
        self.ids = _ids(config, tensors, source)

    @classmethod
    def load(cls, target: ReferenceCheckpointTarget[Any], directory: str | Path) -> ReferenceEagle3Head:
        """Read a head's directory, config.json and model.safetensors. Raises CheckpointError."""
        config, source = read_config(directory, Eagle3Config), str(Path(directory) / "config.json")
        config.check_fits(target.config.hidden_size, target.config.vocab_size, source)
        features = len(feature_layers(config, target.config.num_hidden_layers, source))
        prefix = "midlayer." if "midlayer.hidden_norm.weight" in tensor_names(directory) else "layers.0."
        shapes = eagle3_shapes(config, prefix, features * target.config.hidden_size)
        optional: Shapes = {_EMBEDDING: (config.vocab_size, config.hidden_size)}
        optional |= {"d2t": (_vocab(config),), "t2d": (config.vocab_size,)}
        return cls(target, config, read_tensors(directory, shapes, optional, dtype=target.dtype), source)

    def forward(self, tokens: Sequence[int], hidden: Tensor, places: Places | None = None) -> HeadPass:
        """Run one causal pass over entries 0 .. n-1: `tokens[i]` is t_{i+1}, `hidden` [n, D] has x_i in row i.

        Raises ValueError if their numbers differ or a token is outside the vocabulary.
        """
        check_inputs(tokens, hidden, self.config.hidden_size)
        e = self._normed(look_up(self.embedding, tokens), "input_layernorm")
        s = self._normed(hidden, "hidden_norm")
        attended, entry = attention(torch.cat((e, s), dim=-1), self.layer, self.config, places, self.store)
        y = (s if self.config.norm_before_residual else hidden) + attended
        g = y + mlp(self._normed(y, "post_attention_layernorm"), self.layer)
        states = rms_norm(g, self.tensors["norm.weight"], self.config.rms_norm_eps)
        return HeadPass(g=g, logits=states @ self.tensors["lm_head.weight"].T, kv=(entry,))

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self.layer[f"{name}.weight"], self.config.rms_norm_eps)


def feature_layers(config: Eagle3Config, layers: int, source: str) -> tuple[int, ...]:
    """Return the layers, of `layers` in the target, whose outputs are the features. Raises CheckpointError."""
    listed = config.eagle_aux_hidden_state_layer_ids
    if listed is None:
        found = tuple(boundary - 1 for boundary in (2, layers // 2, layers - 3))
    elif config.speculators_model_type is None:
        found = listed
    else:
        found = tuple(boundary - 1 for boundary in listed)
    if min(found) < 0 or max(found) > layers - 2:
        expected = f"outputs of layers 0 .. {layers - 2} of the target"
        raise config.invalid(source, "eagle_aux_hidden_state_layer_ids", expected)
    return found


def eagle3_shapes(config: Eagle3Config, prefix: str, features: int) -> Shapes:
    """Return name and shape of every tensor that a head must have, its layer's behind `prefix`."""
    d, size = config.hidden_size, head_size(config)
    layer = attention_shapes(config, size, norms=config.qk_norm, inputs=2)
    layer |= mlp_shapes("mlp.", config.intermediate_size, d) | norm_shapes(d) | {"hidden_norm.weight": (d,)}
    shapes: Shapes = {"fc.weight": (d, features), "norm.weight": (d,), "lm_head.weight": (_vocab(config), d)}
    return shapes | {prefix + name: shape for name, shape in layer.items()}


def _vocab(config: Eagle3Config) -> int:
    return config.draft_vocab_size or config.vocab_size


def _ids(config: Eagle3Config, tensors: Mapping[str, Tensor], source: str) -> tuple[int, ...] | None:
    """Return the target's id for each token of the head. Raises CheckpointError for an invalid map."""
    if "d2t" not in tensors:
        if _vocab(config) != config.vocab_size:
            raise CheckpointError(f"{source}: tensor d2t is missing, for draft_vocab_size {config.draft_vocab_size}")
        return None
    ids = tuple(v + offset for v, offset in enumerate(tensors["d2t"].tolist()))
    if len(set(ids)) < len(ids) or not set(ids) <= set(range(config.vocab_size)):
        raise CheckpointError(f"{source}: tensor d2t leads to tokens twice, or outside 0 .. {config.vocab_size - 1}")
    if "t2d" in tensors and set(tensors["t2d"].nonzero().flatten().tolist()) != set(ids):
        raise CheckpointError(f"{source}: tensor t2d marks other tokens than those that d2t leads to")
    return ids
