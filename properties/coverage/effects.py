"""Whether a feature did anything: a scenario can have one that never comes into play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from draftproof.properties.coverage.facts import EFFECTS


def acts(feature: str, counted: Mapping[str, int]) -> bool:
    """Return whether a feature had an effect in a scenario, given the counts of the scenario."""
    return any(map(counted.get, EFFECTS[feature]))


def in_effect(features: Iterable[str], counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return in how many scenarios each feature had an effect, given the counts of each scenario."""
    return {name: sum(acts(name, one) for one in counted) for name in features}


def together(features: Sequence[str], counted: Sequence[Mapping[str, int]]) -> int:
    """Return in how many of these scenarios all of the features had an effect."""
    return sum(all(acts(name, one) for name in features) for one in counted)


def without_effect(effects: Mapping[str, int], at_once: int, uncovered: frozenset[str]) -> tuple[str, ...]:
    """Return, as counts in words, what no scenario reached of features that did nothing; none that cannot be shown.

    `effects` is what `in_effect` returns, and `at_once` what `together` does.
    """
    shown = {name: [one for one in EFFECTS[name] if one not in uncovered] for name in effects}
    inert = [counts for name, counts in shown.items() if counts and not effects[name]]
    if inert or at_once or len(effects) < 2 or not all(shown.values()):
        return tuple(f"{' or '.join(counts)} >= 1" for counts in inert)
    return (f"{' and '.join(effects)} together >= 1",)
