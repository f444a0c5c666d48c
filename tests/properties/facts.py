"""Features for tests of all of them, and names of facts by the feature in whose row they stand or that they take."""

import pytest

from draftproof.properties.coverage.fact import words
from draftproof.properties.coverage.facts import FACTS
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME
from draftproof.properties.features.feature import Feature


def names_of(*features: str) -> tuple[str, ...]:
    """Return the names of the facts in the rows of features."""
    return tuple(fact.name for feature in features for fact in FEATURES_BY_NAME[feature].facts)


def taking(what: str) -> frozenset[str]:
    """Return the names of the facts that cannot be without a feature, or an ability of a subject."""
    return frozenset(fact.name for fact in FACTS if (what,) in words(fact.takes))


def each(*features: Feature) -> pytest.MarkDecorator:
    """Return the parameter `feature`."""
    return pytest.mark.parametrize("feature", features, ids=[one.name for one in features])


def needing(feature: Feature) -> set[str]:
    """Return the features that there are only beside this one."""
    return {one.name for one in FEATURES if feature.name in one.needs}
