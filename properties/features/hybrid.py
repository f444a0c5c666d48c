"""Targets with gated delta net layers: of all features the one that decides what memory there is."""

from __future__ import annotations

from draftproof.properties.features.feature import Feature
from draftproof.properties.values.paths import get, put
from draftproof.properties.values.scenario import ProbeModel, Scenario, States


def is_hybrid(scenario: Scenario) -> bool:
    """Return whether a probe target has layers with a recurrent state."""
    return isinstance(scenario.model, ProbeModel) and "linear_attention" in scenario.model.types


def without_hybrid(scenario: Scenario) -> Scenario:
    """Return the scenario with a target that attends in every layer, or in those that slide, if all are to slide."""
    if get(scenario, "model.linear") is None:
        return scenario
    types = tuple(kind for kind in get(scenario, "model.layer_types") if kind == "sliding_attention")
    types = types if len(types) == get(scenario, "model.layers") else ()
    dense = put(put(put(scenario, "model.layer_types", types), "model.linear", None), "states", States())
    dense = put(dense, "memory.checkpoint_slots", 0)
    # A dense target has no other way to commit.
    dense = put(dense, "variant", "none") if dense.variant == "other_commit" else dense
    return dense if types else put(dense, "model.window", 0)


FEATURE = Feature(
    name="hybrid",
    what="the probe target has gated delta net layers",
    has=is_hybrid,
    without=without_hybrid,
    rule="S-STATE-1",
    of_model=True,
    effects=(
        "states_committed_none",
        "states_committed_partial",
        "states_committed_all",
        "states_committed_without_drafts",
    ),
)
