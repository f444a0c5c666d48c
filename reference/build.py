"""Build the target and the draft that a scenario names."""

from __future__ import annotations

from importlib import import_module

from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.memo import Memo
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.protocols import ReferenceTarget


def build(scenario: Scenario, memo: Memo) -> tuple[ReferenceTarget, ReferenceDraft]:
    """Return the target and the draft of a scenario. Raises ValueError for a checkpoint that is bad or does not fit."""
    model, draft = scenario.model, scenario.draft
    if isinstance(model, ProbeModel):
        module = import_module(f"draftproof.reference.drafts.{algorithm(draft)}")
        return ReferenceProbeTarget(model, memo), module.probe(draft, model, memo)
    from draftproof.reference.checkpoints import load  # probes need no torch

    return load(model, draft, memo)
