"""Scenarios that tensor-parallel ranks serve together (docs/semantics.md, S-TP)."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from draftproof.properties.values.drafts import ProbeDraft
from draftproof.properties.values.scenario import Linear, ProbeModel, Ranks, Scenario

P = TypeVar("P", ProbeModel, ProbeDraft)
RANKS = 2


def with_tensor_ranks(scenario: Scenario, *, cut: bool) -> Scenario:
    """Return the scenario on two ranks that share every layer, of which each has as many heads as were drawn.

    So sizes that are distinct on one rank are so on each of two. The draft is shared out, too, or not `cut`.
    """
    model, draft = scenario.model, scenario.draft
    assert isinstance(model, ProbeModel)
    model = _shared(model)
    if model.linear:
        model = replace(model, linear=_shared_linear(model.linear))
    if cut and isinstance(draft, ProbeDraft):
        draft = _shared(draft)
    ranks = Ranks(tensor=RANKS, draft_tensor=RANKS if cut else 1)
    return replace(scenario, model=model, draft=draft, ranks=ranks)


def without_tensor_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario on one rank, which has every layer whole."""
    return replace(scenario, ranks=Ranks()) if scenario.ranks.tensor > 1 else scenario


def _shared(part: P) -> P:
    return replace(part, heads=RANKS * part.heads, kv_heads=RANKS * part.kv_heads)


def _shared_linear(sizes: Linear) -> Linear:
    return replace(sizes, key_heads=RANKS * sizes.key_heads, value_heads=RANKS * sizes.value_heads)
