"""Build the target and the draft that a scenario names."""

from __future__ import annotations

from importlib import import_module

from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.weights.probe import Weights
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.drafts.eagle import ReferenceEagle
from draftproof.reference.drafts.eagle_tree import ReferenceEagleTree
from draftproof.reference.drafts.ngram import ReferenceNgram
from draftproof.reference.drafts.ngram_tree import ReferenceNgramTree
from draftproof.reference.memo import Memo
from draftproof.reference.probe.target import Parts, ReferenceProbeTarget
from draftproof.reference.protocols import ReferenceTarget


def build(
    scenario: Scenario, memo: Memo, of_target: Weights | None = None, of_draft: Weights | None = None
) -> tuple[ReferenceTarget, ReferenceDraft]:
    """Return the target and the draft of a scenario; a probe with these weights in place of its own, where given.

    Raises ValueError for a checkpoint that is bad or does not fit.
    """
    model, draft = scenario.model, scenario.draft
    if isinstance(model, ProbeModel):
        module = import_module(f"draftproof.reference.drafts.{algorithm(draft)}")
        parts = Parts.of(model, of_target, model) if of_target else None
        own = module.probe(draft, model, memo, of_draft)
        return ReferenceProbeTarget(model, memo, parts), treed(own, scenario)
    from draftproof.reference.checkpoints import load  # probes need no torch

    target, made = load(model, draft, memo)
    return target, treed(made, scenario)


def treed(draft: ReferenceDraft, scenario: Scenario) -> ReferenceDraft:
    """Return the draft as it proposes in this scenario: a tree, if it has one."""
    if scenario.tree is None:
        return draft
    if isinstance(draft, ReferenceNgram):
        return ReferenceNgramTree(draft.spec, scenario.tree)
    return ReferenceEagleTree(draft.head, scenario.tree) if isinstance(draft, ReferenceEagle) else draft
