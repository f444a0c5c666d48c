"""All facts. Those of features come first, each with what its feature needs."""

from __future__ import annotations

from dataclasses import replace

from draftproof.properties.coverage.fact import Fact
from draftproof.properties.coverage.table import TABLE
from draftproof.properties.features import FEATURES
from draftproof.properties.features.feature import Feature


def _placed(feature: Feature, fact: Fact) -> Fact:
    """Return a fact as it is of a feature: it takes what that takes."""
    takes = ", ".join(filter(None, (feature.name, *feature.needs, fact.takes)))
    return replace(
        fact,
        takes=takes,
        drafts=lambda kind: feature.drafts(kind) and fact.drafts(kind),
        real=not feature.of_probes and fact.real,
    )


FACTS = (*TABLE, *(_placed(feature, fact) for feature in FEATURES for fact in feature.facts))
"""Every fact once, by its name."""
FACT_NAMES = tuple(fact.name for fact in FACTS)
FACTS_BY_NAME = {fact.name: fact for fact in FACTS}
SHOWN = tuple(fact for fact in FACTS if fact.shown)
"""Those that a check and a campaign show by their groups."""
GROUPS = {
    group: tuple(one for one in SHOWN if one.group == group) for group in dict.fromkeys(one.group for one in SHOWN)
}
"""group -> its facts."""
EFFECTS = {feature.name: tuple(fact.name for fact in feature.facts if fact.effect) for feature in FEATURES}
"""feature -> the facts that show its effect: at least one of them happened wherever the feature did something.

With `preemption` a request must have been preempted, with `windows` a row must not have seen all of its context, with
`sampling` a draft must have been verified by a draw.
"""
