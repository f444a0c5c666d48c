"""Select scenarios by their features (features/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from draftproof.properties.features import refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.fit import fit_generated
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.drafts import ALGORITHMS, kind_of
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import ProbeModel, Scenario

PATIENCE = 1000
"""The search ends after this many scenarios in a row without the features."""
_TURNS = 4 * len(ALGORITHMS)
"""In this many scenarios every draft has had its turn: features that none of them had will not come."""


class NoScenarioError(DraftproofError, ValueError):
    """No scenario has the features; the message says why, or how many were looked at."""


class Selected(NamedTuple):
    """Scenarios that have the features, fitted to the subject, and how many of the list were looked at."""

    scenarios: tuple[Scenario, ...]
    looked_at: int


def select(
    listed: Iterable[Scenario],
    features: Sequence[Feature],
    count: int,
    limits: Limits,
    progress: Callable[[], None] = lambda: None,
) -> Selected:
    """Return the first `count` scenarios that have all of the features, once they are fitted to a subject.

    There are fewer if PATIENCE scenarios in a row have them not, or the list ends; `progress` is told of each that is
    found. Raises NoScenarioError if there is none, at once where a definition says so, and UnfitError.
    """
    for feature in features:
        if not (feature.of_model or limits.takes(feature.name)):
            has = "all" if limits.features == "all" else ", ".join(limits.features) or "none"
            raise NoScenarioError(
                f"{feature.name}: nothing that this subject can run: the features of its limits are {has}"
            )
    for one, other in combinations(features, 2):
        if because := refusal(one.name, other.name):
            raise NoScenarioError(f"{one.name} is not defined beside {other.name}: {because}")
    found, others, since = list[Scenario](), list[Scenario](), 0
    for generated in listed:
        scenario = fit_generated(generated, limits)
        if all(feature.has(scenario) for feature in features):
            found.append(scenario)
            progress()
            since = 0
        else:
            others.append(scenario)
            since += 1
            if since == _TURNS and not found:
                _require_defined(features, others)
        if len(found) == count or since == PATIENCE:
            break
    if not found:
        _require_defined(features, others)
        has = "has it" if len(features) == 1 else "has all of them"
        raise NoScenarioError(f"none of the first {len(others)} scenarios {has}")
    return Selected(tuple(found), len(found) + len(others))


def _require_defined(features: Sequence[Feature], others: Sequence[Scenario]) -> None:
    """Raise NoScenarioError if a feature is not defined for any model or any draft of these scenarios."""
    drafts = {kind_of(scenario.draft).name: kind_of(scenario.draft) for scenario in others}
    for feature in features:
        if others and feature.of_probes and not any(isinstance(one.model, ProbeModel) for one in others):
            raise NoScenarioError(f"{feature.name} is not defined for a checkpoint")
        if drafts and not any(map(feature.drafts, drafts.values())):
            raise NoScenarioError(f"{feature.name} is not defined with {', '.join(drafts)}: {feature.because}")
