"""Decks from which turns are dealt (turns.py): in each of them a value is as often as its share says."""

from __future__ import annotations

from typing import Literal

from draftproof.properties.strategies.profiles import BY_NAME as PROFILES
from draftproof.properties.strategies.profiles import CARDS
from draftproof.properties.values.scenario import VARIANTS, Variant

Commit = Literal["snapshot", "replay"]
Alike = frozenset[Literal["keys", "states", "widths"]]

COMMITS: tuple[Commit, ...] = ("snapshot", "replay")
COMMITS_TREES: tuple[Commit, ...] = ("replay", "snapshot")
"""How states are committed, and those of trees."""
# Only a hybrid target has two ways to commit; two of ten scenarios compare them. Chains are compared with trees apart.
OF_SOME = frozenset({"other_commit", "chain_as_tree", "alone", "unmixed", "unoverlapped"})
DENSE_VARIANTS: tuple[Variant, ...] = ("none", *(variant for variant in VARIANTS if variant not in OF_SOME))
HYBRID_VARIANTS: tuple[Variant, ...] = (*DENSE_VARIANTS, "other_commit", "other_commit")
# In a fifth of models sizes are equal that differ in the others: keys and values, the sides of a state, the widths of
# draft and target.
EQUAL: tuple[Alike, ...] = (
    frozenset({"keys", "states", "widths"}),
    frozenset({"keys"}),
    frozenset({"states", "widths"}),
)
ALIKE: tuple[Alike, ...] = (frozenset(),) * (4 * len(EQUAL)) + EQUAL
BY_BATCH = (True, False, True)
"""Whether a controller has step counts by batch size, or one list."""
SERVICES = (1, 2)
SERVICES_HANDED_OVER = (2, 1, 2)
SERVICES_CACHED = (2, 2, 2, 1)
"""Once or twice: of small scenarios, of those that are handed over or share pages, of which there are few, and of long
ones that overlap. The second takes time, and shows nothing that depends on sizes."""
SAMPLED = (True, False)
"""Whether requests draw their tokens; one of them where the rounds hang on the schedule."""
PENALIZED = (True, False, False, True, False)
"""Whether requests have penalties, greedy ones and sampled ones, where the rounds do not hang on the schedule."""
PENALIZED_TREES = (True, False)
SAMPLED_TREES = (True, False)
"""Whether requests of trees have penalties (and those that are preempted), and whether they draw their tokens: of
trees there are few."""
TREES = (True, False, False, False)
TREES_OF_MATCHES = (True, False)
HYBRID_TREES = (True, False, True)
"""Whether drafts are trees, where the draft can propose one and sizes are small, whatever else was dealt; whether those
of matches are, which cost little, and of which few rounds find several; and whether the targets of trees have linear
layers, where a tree shows more."""
BESIDE_TREES = (False, True, *(False,) * 10)
"""Whether chains are compared with trees, where the draft can propose one and neither is anything else in the way."""
CONSTRAINED = (False, True, False)
CONSTRAINED_TREES = (False, True, False)
CONSTRAINED_PREEMPTED = (True, False)
CONSTRAINED_CACHED = (True, False, True)
"""Whether requests have grammars, as of penalties, of trees, and of those that are preempted or share pages."""
LOGPROBS = (False, True, False)
LOGPROBS_PREEMPTED = (True, False, True)
"""Whether requests ask for logprobs, and those that give way; of trees, of which there are few, some always do."""
PROMPT_LOGPROBS = (False, True, False)
PROMPT_LOGPROBS_CACHED = (True, True, False, True)
PROMPT_LOGPROBS_OVERLAPPED = (True, False)
"""Whether requests ask for logprobs of their prompts, of small scenarios, of those that share pages, and of those with
a host that is a step behind.
"""
CACHED = (False, True, False, True, False)
CACHED_TREES = (True, False, True)
CACHED_ADAPTIVE = (True, False, False)
CACHED_DRAFT_BATCH = (True, True, False)
"""Whether pages are kept in a prefix cache: of small scenarios, of trees, under a controller, and where large batches
have no drafts, of which there are few."""
ABORTED = (False, True)
ABORTED_CACHED = (False, True)
ABORTED_CONSTRAINED = (True, True, True, False)
ABORTED_TREES = (False, True, False)
ABORTED_PREEMPTED = (True, False, True)
"""Whether requests are aborted, those that share pages, those of them with grammars, those of trees, and those that
are preempted."""
ENDED = (False, True, True)
ENDED_CACHED = (False, True, False, True, False)
ENDED_TREES = (True, False)
ENDED_PREEMPTED = (True, True, True, False)
ENDED_HANDED_OVER = (False, True, False)
"""Whether requests end by more than their own stop ids and limits, where no controller is to see them for long; whether
those that share pages do, of which emitted tokens are to be served; those of trees, of which there are few; and those
that give way, of which few come back before they end; and those that are to last until they are handed over."""
BUDGETED = (False, True, False, False, False)
"""Whether a step has a budget of tokens, where nothing else hangs on the schedule and no batch is there to be full."""
HANDED_OVER = (True, False, True, True)
HANDED_OVER_ANYWAY = (False,) * 5 + (True,)
HANDED_OVER_LONG = (False, True, False)
"""Whether one engine runs prompts for another, of small scenarios without trees, controllers and whatever else hangs
on a schedule; of those that have something of it and are without it then; and of long ones."""
PREEMPTED = (True, False)
PREEMPTED_MATCHES = (False, True)
PREEMPTED_CACHED = (False, True, True, True)
"""Whether pages are taken on demand and are too few for all, where nothing else hangs on the schedule; of matches, half
of which are trees, whatever else was dealt; and of those that share pages."""
WINDOWED = (True, False, True)
WINDOWED_CACHED = (False, True, False, True, False)
WINDOWED_PREEMPTED = (True, False)
"""Whether layers of target or draft have windows, where drafts are chains or blocks; beside a prefix cache, where
nothing is freed by them; and beside preemption, of which there is less where pages go back early."""
WINDOWED_RANKS = (True, False, True)
"""Whether layers have windows, where requests are spread over ranks."""
CODED = (False, True, False, False)
CODED_HANDED_OVER = (True, True, True, False)
CODED_TREES = (False, True)
"""Whether target or draft keep their entries in fewer bits, those that are handed over, and those that trees move."""
ALONE = (False, True, False, False)
"""Whether who shares pages, or gave them back, is compared with itself alone."""
IMAGES = (False, False, True)
IMAGES_PREEMPTED = (False, True)
IMAGES_HANDED_OVER = (False, True, True)
"""Whether tokens have three positions and prompts images, where no pages are kept for others; of those that give way,
and of those that are handed over.
"""
RANKS = (True, False)
"""Whether requests are spread over ranks, of small scenarios that are about nothing else of the schedule."""
TENSOR = (True, False)
TENSOR_ALONE = (False, False, True, False, False, False)
"""Whether ranks share every layer, of those that requests are not spread over, and of those without a controller."""
MIXED = (True, True, False)
MIXED_PLAIN = (True, False, False)
UNMIXED = (False, True, False, False)
"""Whether chunks and verify rows share a launch, where several requests have chains or blocks, whatever else was dealt;
whether those of a controller go without it; and whether they are compared with launches of their own."""
OVERLAPPED = (True, True, True, False)
OVERLAPPED_PLAIN = (False, False, False, True, False, False, False)
BY_BATCH_OVERLAPPED = (True, False)
SERVICES_OVERLAPPED = (2, 1, 2)
UNOVERLAPPED: tuple[Variant, ...] = ("unoverlapped",) * 4
"""Whether a host plans a step while the one before runs, of drafts that are made on the device where nothing else is;
whether that is without a controller where one was dealt; whether a controller by batch size, where one was dealt,
stays one; how often small ones are served; and the comparison with a host that waits, four of twelve."""
OF_PREEMPTED = tuple(one for one in CARDS if one.requests > 2 and not (one.adaptive or one.draft_batch))
MORE_HYBRIDS = (*OF_PREEMPTED, *(one for one in OF_PREEMPTED if one.hybrid))
MOST_HYBRIDS = (*MORE_HYBRIDS, *(one for one in OF_PREEMPTED if one.hybrid))
OF_CACHED = (*OF_PREEMPTED, *(one for one in CARDS if one.hybrid and one.requests > 2 and not one.adaptive))
OF_RANKS = tuple(
    PROFILES[name]
    for name in (
        "adaptive_rising",
        "hybrid_shrinking_batch",
        "adaptive_oversized",
        "hybrid_partial_in_padding",
        "adaptive_falling",
        "adaptive_limits",
    )
)
OF_TREES = tuple(one for one in CARDS if not (one.hybrid or one.adaptive or one.draft_batch))
OF_HYBRID_TREES = tuple(one for one in CARDS if one.hybrid and not (one.adaptive or one.draft_batch))
