"""Select scenarios by their features (features/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from draftproof.errors import DraftproofError
from draftproof.properties.features import refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.fit import fit_generated
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario

PATIENCE = 1000
"""The search ends after so many scenarios in a row of which none has the features."""


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
    found. Raises NoScenarioError if there is none, and UnfitError.
    """
    for feature in features:
        if not (feature.of_model or limits.takes(feature.name)):
            raise NoScenarioError(f"{feature.name}: nothing that this subject can run")
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
        if len(found) == count or since == PATIENCE:
            break
    if not found:
        raise NoScenarioError(_why(features, others))
    return Selected(tuple(found), len(found) + len(others))


def _why(features: Sequence[Feature], others: Sequence[Scenario]) -> str:
    """Return the definition by which one feature excludes another, or the drafts; else how many have them not."""
    for one, other in combinations(features, 2):
        if because := refusal(one.name, other.name):
            return f"{one.name} is not defined beside {other.name}: {because}"
    kinds = {kind_of(scenario.draft).name: kind_of(scenario.draft) for scenario in others}
    for feature in features:
        if kinds and not any(map(feature.drafts, kinds.values())):
            return f"{feature.name} is not defined with {', '.join(kinds)}: {feature.because}"
    if len(features) == 1:
        return f"none of the first {len(others)} scenarios has it"
    return f"none of the first {len(others)} scenarios has all of them"
