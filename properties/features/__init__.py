"""Features of scenarios: a row each, and what follows from all of them together."""

from __future__ import annotations

from draftproof.properties.choose import Choose
from draftproof.properties.features import (
    aborts,
    adaptive_steps,
    data_parallel,
    disaggregation,
    draft_batch,
    ends,
    grammars,
    hybrid,
    kv_quantization,
    logprobs,
    mixed,
    mrope,
    overlap,
    penalties,
    preemption,
    prefix_cache,
    refusals,
    sampling,
    tensor_parallel,
    token_budget,
    trees,
    windows,
)
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.scenario import Scenario

FEATURES: tuple[Feature, ...] = (
    hybrid.FEATURE,
    adaptive_steps.FEATURE,
    draft_batch.FEATURE,
    trees.FEATURE,
    preemption.FEATURE,
    token_budget.FEATURE,
    sampling.SAMPLING,
    sampling.DRAWN_DRAFTS,
    penalties.FEATURE,
    grammars.FEATURE,
    prefix_cache.FEATURE,
    logprobs.LOGPROBS,
    logprobs.PROMPT_LOGPROBS,
    ends.EOS,
    ends.MIN_TOKENS,
    ends.STOP_SEQUENCES,
    kv_quantization.FEATURE,
    mrope.FEATURE,
    disaggregation.FEATURE,
    aborts.FEATURE,
    windows.FEATURE,
    data_parallel.FEATURE,
    tensor_parallel.FEATURE,
    overlap.FEATURE,
    mixed.FEATURE,
    refusals.FEATURE,
)
"""All features, in the order in which they are drawn: what a feature goes by comes before it."""
FEATURES_BY_NAME = {feature.name: feature for feature in FEATURES}


def features_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the features that a scenario has, in the order of FEATURES."""
    return tuple(feature.name for feature in FEATURES if feature.has(scenario))


def draw(choose: Choose, scenario: Scenario, name: str) -> Scenario:
    """Draw a feature by its row, or by the row of a feature that the scenario has; nothing if it is not drawn."""
    others = (one.beside[name] for one in FEATURES if name in one.beside and one.has(scenario))
    draws = next(others, FEATURES_BY_NAME[name].draw)
    return draws(choose, scenario) if draws else scenario


def refusal(one: str, other: str) -> str:
    """Return why a feature is not defined beside another, "" if it is; the order of the two does not matter."""
    return FEATURES_BY_NAME[one].refuses.get(other, "") or FEATURES_BY_NAME[other].refuses.get(one, "")


def refused_beside(name: str) -> tuple[str, ...]:
    """Return the features that one is not defined beside, in the order of FEATURES."""
    return tuple(feature.name for feature in FEATURES if refusal(name, feature.name))
