"""The models of drafts that consume entries, as `entries.py` runs them, and what each takes of the target."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from draftproof.reference.audit.rules import EntryRules, StateFrom
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.layers import Places, rms_norm
from draftproof.reference.models.mtp_layer import MtpLayer
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget, TargetPass

Model = ReferenceCheckpointTarget[Any]


def last_states(whole: TargetPass, takes: str, state: StateFrom) -> Tensor:
    """Return the states [n, D] that a draft takes of a pass, or others in their place."""
    if state == "layer before":
        return whole.layers[max(0, len(whole.layers) - 2)]
    is_normed = (takes == "after_norm") == (state == "as defined")
    return whole.hidden if is_normed else whole.layers[-1]


def features(whole: TargetPass, layers: tuple[int, ...], state: StateFrom) -> Tensor:
    """Return the outputs of these layers side by side [n, F], or of their neighbours."""
    shift = {"layer before": -1, "layer after": 1}.get(state, 0)
    last = len(whole.layers) - 1
    return torch.cat([whole.layers[min(max(layer + shift, 0), last)] for layer in layers], dim=-1)


class PlayedEagle:
    """An EAGLE head, or an MTP layer in its place; see `entries.EntryHead`."""

    ids: tuple[int, ...] | None = None

    def __init__(self, target: Model, head: ReferenceEagleHead | MtpLayer) -> None:
        self._target, self._head = target, head
        self._swapped = _swapped(head)

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `EntryHead`."""
        return last_states(whole, self._head.takes, rules.state)

    def forward(self, tokens: list[int], states: Tensor, places: Places, rules: EntryRules) -> HeadPass:
        """See `EntryHead`."""
        head = self._swapped if rules.hidden_first else self._head
        return head.forward(tokens, states, places)

    def again(self, tokens: tuple[int, ...]) -> TargetPass:
        """See `EntryHead`."""
        return self._target.forward(tokens)


class PlayedEagle3(PlayedEagle):
    """An EAGLE-3 head; see `entries.EntryHead`."""

    def __init__(self, target: Model, head: ReferenceEagle3Head) -> None:
        self._target, self._wide, self.ids = target, head, head.ids

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor:
        """See `EntryHead`."""
        return features(whole, self._wide.features, rules.state) @ self._wide.fc.T

    def forward(self, tokens: list[int], states: Tensor, places: Places, rules: EntryRules) -> HeadPass:
        """See `EntryHead`."""
        done = self._wide.forward(tokens, states, places)
        if rules.handed == "after the norm":
            norm = self._wide.tensors["norm.weight"]
            return replace(done, g=rms_norm(done.g, norm, self._wide.config.rms_norm_eps))
        return done


def _swapped(head: ReferenceEagleHead | MtpLayer) -> ReferenceEagleHead | MtpLayer:
    """Return a head with the two inputs of its projection swapped."""
    if isinstance(head, MtpLayer):
        form = head.form._replace(hidden_first=not head.form.hidden_first)
        return MtpLayer(head.target, head.tensors, form)
    swapped = copy(head)
    swapped.fc = torch.cat(head.fc.chunk(2, dim=1)[::-1], dim=1)
    return swapped
