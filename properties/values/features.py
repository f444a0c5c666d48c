"""Features: what a scenario can have beside greedy chains of one dense engine. The one place that says what each is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from draftproof.properties.values.fp8 import draft_keeps, target_keeps
from draftproof.properties.values.scenario import ProbeModel, Request, Scenario
from draftproof.properties.values.validate import (
    beside_handover,
    beside_overlap,
    beside_ranks,
    beside_step_tokens,
    beside_tree,
)


def _nothing(_scenario: Scenario) -> tuple[str, ...]:
    return ()


class Feature(NamedTuple):
    """A feature by its name; `has` tells whether a scenario has it, `what` says so in a line.

    `limit` is the field of a subject's limits without which it is taken away ("": none). `refuses` returns what of a
    scenario the feature is not defined beside, by the definitions `rule` of docs/semantics.md. `lacks` are counts that
    what is generated with the feature never reaches.
    """

    name: str
    what: str
    has: Callable[[Scenario], bool]
    limit: str = ""
    refuses: Callable[[Scenario], tuple[str, ...]] = _nothing
    rule: str = ""
    lacks: tuple[str, ...] = ()


def is_hybrid(scenario: Scenario) -> bool:
    """Return whether a probe target has layers with a recurrent state."""
    return isinstance(scenario.model, ProbeModel) and "linear_attention" in scenario.model.types


def _any(holds: Callable[[Request], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(holds(request) for request in scenario.requests)


def _has_codes(scenario: Scenario) -> bool:
    codes = any(getattr(part, "kv_bits", 64) < 64 for part in (scenario.model, scenario.draft))
    return codes or target_keeps(scenario) or draft_keeps(scenario.draft)


def _refuses_trees(scenario: Scenario) -> tuple[str, ...]:
    return ("a tree",) if scenario.tree else ()


def _beside_tensor_ranks(scenario: Scenario) -> tuple[str, ...]:
    return beside_ranks(scenario) + (("data-parallel ranks",) if scenario.ranks.data > 1 else ())


FEATURES: tuple[Feature, ...] = (
    Feature("hybrid", "the probe target has gated delta net layers", is_hybrid),
    Feature(
        "trees",
        "drafts are trees",
        lambda one: one.tree is not None,
        "trees",
        beside_tree,
        "S-TREE-1",
    ),
    Feature(
        "controllers",
        "a controller changes the step count from round to round",
        lambda one: one.adaptive is not None,
        "controllers",
    ),
    Feature(
        "preemption",
        "pages are taken on demand, and a request gives way where they run out",
        lambda one: one.schedule.preemption,
        "preemption",
    ),
    Feature(
        "prefix-cache",
        "pages are kept for requests that begin with the same tokens",
        lambda one: one.schedule.prefix_cache,
        "caching",
    ),
    Feature("aborts", "a request is aborted", lambda one: one.has_aborts, "aborts"),
    Feature(
        "overlap",
        "the host plans a step while the one before runs",
        lambda one: bool(one.schedule.overlap),
        "overlap",
        beside_overlap,
        "S-OVERLAP-9",
    ),
    Feature(
        "mixed",
        "chunks of prompts and verify rows share a launch",
        lambda one: one.schedule.mixed,
        "mixed",
        _refuses_trees,
        "S-MIXED-7",
    ),
    Feature(
        "step-budget",
        "an engine step runs a limited number of tokens",
        lambda one: one.schedule.step_tokens > 0,
        "step_tokens",
        beside_step_tokens,
        "S-SCHED-10",
    ),
    Feature(
        "handover",
        "one engine runs prompts and hands requests over to one that decodes",
        lambda one: one.schedule.handover,
        "handover",
        beside_handover,
        "S-HANDOVER-8",
    ),
    Feature(
        "data-parallel",
        "requests are spread over ranks in lockstep",
        lambda one: one.ranks.data > 1,
        "ranks",
        beside_ranks,
        "S-RANK-6",
        # On each rank pages are enough for all of its few requests.
        ("admitted_before_others",),
    ),
    Feature(
        "tensor-parallel",
        "ranks share the heads of every layer",
        lambda one: one.ranks.tensor > 1,
        "ranks",
        _beside_tensor_ranks,
        "S-TP-7",
    ),
    Feature(
        "windows",
        "layers of target or draft see a window of positions",
        lambda one: one.has_windows,
        "windows",
        _refuses_trees,
        "S-WINDOW-4",
    ),
    Feature("codes", "KV entries of target or draft are kept in 8 or 16 bits", _has_codes, "codes"),
    Feature(
        "images", "a prompt has images, and tokens three positions (M-RoPE)", _any(lambda one: one.images), "images"
    ),
    Feature("sampling", "a request draws its tokens", lambda one: one.is_sampled, "sampling"),
    Feature("drawn-drafts", "drafts of a sampled request are drawn, too", lambda one: one.drafts_sampled, "sampling"),
    Feature(
        "penalties",
        "logits change by bias, repetition, frequency or presence",
        lambda one: one.is_penalized,
        "penalties",
    ),
    Feature("grammars", "a grammar says which tokens are allowed", lambda one: one.is_constrained, "grammars"),
    Feature("logprobs", "a request asks for logprobs", lambda one: one.most_logprobs is not None, "logprobs"),
    Feature(
        "prompt-logprobs",
        "a request asks for logprobs of its prompt",
        lambda one: one.most_prompt_logprobs is not None,
        "logprobs",
    ),
    Feature(
        "stop-sequences",
        "a request ends after a stop sequence",
        _any(lambda one: one.stop_sequences or one.sequences_at),
        "ends",
    ),
    Feature("min-tokens", "a request has a minimum of tokens", lambda one: one.has_minimum, "ends"),
    Feature(
        "ends",
        "stop sequences, a minimum, or stop ids of the model, heeded or ignored",
        lambda one: one.has_ends,
        "ends",
    ),
)
BY_NAME = {feature.name: feature for feature in FEATURES}


def features_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the features that a scenario has, in the order of FEATURES."""
    return tuple(feature.name for feature in FEATURES if feature.has(scenario))
