"""Scenarios that tensor-parallel ranks serve together (docs/semantics/ranks.md, S-TP)."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import NOTHING_OF_RANKS, Feature
from draftproof.properties.values.drafts import DraftKind, ProbeDraft
from draftproof.properties.values.scenario import Linear, ProbeModel, Ranks, Scenario

P = TypeVar("P", ProbeModel, ProbeDraft)
_RANKS = (2, 2, 3, 2, 4)
"""How many ranks there are; each is a process, so more of them are dearer."""


def with_tensor_ranks(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw how many ranks share every layer, each with as many heads as were drawn, and whether the draft is shared.

    So sizes that are distinct on one rank are so on each of several.
    """
    model, draft = scenario.model, scenario.draft
    assert isinstance(model, ProbeModel)
    ranks, cut = choose.one_of(_RANKS), choose.boolean()
    # No more than a head for each lane and each of the 64 heads that there may be.
    ranks = min(ranks, model.lanes, getattr(draft, "lanes", model.lanes))
    model = _shared(model, ranks)
    if model.linear:
        model = replace(model, linear=_shared_linear(model.linear, ranks))
    if cut and isinstance(draft, ProbeDraft):
        draft = _shared(draft, ranks)
    return replace(scenario, model=model, draft=draft, ranks=Ranks(tensor=ranks, draft_tensor=ranks if cut else 1))


def without_tensor_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario on one rank, which has every layer whole."""
    return replace(scenario, ranks=Ranks()) if scenario.ranks.tensor > 1 else scenario


def _shared(part: P, ranks: int) -> P:
    return replace(part, heads=ranks * part.heads, kv_heads=ranks * part.kv_heads)


def _shared_linear(sizes: Linear, ranks: int) -> Linear:
    return replace(sizes, key_heads=ranks * sizes.key_heads, value_heads=ranks * sizes.value_heads)


def _has_layers(kind: DraftKind) -> bool:
    return kind.proposes != "lookup"


_run, _of_layers = (facts_of("run", channels="rank.collectives", **more) for more in ({}, {"drafts": _has_layers}))
_FACTS = (
    _run("tensor_ranks_run", effect=True),
    _of_layers("tensor_drafts_cut", shown="tensor ranks: draft cut"),
    _of_layers("tensor_drafts_whole", shown="tensor ranks: draft whole"),
    _run("tensor_padded_launches", shown="tensor ranks: padding"),
    _run("tensor_hybrids", shown="tensor ranks: of a hybrid", takes="hybrid"),
    _run("tensor_draws", shown="tensor ranks: drawn", takes="sampling"),
    _run("tensor_windows", shown="tensor ranks: windows", takes="windows"),
)

FEATURE = Feature(
    name="tensor-parallel",
    not_compared=NOTHING_OF_RANKS,
    weight=0.3,
    what="ranks share the heads of every layer",
    has=lambda one: one.ranks.tensor > 1,
    without=without_tensor_ranks,
    draw=with_tensor_ranks,
    rule="S-TP-7",
    of_probes=True,
    refuses={"data-parallel": "S-RANK-3 and S-TP-1 both cut lanes among all ranks, and none is of two groups"},
    facts=_FACTS,
)
