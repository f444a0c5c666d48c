"""Eager draws of sampled verification. `T` tokens, `K` drafts for one place, `V` vocabulary."""

import numpy as np
from torch import Tensor

from draftproof.kernels.registry import register

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)[:, None, None]
_WEYL = np.arange(10, dtype=np.uint64)[:, None, None] * np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)[:, None]
"""What each of ten rounds adds to the two words of a key."""


@register("token_ids")
def sampled_choice(token_ids: Tensor, weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor) -> None:
    """Set token_ids[t] to the first of drafts[t,K] that is accepted, or to a token drawn by weights[t,V] from the rest.

    The drafts of a token are distinct; one outside the vocabulary, such as -1, counts as none. Random numbers depend on
    seeds[t] and positions[t]; a sum of weights is at most 2^30 + 2^17. A token without weights keeps its id.
    """
    given, drafted = weights.numpy(), drafts.numpy()
    total = given.sum(axis=1)
    if not total.any():
        return
    rows = np.arange(len(given))[:, None]
    has_draft = (drafted >= 0) & (drafted < given.shape[1])
    draft = np.where(has_draft, drafted, 0)
    own = np.where(has_draft, given[rows, draft], 0)
    number, second = _coins(seeds, positions, total, total - own.sum(axis=1))
    accepted = has_draft & (own.cumsum(axis=1) > number[:, None])
    first = draft[rows[:, 0], accepted.argmax(axis=1)]
    rest = given.copy()
    rest[np.broadcast_to(rows, draft.shape)[has_draft], draft[has_draft]] = 0
    drawn = (np.cumsum(rest, axis=1) > second[:, None]).argmax(axis=1)
    chosen = np.where(accepted.any(axis=1), first, drawn)
    ids = token_ids.numpy()
    ids[...] = np.where(total > 0, chosen, ids)


@register("token_ids")
def rejection_choice(
    token_ids: Tensor, weights: Tensor, draft_weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor
) -> None:
    """Set token_ids[t] to drafts[t], drawn by draft_weights[t,V], if weights[t,V] accept it, or to another token.

    A draft is accepted with the ratio of its share of weights to its share of draft weights, at most 1; another token
    is drawn by the positive part of the difference of the shares. A token without weights, or with a draft without
    draft weight, keeps its id. Random numbers depend on seeds[t] and positions[t]; a sum of weights, or of draft
    weights, is at most 2^30 + 2^17.
    """
    given, by, drafted = weights.numpy(), draft_weights.numpy(), drafts.numpy()
    rows = np.arange(len(given))
    total, own = given.sum(axis=1), by.sum(axis=1)
    has_draft = (drafted >= 0) & (drafted < given.shape[1])
    draft = np.where(has_draft, drafted, 0)
    is_one = has_draft & (total > 0) & (by[rows, draft] > 0)
    rest = np.maximum(given * own[:, None] - by * total[:, None], 0)
    number, second = _coins(seeds, positions, by[rows, draft] * total, rest.sum(axis=1))
    accepted = number < given[rows, draft] * own
    drawn = (np.cumsum(rest, axis=1) > second[:, None]).argmax(axis=1)
    ids = token_ids.numpy()
    ids[...] = np.where(is_one, np.where(accepted, draft, drawn), ids)


def _coins(seeds: Tensor, positions: Tensor, *most: np.ndarray) -> np.ndarray:
    """Return numbers below each of `most` [T], draws 0, 1, .. of each seed and position [T]."""
    key, place = seeds.numpy().astype(np.uint64), positions.numpy().astype(np.uint64)
    # Two words that are multiplied, and two that are not, of each draw: [2,draws,T].
    words, others = np.zeros((2, 2, len(most), len(place)), dtype=np.uint64)
    words[0], others[0] = place & _LOW, np.arange(len(most), dtype=np.uint64)[:, None]
    keys = np.stack((key & _LOW, key >> _32))
    for of_round in (keys + _WEYL) & _LOW:
        products = _MULTIPLIERS * words
        words = (products >> _32)[::-1] ^ others
        words ^= of_round[:, None]
        others = (products & _LOW)[::-1]
    a, b = words[0], others[0]
    # The high word of (a 2^32 + b) times most, which is below 2^62.
    bounds = np.stack(most).astype(np.uint64)
    low, high = bounds & _LOW, bounds >> _32
    middle = (b * low >> _32) + (a * low & _LOW) + (b * high & _LOW)
    return (a * high + (a * low >> _32) + (b * high >> _32) + (middle >> _32)).astype(np.int64)
