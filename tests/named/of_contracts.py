"""What named scenarios of contracts, faults, campaigns and commands must have, which test_named.py holds them to."""

from __future__ import annotations

from collections.abc import Callable

from draftproof.properties.values.drafts import Algorithm, algorithm
from draftproof.properties.values.features import features_of
from draftproof.properties.values.scenario import Adaptive, AdaptiveByBatch, Scenario

_ADDED = {"hybrid"}


def _of(draft: str, *features: str) -> Callable[[Scenario], bool]:
    """Return whether a scenario is of this draft and has these features, and no others but a hybrid target."""

    def holds(one: Scenario) -> bool:
        return algorithm(one.draft) == draft and set(features_of(one)) - _ADDED == set(features) - _ADDED

    return holds


def _only(*features: str) -> Callable[[Scenario], bool]:
    """Return whether a scenario has exactly these features, whatever its draft."""
    return lambda one: features_of(one) == features


def _graphs(one: Scenario) -> bool:
    return bool(one.graphs.sizes)


NAMES: dict[str, Callable[[Scenario], bool]] = {
    "aborted": lambda one: _of("eagle", "aborts")(one) and len(one.requests) > 1,
    "adaptive_rising": lambda one: _only("controllers")(one) and isinstance(one.adaptive, Adaptive),
    "alone_preempted": lambda one: _only("preemption")(one) and one.variant == "alone",
    "budgeted": _only("step-budget"),
    "by_batch": lambda one: _only("controllers")(one) and isinstance(one.adaptive, AdaptiveByBatch),
    "codes_both": lambda one: _only("codes")(one) and max(one.model.kv_bits, one.draft.kv_bits) < 64,
    "dflash_block": _of("dflash"),
    "drawn_drafts": _only("sampling", "drawn-drafts"),
    "eagle3_features": lambda one: _of("eagle3")(one) and len(one.draft.features) > 1,
    "eagle_padded": lambda one: _of("eagle")(one) and min(one.graphs.sizes) > one.schedule.max_batch,
    "ends": lambda one: _of("eagle", "stop-sequences", "min-tokens", "ends")(one) and bool(one.eos),
    "grammar": _only("grammars"),
    "handed_over": _only("handover"),
    "grammar_sampled": _only("sampling", "grammars"),
    "hybrid_replay": lambda one: (
        _only("hybrid")(one) and _of("eagle")(one) and one.states.commit == "replay" and _graphs(one)
    ),
    "images": _only("images"),
    "logprobs": _of("eagle", "logprobs"),
    "mixed_eagle": lambda one: _of("eagle", "mixed")(one) and bool(one.graphs.tokens),
    "mtp_chain_partial": lambda one: _of("mtp")(one) and one.draft.chain and one.steps > 2,
    "mtp_unchained": lambda one: _of("mtp")(one) and not one.draft.chain and one.steps > 2,
    "ngram_adaptive": lambda one: _of("ngram", "controllers")(one) and one.adaptive is not None,
    "ngram_matches": _of("ngram"),
    "overlapped_stop": lambda one: _only("overlap")(one) and any(of.stop_at >= 0 for of in one.requests),
    "penalized": _only("penalties"),
    "preempted_hybrid": _only("hybrid", "preemption"),
    "prefix_cached": lambda one: _only("prefix-cache")(one) and len(one.requests) > 3,
    "prompt_logprobs": _only("prompt-logprobs"),
    "ranks_data": lambda one: _only("hybrid", "data-parallel")(one) and [of.rank for of in one.requests] == [0, 0, 1],
    "sampled_eagle": _of("eagle", "sampling"),
    "five_in_graphs": lambda one: _of("eagle")(one) and len(one.requests) > 4 and len(one.graphs.sizes) > 1,
    "standalone": _of("standalone"),
    "tree_coded_ngram": lambda one: _of("ngram", "trees", "codes", "sampling")(one) and "hybrid" in features_of(one),
    "tree_eagle": _of("eagle", "trees"),
    "windowed": lambda one: _only("windows")(one) and one.widest_window > 0,
}
OF_DRAFTS: dict[Algorithm, str] = {
    "eagle": "eagle_padded",
    "mtp": "mtp_chain_partial",
    "dflash": "dflash_block",
    "ngram": "ngram_matches",
    "standalone": "standalone",
    "eagle3": "eagle3_features",
}
"""A plain scenario of each draft."""
