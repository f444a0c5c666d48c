"""Generated scenarios, one for each thing that a batch may hold beside greedy chains: the same on a CPU as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.features import features_of
from draftproof.properties.values.scenario import Scenario

SEED, COUNT = 4040, 240


def _has(*names: str, lacks: str = "", commit: str = "") -> Callable[[Scenario], bool]:
    """Return whether a scenario has all of these features, not that which it `lacks`, and commits states so."""

    def holds(scenario: Scenario) -> bool:
        found = features_of(scenario)
        return {*names} <= {*found} and lacks not in found and commit in ("", scenario.states.commit)

    return holds


def _both_kinds(scenario: Scenario) -> bool:
    return len({request.sampling is None for request in scenario.requests}) == 2


FEATURES: dict[str, Callable[[Scenario], object]] = {
    "a tree": _has("trees", lacks="sampling"),
    "a sampled tree": _has("trees", "sampling"),
    "a tree of a hybrid by snapshot": _has("trees", "hybrid", commit="snapshot"),
    "a tree of a hybrid by replay": _has("trees", "hybrid", commit="replay"),
    "a tree of matches": lambda scenario: scenario.tree and isinstance(scenario.draft, Ngram),
    "sampled beside greedy": lambda scenario: not scenario.tree and _both_kinds(scenario),
    "drafts that are drawn": _has("drawn-drafts"),
    "a sampled hybrid by snapshot": _has("sampling", "hybrid", commit="snapshot"),
    "a sampled hybrid by replay": _has("sampling", "hybrid", commit="replay"),
    "penalties": _has("penalties"),
    "a grammar": _has("grammars"),
    "logprobs": _has("logprobs"),
    "preemption": _has("preemption"),
    "a prefix cache": _has("prefix-cache", lacks="hybrid"),
    "a prefix cache of a hybrid": _has("prefix-cache", "hybrid"),
    "an abort": _has("aborts"),
    "a controller": _has("controllers"),
    "an overlap": _has("overlap", lacks="hybrid"),
    "an overlap of a hybrid": _has("overlap", "hybrid"),
}
"""What a scenario has to have, by its name."""


@cache
def generated() -> tuple[Scenario, ...]:
    """Return the scenarios that are looked through."""
    return tuple(generate(SEED, COUNT, ("eagle", "ngram")))


def featured(name: str, most: int = 2) -> list[Scenario]:
    """Return the first scenarios that have the feature and show what happens inside."""
    return [scenario for scenario in generated() if scenario.taps and FEATURES[name](scenario)][:most]
