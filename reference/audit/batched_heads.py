"""Heads for many texts at once: what goes into the attention of an entry, and what comes of it.

Shapes: `R` requests, one a text, `T` entries of each, `D` width of the head, `V` vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from draftproof.reference.audit.batched import BatchedTarget, on_device
from draftproof.reference.audit.batched_attention import Heads, heads
from draftproof.reference.audit.heads import features, last_states
from draftproof.reference.audit.rules import ChainRules, EntryRules
from draftproof.reference.models.attention import project
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.layers import mlp, rms_norm
from draftproof.reference.models.mtp_layer import MtpLayer
from draftproof.reference.models.target import TargetPass


class BatchedHead(Protocol):
    """A head of one layer on a device."""

    ids: Tensor | None

    def kept(self, layers: int) -> set[int]:
        """Return the layers of a target with `layers` layers whose outputs it reads, under any mistake."""

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """Return the states [R, T, D] that entries consume."""

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return what attention is over, and what is added to it, of entries at positions [R, T]."""

    def heads(self, x: Tensor, positions: Tensor) -> Heads:
        """Return what the layer's attention is made of for inputs x [R, T, D] at positions [R, T]."""

    def outputs(self, x: Tensor, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """Return what is handed on [R, T, D] and logits [R, T, V]; `x` are the inputs."""


class BatchedEagle:
    """See `BatchedHead`."""

    ids: Tensor | None = None

    def __init__(self, head: ReferenceEagleHead, device: torch.device) -> None:
        self.config, self._takes = head.config, head.takes
        self._fc, self._lm_head, self._embedding = (x.to(device) for x in (head.fc, head.lm_head, head.embedding))
        self.layer = on_device(head.layer, device)

    def kept(self, layers: int) -> set[int]:
        """See `BatchedHead`."""
        return {layers - 1, max(0, layers - 2)}

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `BatchedHead`."""
        return last_states(whole, self._takes, rules.state)

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        parts = (self._embedding[tokens], states)
        x = torch.cat(parts[::-1] if rules.hidden_first else parts, dim=-1) @ self._fc.T
        return x, x

    def heads(self, x: Tensor, positions: Tensor) -> Heads:
        """See `BatchedHead`."""
        return heads(x, self.layer, self.config, positions)

    def outputs(self, x: Tensor, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        y = added + project(attended, self.layer, "o_proj")
        normed = rms_norm(y, self.layer["post_attention_layernorm.weight"], self.config.rms_norm_eps)
        g = y + mlp(normed, self.layer)
        return g, g @ self._lm_head.T


class BatchedEagle3:
    """See `BatchedHead`."""

    def __init__(self, head: ReferenceEagle3Head, device: torch.device) -> None:
        self.config, self._features, self._fc = head.config, head.features, head.fc.to(device)
        self._embedding = head.embedding.to(device)
        self._norm, self._lm_head = (head.tensors[f"{name}.weight"].to(device) for name in ("norm", "lm_head"))
        self.layer = on_device(head.layer, device)
        self.ids = None if head.ids is None else torch.tensor(head.ids, device=device)

    def kept(self, layers: int) -> set[int]:
        """See `BatchedHead`."""
        return {min(max(layer + by, 0), layers - 1) for layer in self._features for by in (-1, 0, 1)}

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `BatchedHead`."""
        return features(whole, self._features, rules.state) @ self._fc.T

    def inputs(self, tokens: Tensor, states: Tensor, rules: EntryRules, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        e, s = self._normed(self._embedding[tokens], "input_layernorm"), self._normed(states, "hidden_norm")
        return torch.cat((e, s), dim=-1), s if self.config.norm_before_residual else states

    def heads(self, x: Tensor, positions: Tensor) -> Heads:
        """See `BatchedHead`."""
        return heads(x, self.layer, self.config, positions)

    def outputs(self, x: Tensor, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        y = added + project(attended, self.layer, "o_proj")
        g = y + mlp(self._normed(y, "post_attention_layernorm"), self.layer)
        normed = rms_norm(g, self._norm, self.config.rms_norm_eps)
        return normed if rules.handed == "after the norm" else g, normed @ self._lm_head.T

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self.layer[f"{name}.weight"], self.config.rms_norm_eps)


class BatchedMtp:
    """A layer of MTP, alone or run as an EAGLE head; see `BatchedHead`. It has the target's kind of layer."""

    ids: Tensor | None = None

    def __init__(self, target: BatchedTarget, layer: MtpLayer) -> None:
        self._target, self._form, self._takes = target, layer.form, layer.takes
        self._weights = on_device(layer.tensors, target.device)

    def kept(self, layers: int) -> set[int]:
        """See `BatchedHead`."""
        return {layers - 1, max(0, layers - 2)}

    def given(self, whole: TargetPass, rules: EntryRules | ChainRules) -> Tensor:
        """See `BatchedHead`."""
        return last_states(whole, self._takes, rules.state)

    def inputs(
        self, tokens: Tensor, states: Tensor, rules: EntryRules | ChainRules, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        weights, norm = self._weights, self._target.model.norm
        embedded = weights.get("embed_tokens.weight", self._target.embedding)[tokens]
        if self._form.masks_first:
            embedded = embedded.masked_fill((positions == 0)[..., None], 0)
        parts = [norm(embedded, weights["enorm.weight"]), norm(states, weights["hnorm.weight"])]
        is_other = isinstance(rules, EntryRules) and rules.hidden_first
        joined = torch.cat(parts[::-1] if self._form.hidden_first != is_other else parts, dim=-1)
        added = joined @ weights["eh_proj.weight"].T
        return norm(added, weights["input_layernorm.weight"]), added

    def heads(self, x: Tensor, positions: Tensor) -> Heads:
        """See `BatchedHead`."""
        return self._target.attention.heads(x, self._weights, self._target.config, positions)

    def outputs(self, x: Tensor, added: Tensor, attended: Tensor, rules: EntryRules) -> tuple[Tensor, Tensor]:
        """See `BatchedHead`."""
        handed, normed = self.states(x, added, attended)
        return handed, self.logits(normed)

    def states(self, x: Tensor, added: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is handed on, and the states after the layer's norm, each [R, T, D]."""
        y = added + self._target.attention.out(attended, x, self._weights)
        y = self._target.feed_forward(y, self._weights)
        normed = self._target.model.norm(y, self._weights["shared_head.norm.weight"])
        return (y if self._form.handed == "before_norm" else normed), normed

    def logits(self, normed: Tensor) -> Tensor:
        """Return the logits [.., V] of states after the layer's norm."""
        return normed @ self._weights.get("shared_head.head.weight", self._target.lm_head).T
