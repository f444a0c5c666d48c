"""Counts that no scenario of a model and a draft can reach: none of them is demanded of it."""

from __future__ import annotations

from draftproof.properties.coverage.counts import (
    CONSTRAINED,
    ENDED,
    HYBRID,
    LOGPROBS,
    OF_ABORTS,
    OF_ALONE,
    OF_CODES,
    OF_DRAWN,
    OF_IMAGES,
    OF_PENALTIES,
    OF_PREFIXES,
    OF_TWO,
    OF_WINDOWS,
    SAMPLED,
    TREES,
)
from draftproof.properties.coverage.read_handovers import OF_HANDOVERS
from draftproof.properties.coverage.read_mixed import OF_MIXED
from draftproof.properties.coverage.read_overlap import OF_OVERLAP
from draftproof.properties.coverage.read_step_tokens import OF_STEP_TOKENS
from draftproof.properties.coverage.read_trees import OF_TRIES
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.rank_counts import OF_RANKS, OF_TENSOR_RANKS
from draftproof.properties.values.drafts import ALGORITHMS

_STEPS = {"draft_steps", "second_draft_steps"}
_CHAINS = {"layers_chained", "layers_unchained", "guesses_replaced", "chains_of_one"}
_OF_ENTRIES = {
    "states_taken_before_norm",
    "states_handed_before_norm",
    "own_embeddings",
    "own_heads",
    "own_vocabularies",
    "first_embeddings_masked",
}
_BLOCKS = {"blocks", "blocks_cut"}
_MATCHES = {"matches", "no_matches", "matches_after_partial", "matches_of_fewer", "unfound_beside_found"}
# Counts that take two drafts in a round, or two layers.
_OF_REAL_TREES = frozenset({"tree_scenarios", "beams", "tree_rounds", "trees_of_their_own"})
_OF_REAL_DRAWS = frozenset({"sampled_accepted", "sampled_residuals", "greedy_beside_sampled"})
_OF_REAL_PENALTIES = frozenset({"penalty_changed_choice"})
"""Counts of requests that draw their tokens and have penalties which the few scenarios of a real model reach."""
_OF_REAL_LOGPROBS = frozenset({"logprobs_behind_rejection"})
_OF_REAL_CACHES = frozenset({"prefix_hits", "prefix_misses", "prefix_copies", "checkpoints_cached"})
_OF_REAL_GRAMMARS = frozenset({"grammar_changed_choice"})


def unreachable(evidence: Evidence) -> frozenset[str]:
    """Return the counts that no scenario of this model and this draft can reach.

    Probes are generated, so that each kind of them is there; real models are what they are.
    """
    names = unreachable_by_draft(evidence.form, real=not evidence.exact)
    if evidence.exact:
        return names
    return names if evidence.hybrid else names | HYBRID


def unreachable_by_draft(form: Form, *, real: bool) -> frozenset[str]:
    """Return the counts that no scenario of a draft can reach."""
    names = {f"{name}_scenarios" for name in ALGORITHMS if name != form.kind.name}
    counted = {"steps": _STEPS, "chain": _CHAINS, "block": _BLOCKS, "lookup": _MATCHES}
    names.update(*(own for proposes, own in counted.items() if proposes != form.proposes))
    if real or form.kind.hidden != "last":
        names |= _OF_ENTRIES
    if real and form.proposes == "chain":
        # A proposal is long if it has three tokens.
        long = {"taps_off_long_proposals"} if form.layers < 3 else ()
        names.update({"layers_unchained", *OF_TWO} if form.layers == 1 else {*long, "chains_of_one"})
    if real or "out_of_vocabulary" not in form.kind.minimum:
        names.add("out_of_vocabulary")
    if form.proposes == "lookup":
        names |= {*OF_OVERLAP, "variant_unoverlapped"}
    if not form.kind.trees:
        names |= {*TREES, "variant_chain_as_tree"}
    names |= {"beams"} if form.proposes == "lookup" else set(OF_TRIES)
    if not form.kind.draws:
        names |= OF_DRAWN
    if not form.kind.extends:
        names |= {"window_drafts", "windows_unequal", "coded_drafts", "formats_differ", "handovers_of_draft_entries"}
    if form.kind.hidden == "none" or form.proposes == "block":
        names.add("handovers_of_hidden_states")
    if real:
        names |= SAMPLED - _OF_REAL_DRAWS | set(OF_PENALTIES) - _OF_REAL_PENALTIES
        names |= LOGPROBS - _OF_REAL_LOGPROBS | CONSTRAINED - _OF_REAL_GRAMMARS
        names |= {*OF_PREFIXES, *OF_ABORTS} - _OF_REAL_CACHES
        names |= {*OF_WINDOWS, *OF_CODES, *OF_IMAGES, *ENDED, *OF_STEP_TOKENS, *OF_RANKS, *OF_MIXED, "variant_unmixed"}
        names |= {*OF_HANDOVERS, *OF_TENSOR_RANKS, *OF_OVERLAP, "variant_unoverlapped"}
        # They have a prompt's tokens and step counts of their own, and few scenarios.
        names |= {"variant_chain_as_tree", *OF_ALONE}
        # Trees of matches are proved with probes.
        names |= TREES if form.proposes == "lookup" else TREES - _OF_REAL_TREES
        names |= {
            "zero_tails",
            "unfound_beside_found",
            "by_batch_scenarios",
            "batches_without_steps",
            "batches_too_large_for_drafts",
            "admitted_before_others",
            "steps_after_none",
        }
    return frozenset(names)
