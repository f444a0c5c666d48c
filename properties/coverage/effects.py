"""Whether a feature did anything: a scenario can have one that never comes into play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

EFFECTS: Mapping[str, tuple[str, ...]] = {
    name: tuple(counts.split())
    for name, counts in {
        "hybrid": "states_committed_none states_committed_partial states_committed_all states_committed_without_drafts",
        "trees": "tree_rounds",
        "controllers": "step_switches_up step_switches_down batches_without_steps batches_too_large_for_drafts",
        "preemption": "preemptions",
        "prefix-cache": "prefix_hits",
        "aborts": "aborted_waiting aborted_in_prefill aborted_in_decode aborted_preempted",
        "overlap": "overlapped_steps",
        "mixed": "mixed_launches",
        "step-budget": "drafts_cut_by_step_tokens chunks_cut_by_step_tokens waits_for_step_tokens",
        "handover": "handovers",
        "data-parallel": "idle_launches agreed_tokens agreed_rows agreed_sizes agreed_steps",
        "tensor-parallel": "tensor_ranks_run",
        "windows": "window_rounds window_drafts window_prompts",
        "codes": "coded_targets coded_drafts",
        "images": "image_prompts",
        "sampling": "sampled_accepted sampled_residuals sampled_after_all",
        "drawn-drafts": "drafts_drawn",
        "penalties": "penalty_changed_choice",
        "grammars": "grammar_changed_choice",
        "logprobs": "rounds",
        "prompt-logprobs": "prompt_logprobs_told",
        "stop-sequences": "ends_by_sequence sequences_before_minimum sequences_from_prompt",
        "min-tokens": "minimum_changed_choice",
        "ends": "ends_by_sequence sequences_before_minimum sequences_from_prompt ends_by_eos eos_ignored"
        " minimum_changed_choice",
    }.items()
}
"""Feature (values/features.py) -> the counts of which one at least is not zero in a scenario in which it did something.

With `preemption` a request must have given way, with `windows` a row must not have seen all of its context, with
`sampling` a draft must have been verified by a draw; whoever asks for logprobs has them in every round."""


def acts(feature: str, counted: Mapping[str, int]) -> bool:
    """Return whether a feature did something in a scenario of which these are the counts."""
    return any(map(counted.get, EFFECTS[feature]))


def in_effect(features: Iterable[str], counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return in how many scenarios, of each of which these are the counts, each of the features did something."""
    return {name: sum(acts(name, one) for one in counted) for name in features}


def together(features: Sequence[str], counted: Sequence[Mapping[str, int]]) -> int:
    """Return in how many of these scenarios all of the features did something."""
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
