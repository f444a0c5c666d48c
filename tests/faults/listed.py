"""Named scenarios in the place of generated ones, so that what becomes of a fault does not hang on a seed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from draftproof.properties.values.drafts import Algorithm, algorithm
from draftproof.properties.values.scenario import Scenario
from tests.named import named

NAMES = (
    "ends",
    "eagle_padded",
    "hybrid_replay",
    "hybrid_snapshot",
    "five_in_graphs",
    "sampled_hybrid_replay",
    "ngram_matches",
    "images",
    "penalized",
    "tree_ngram",
    "mtp_chain_partial",
    "mtp_unchained",
    "dflash_block",
    "standalone",
    "eagle3_features",
    "adaptive_hybrid",
)


def listed(seed: int, count: int, drafts: Sequence[Algorithm]) -> list[Scenario]:
    """Return what stands for `generate`, drafts in turns; the list of another seed begins with another scenario."""
    of_each = [cycle([one for one in map(named, NAMES) if algorithm(one.draft) == name]) for name in drafts]
    turns = (next(one) for one in cycle(of_each))
    first = seed % 3
    return list(islice(turns, first, first + count))
