"""Select scenarios by their features (values/features.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from draftproof.errors import DraftproofError
from draftproof.properties.fit import fit_generated
from draftproof.properties.values.features import Feature
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
        if feature.limit and not getattr(limits, feature.limit):
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
    """Return the rule by which one feature excludes another, or all that there is; else how many have them not."""
    for feature in features:
        refused = [frozenset(feature.refuses(one)) for one in others]
        # Of a single feature all that there is stands in its way.
        for has in [one.has for one in features if one is not feature] or [lambda _: True]:
            beside = [names for names, one in zip(refused, others, strict=True) if has(one)]
            if beside and (always := frozenset.intersection(*beside)):
                # Several may be there by chance: the rarest is what the other feature brings with it.
                often = Counter(name for names in refused for name in names)
                name = min(sorted(always), key=often.__getitem__)
                return f"{feature.name}: not defined beside {name} ({feature.rule})"
    if len(features) == 1:
        return f"none of the first {len(others)} scenarios has it"
    listed = "docs/semantics.md lists what never runs together (What runs beside what)"
    return f"none of the first {len(others)} scenarios has all of them; {listed}"
