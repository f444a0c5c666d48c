"""Naive twins of the draws. `T` tokens, `K` drafts for one place, `V` vocabulary."""

from torch import Tensor

from draftproof.reference.ops.arithmetic import MODULUS
from draftproof.reference.sampling import coins, rejected_or_not, sample


def sampled_choice(token_ids: Tensor, weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor) -> None:
    """Set token_ids[t] to the choice of a row with weights[t,V] and drafts[t,K] (S-TREE-11); without any it stays.

    A draft that is no token, as -1, is none. A seed is a number of 64 bits, whatever its sign (S-SAMPLE-9).
    """
    rows = zip(weights.tolist(), drafts.tolist(), seeds.tolist(), positions.tolist(), strict=True)
    for t, (row, siblings, seed, position) in enumerate(rows):
        if sum(row):
            known = [draft for draft in siblings if 0 <= draft < len(row)]
            token_ids[t] = sample(row, known, coins(seed % MODULUS, position))


def rejection_choice(
    token_ids: Tensor, weights: Tensor, draft_weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor
) -> None:
    """Set token_ids[t] to the choice of a row with weights[t,V] and a draft that draft_weights[t,V] drew (S-SAMPLE-10).

    Without weights, or a draft that has a draft weight, it stays.
    """
    for t, draft in enumerate(drafts.tolist()):
        row, drawn_by = weights[t].tolist(), draft_weights[t].tolist()
        if 0 <= draft < len(row) and sum(row) and drawn_by[draft]:
            token_ids[t] = rejected_or_not(row, drawn_by, draft, coins(int(seeds[t]) % MODULUS, int(positions[t])))
