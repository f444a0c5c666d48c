"""Names of facts, by the feature in whose row they stand, and by what they take."""

from __future__ import annotations

from draftproof.properties.coverage.fact import words
from draftproof.properties.coverage.facts import FACTS
from draftproof.properties.features import FEATURES_BY_NAME


def names_of(*features: str) -> tuple[str, ...]:
    """Return the names of the facts in the rows of features."""
    return tuple(fact.name for feature in features for fact in FEATURES_BY_NAME[feature].facts)


def taking(what: str) -> frozenset[str]:
    """Return the names of the facts that cannot be without a feature, or an ability of a subject."""
    return frozenset(fact.name for fact in FACTS if (what,) in words(fact.takes))
