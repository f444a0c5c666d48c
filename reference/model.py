"""What speculative decoding needs of models: two protocols, and the models of a scenario."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from draftproof.properties.values.drafts import CheckpointDraft, Eagle
from draftproof.properties.values.scenario import Checkpoint, LayerType, ProbeModel, Scenario
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe import ProbeEagleHead, ProbeTarget


class Target(Protocol):
    """A language model without a cache: every call is one causal pass from token zero."""

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer: which of them have key-value entries and which have states."""

    def forward(self, tokens: tuple[int, ...]) -> Pass:
        """Tokens at positions 0, 1, ..; `hidden` is what the head consumes (docs/semantics.md, "Draft heads")."""


class Head(Protocol):
    """An EAGLE head without a cache."""

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Entries at positions 0, 1, ..; entry i has the token of position i + 1; `hidden` is the state handed on."""


def build(scenario: Scenario, memo: Memo) -> tuple[Target, Head]:
    """The target and the head of a scenario. Raises ValueError for a checkpoint that cannot be read or does not fit."""
    if isinstance(scenario.model, ProbeModel) and isinstance(scenario.draft, Eagle):
        return ProbeTarget(scenario.model, memo), ProbeEagleHead(scenario.draft, scenario.model, memo)
    from draftproof.reference.real import load  # probes need no torch

    if isinstance(scenario.model, Checkpoint) and isinstance(scenario.draft, CheckpointDraft):
        return load(scenario.model, scenario.draft, memo)
    raise ValueError(f"head.kind is {type(scenario.draft).__name__}, allowed: the kind of the model")
