"""EAGLE heads for many texts at once: what goes into the attention of an entry, and what comes of it.

Shapes: `R` requests, one a text, `T` entries of each, `D` width of the head, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from draftproof.properties.values.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig
from draftproof.reference.audit.heads import features, last_states
from draftproof.reference.audit.rules import EntryRules
from draftproof.reference.models.attention import project
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.layers import mlp, rms_norm
from draftproof.reference.models.target import TargetPass


class BatchedHead(Protocol):
    """A head of one layer on a device."""

    ids: Tensor | None

    @property
    def layer(self) -> Mapping[str, Tensor]: ...

    @property
    def config(self) -> LlamaConfig | Eagle3Config: ...

    def kept(self, layers: int) -> set[int]:
        """Return which layers' outputs it takes of a target of so many, with any mistake."""

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """Return the states [R, T, D] that entries consume."""

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """Return what attention is over, and what is added to it, of entries [R, T]."""

    def outputs(self, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """Return what is handed on [R, T, D] and logits [R, T, V]."""


class BatchedEagle:
    """See `BatchedHead`."""

    ids: Tensor | None = None

    def __init__(self, head: ReferenceEagleHead, device: torch.device) -> None:
        self.config, self._takes = head.config, head.takes
        self._fc, self._lm_head, self._embedding = (x.to(device) for x in (head.fc, head.lm_head, head.embedding))
        self.layer = {name: x.to(device) for name, x in head.layer.items()}

    def kept(self, layers: int) -> set[int]:
        """See `BatchedHead`."""
        return {layers - 1, max(0, layers - 2)}

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `BatchedHead`."""
        return last_states(whole, self._takes, rules.state)

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        parts = (self._embedding[tokens], states)
        x = torch.cat(parts[::-1] if rules.hidden_first else parts, dim=-1) @ self._fc.T
        return x, x

    def outputs(self, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        x = added + project(attended, self.layer, "o_proj")
        normed = rms_norm(x, self.layer["post_attention_layernorm.weight"], self.config.rms_norm_eps)
        g = x + mlp(normed, self.layer)
        return g, g @ self._lm_head.T


class BatchedEagle3:
    """See `BatchedHead`."""

    def __init__(self, head: ReferenceEagle3Head, device: torch.device) -> None:
        self.config, self._features, self._fc = head.config, head.features, head.fc.to(device)
        self._embedding = head.embedding.to(device)
        self._norm, self._lm_head = (head.tensors[f"{name}.weight"].to(device) for name in ("norm", "lm_head"))
        self.layer = {name: x.to(device) for name, x in head.layer.items()}
        self.ids = None if head.ids is None else torch.tensor(head.ids, device=device)

    def kept(self, layers: int) -> set[int]:
        """See `BatchedHead`."""
        return {min(max(layer + by, 0), layers - 1) for layer in self._features for by in (-1, 0, 1)}

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `BatchedHead`."""
        return features(whole, self._features, rules.state) @ self._fc.T

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        e, s = self._normed(self._embedding[tokens], "input_layernorm"), self._normed(states, "hidden_norm")
        return torch.cat((e, s), dim=-1), s if self.config.norm_before_residual else states

    def outputs(self, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        y = added + project(attended, self.layer, "o_proj")
        g = y + mlp(self._normed(y, "post_attention_layernorm"), self.layer)
        normed = rms_norm(g, self._norm, self.config.rms_norm_eps)
        return normed if rules.handed == "after the norm" else g, normed @ self._lm_head.T

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self.layer[f"{name}.weight"], self.config.rms_norm_eps)
