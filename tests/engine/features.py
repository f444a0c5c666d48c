"""Generated scenarios, one for each thing that a batch may hold beside greedy chains: the same on a CPU as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.scenario import ProbeModel, Request, Scenario

SEED, COUNT = 4040, 240


def _any(holds: Callable[[Request], object]) -> Callable[[Scenario], object]:
    return lambda scenario: any(holds(request) for request in scenario.requests)


def _is_hybrid(scenario: Scenario) -> bool:
    return isinstance(scenario.model, ProbeModel) and "linear_attention" in scenario.model.types


def _both_kinds(scenario: Scenario) -> bool:
    return len({request.sampling is None for request in scenario.requests}) == 2


FEATURES: dict[str, Callable[[Scenario], object]] = {
    "a tree": lambda scenario: scenario.tree and not scenario.is_sampled,
    "a sampled tree": lambda scenario: scenario.tree and scenario.is_sampled,
    "a tree of a hybrid by snapshot": lambda scenario: (
        scenario.tree and _is_hybrid(scenario) and scenario.states.commit == "snapshot"
    ),
    "a tree of a hybrid by replay": lambda scenario: (
        scenario.tree and _is_hybrid(scenario) and scenario.states.commit == "replay"
    ),
    "a tree of matches": lambda scenario: scenario.tree and isinstance(scenario.draft, Ngram),
    "sampled beside greedy": lambda scenario: not scenario.tree and _both_kinds(scenario),
    "drafts that are drawn": lambda scenario: scenario.drafts_sampled,
    "a sampled hybrid by snapshot": lambda scenario: (
        _is_hybrid(scenario) and scenario.is_sampled and scenario.states.commit == "snapshot"
    ),
    "a sampled hybrid by replay": lambda scenario: (
        _is_hybrid(scenario) and scenario.is_sampled and scenario.states.commit == "replay"
    ),
    "penalties": lambda scenario: scenario.is_penalized,
    "a grammar": lambda scenario: scenario.is_constrained,
    "logprobs": _any(lambda request: request.logprobs is not None),
    "preemption": lambda scenario: scenario.schedule.preemption,
    "a prefix cache": lambda scenario: scenario.schedule.prefix_cache and not _is_hybrid(scenario),
    "a prefix cache of a hybrid": lambda scenario: scenario.schedule.prefix_cache and _is_hybrid(scenario),
    "an abort": _any(lambda request: request.abort_at is not None),
    "a controller": lambda scenario: scenario.adaptive,
    "an overlap": lambda scenario: scenario.schedule.overlap and not _is_hybrid(scenario),
    "an overlap of a hybrid": lambda scenario: scenario.schedule.overlap and _is_hybrid(scenario),
}
"""What a scenario has to have, by its name."""


@cache
def generated() -> tuple[Scenario, ...]:
    """Return the scenarios that are looked through."""
    return tuple(generate(SEED, COUNT, ("eagle", "ngram")))


def featured(name: str, most: int = 2) -> list[Scenario]:
    """Return the first scenarios that have the feature and show what happens inside."""
    return [scenario for scenario in generated() if scenario.taps and FEATURES[name](scenario)][:most]
