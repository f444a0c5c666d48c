"""An EAGLE-3 head (Li et al., "EAGLE-3: Scaling up Inference Acceleration of LLMs via Training-Time Test", 2025).

Its one layer attends with [norm of the embedding of token i + 1, norm of the state], and adds to the state. That is fc
of several layers of the target, or what the head itself handed on.
`T` packed tokens, `D` width of the head, `Df` of the features, `V` vocabulary of the target, `Vd` vocabulary of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.checkpoint import open_tensors, take, take_integers
from draftproof.engine.models.layers import LayerSizes, inverse_frequencies, read_attention, read_mlp, rms_norm
from draftproof.engine.models.target import CheckpointTarget, LanguageModel
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.lib.errors import CheckpointError

_EMBEDDING = "embed_tokens.weight"


class Eagle3Model(LanguageModel):
    """An `Eagle3Head` with tensors as SafeAILab or `speculators` names them.

    fc [D, Df], midlayer.* or layers.0.*, norm [D], lm_head [Vd, D], and maybe embed_tokens [V, D], d2t [Vd], t2d [V].
    """

    takes = "layers"

    def __init__(self, config: Eagle3Config, tensors: Mapping[str, Tensor], target: CheckpointTarget) -> None:
        self.features = layers_of(config, len(target.layer_types))
        sizes, self.width, self._eps = LayerSizes.of(config), config.hidden_size, config.rms_norm_eps
        layer = "midlayer" if "midlayer.hidden_norm.weight" in tensors else "layers.0"
        self.fc = take(tensors, "fc.weight", self.width, target.width * len(self.features))
        names = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        self.norms = tuple(take(tensors, f"{layer}.{name}.weight", self.width) for name in names)
        inv_freq = inverse_frequencies(config.rope_parameters, sizes.head_dim)
        self.attention = read_attention(sizes, tensors, f"{layer}.self_attn", 0, inv_freq, inputs=2)
        self.mlp = read_mlp(tensors, f"{layer}.mlp", self.width, sizes.intermediate_size)
        self.norm, self._residual_is_normed = take(tensors, "norm.weight", self.width), config.norm_before_residual
        vocab = config.draft_vocab_size or config.vocab_size
        self.lm_head = take(tensors, "lm_head.weight", vocab, self.width)
        shares = _EMBEDDING not in tensors and target.width == self.width
        self.embedding = target.embedding if shares else take(tensors, _EMBEDDING, config.vocab_size, self.width)
        self.target_ids = _read_map(tensors, vocab, config.vocab_size)
        self.cache_shape = sizes.cache_shape(1, self.fc.dtype)

    def join(self, features: Tensor) -> Tensor:
        """[T, Df] -> [T, D]."""
        return F.linear(features, self.fc)

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], states [T, D] -> (states after the final norm, states handed on), both [T, D]."""
        input_norm, hidden_norm, mlp_norm = self.norms
        embedded = rms_norm(F.embedding(ids, self.embedding), input_norm, self._eps)
        normed = rms_norm(hidden_states, hidden_norm, self._eps)
        residual = normed if self._residual_is_normed else hidden_states
        residual = residual + self.attention(torch.cat((embedded, normed), dim=1), metadata, cache)
        handed = residual + self.mlp(rms_norm(residual, mlp_norm, self._eps))
        return rms_norm(handed, self.norm, self._eps), handed

    def tensors(self) -> tuple[Tensor, ...]:
        ids = () if self.target_ids is None else (self.target_ids,)
        return (self.fc, *self.norms, *self.attention.tensors(), *self.mlp.tensors(), self.norm, *ids)


def layers_of(config: Eagle3Config, layers: int) -> tuple[int, ...]:
    """Return which outputs of a target of `layers` make the features. Raises CheckpointError.

    `speculators` counts what enters a layer, and so does the default of both; SafeAILab's lists count what leaves one.
    """
    ids, shift = config.eagle_aux_hidden_state_layer_ids, int(bool(config.speculators_model_type))
    if ids is None:
        ids, shift = (2, layers // 2, layers - 3), 1
    if not all(shift <= i <= layers - 2 + shift for i in ids):
        expected = f"{shift} .. {layers - 2 + shift}, for a target of {layers} layers"
        raise config.invalid("config.json", "eagle_aux_hidden_state_layer_ids", expected)
    return tuple(i - shift for i in ids)


def _read_map(tensors: Mapping[str, Tensor], vocab: int, target_vocab: int) -> Tensor | None:
    """Return the target's ids [Vd] that d2t leads to, None where the vocabularies are the same.

    Raises CheckpointError for an invalid map.
    """
    if "d2t" not in tensors and vocab == target_vocab:
        return None
    d2t = take_integers(tensors, "d2t", vocab)
    ids, marked = torch.arange(vocab, device=d2t.device) + d2t, torch.zeros(target_vocab, dtype=torch.int64)
    if not bool(((ids >= 0) & (ids < target_vocab)).all()):
        raise CheckpointError(f"tensor d2t leads outside of the target's vocabulary, 0 .. {target_vocab - 1}")
    marked[ids.cpu()] = 1
    given = take_integers(tensors, "t2d", target_vocab).cpu() if "t2d" in tensors else marked
    if int(marked.sum()) != vocab or not torch.equal(marked, given):
        raise CheckpointError("tensor d2t leads to a token twice, or tensor t2d marks others than it leads to")
    return ids


def load_eagle3(
    directory: str | Path, target: CheckpointTarget, device: str | torch.device, dtype: torch.dtype
) -> Eagle3Model:
    """Read a head's directory. Raises CheckpointError, also where it does not fit the target."""
    config, tensors = read_config(directory, Eagle3Config), open_tensors(directory, device, dtype)
    config.check_fits(target.width, target.vocab, f"{directory}/config.json")
    head = Eagle3Model(config, tensors, target)
    tensors.refuse_unread()
    return head
