"""Entries of a real model in FP8: which models and drafts can have them, beside what (S-KV-4)."""

from __future__ import annotations

from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.lib.invalid import require
from draftproof.properties.values.drafts import CheckpointDraft, Draft, KvCacheDtype, proposing
from draftproof.properties.values.scenario import Checkpoint, Scenario

FP8: KvCacheDtype = "fp8_e4m3"
ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")
"""Models in which every layer keeps keys and values by head, with a scale each."""
DRAFTS = proposing("steps")
"""Those that are run step by step, over entries of their own."""


def target_keeps(scenario: Scenario) -> bool:
    """Return whether the target keeps its entries in FP8."""
    return isinstance(scenario.model, Checkpoint) and scenario.model.kv_cache_dtype == FP8


def draft_keeps(draft: Draft) -> bool:
    """Return whether a draft keeps its entries in FP8."""
    return isinstance(draft, CheckpointDraft) and draft.kv_cache_dtype == FP8


def keeps_entries(scenario: Scenario) -> bool:
    """Return whether any entries are kept in FP8: how a subject rounded them is followed then (S-KV-6)."""
    return target_keeps(scenario) or draft_keeps(scenario.draft)


def validate_fp8(scenario: Scenario) -> None:
    """Raise InvalidScenarioError for entries in FP8 beside what is not defined with them."""
    draft = scenario.draft
    if isinstance(draft, CheckpointDraft) and draft.kv_cache_dtype == FP8:
        of = f"{FP8!r} of draft {draft.algorithm!r}" + (" that is built in" if draft.built_in else "")
        fits = draft.algorithm in DRAFTS and not draft.built_in
        require(fits, "draft.kv_cache_dtype", of, f"auto; {FP8} is for {', '.join(DRAFTS)} from a directory or a seed")
        chains = scenario.tree is None
        require(chains, "draft.kv_cache_dtype", f"{FP8!r} beside a tree", "auto, or drafts that are chains")


def check_architecture(field: str, architecture: str, source: str) -> None:
    """Raise CheckpointError unless models of an architecture can keep entries in FP8."""
    if architecture not in ARCHITECTURES:
        expected = f"auto; {FP8} is for {' and '.join(ARCHITECTURES)}"
        raise CheckpointError(f"invalid {field} {FP8!r} of {architecture} in {source}: expected {expected}")
