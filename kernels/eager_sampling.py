"""Eager draws of sampled verification. `T` tokens, `K` drafts for one place, `V` vocabulary."""

import numpy as np
from torch import Tensor

from draftproof.kernels.registry import register

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@register("token_ids")
def sampled_choice(token_ids: Tensor, weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor) -> None:
    """Set token_ids[t] to the first of drafts[t,K] that is accepted, or to a token drawn by weights[t,V] from the rest.

    The drafts of a token are distinct; one that is no token, as -1, is none. The random numbers are those of seeds[t]
    and positions[t]; a sum of weights is at most 2^30 + 2^17. A token without weights keeps its id.
    """
    given, drafted = weights.numpy(), drafts.numpy()
    rows = np.arange(len(given))[:, None]
    total = given.sum(axis=1)
    has_draft = (drafted >= 0) & (drafted < given.shape[1])
    draft = np.where(has_draft, drafted, 0)
    own = np.where(has_draft, given[rows, draft], 0)
    key, place = seeds.numpy().astype(np.uint64), positions.numpy().astype(np.uint64)
    accepted = has_draft & (own.cumsum(axis=1) > _coins(key, place, 0, total)[:, None])
    first = draft[rows[:, 0], accepted.argmax(axis=1)]
    rest = given.copy()
    rest[np.broadcast_to(rows, draft.shape)[has_draft], draft[has_draft]] = 0
    number = _coins(key, place, 1, total - own.sum(axis=1))
    drawn = (np.cumsum(rest, axis=1) > number[:, None]).argmax(axis=1)
    chosen = np.where(accepted.any(axis=1), first, drawn)
    ids = token_ids.numpy()
    ids[...] = np.where(total > 0, chosen, ids)


@register("token_ids")
def rejection_choice(
    token_ids: Tensor, weights: Tensor, draft_weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor
) -> None:
    """Set token_ids[t] to drafts[t], drawn by draft_weights[t,V], if weights[t,V] accept it, or to what is drawn of it.

    A draft is accepted by how much likelier it is by weights; another token is drawn by the positive part of what it
    is likelier. A token without weights, or a draft of draft weight, keeps its id. The random numbers are those of
    seeds[t] and positions[t]; a sum of weights, or of draft weights, is at most 2^30 + 2^17.
    """
    given, by, drafted = weights.numpy(), draft_weights.numpy(), drafts.numpy()
    rows = np.arange(len(given))
    total, own = given.sum(axis=1), by.sum(axis=1)
    has_draft = (drafted >= 0) & (drafted < given.shape[1])
    draft = np.where(has_draft, drafted, 0)
    is_one = has_draft & (total > 0) & (by[rows, draft] > 0)
    key, place = seeds.numpy().astype(np.uint64), positions.numpy().astype(np.uint64)
    accepted = _coins(key, place, 0, by[rows, draft] * total) < given[rows, draft] * own
    rest = np.maximum(given * own[:, None] - by * total[:, None], 0)
    number = _coins(key, place, 1, rest.sum(axis=1))
    drawn = (np.cumsum(rest, axis=1) > number[:, None]).argmax(axis=1)
    ids = token_ids.numpy()
    ids[...] = np.where(is_one, np.where(accepted, draft, drawn), ids)


def _coins(seeds: np.ndarray, positions: np.ndarray, draw: int, most: np.ndarray) -> np.ndarray:
    """Return a number below most [T] for each seed and position [T]."""
    a, b = positions & _LOW, np.full_like(positions, draw)
    c, d = np.zeros_like(positions), np.zeros_like(positions)
    k0, k1 = seeds & _LOW, seeds >> _32
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (second >> _32) ^ b ^ k0, second & _LOW, (first >> _32) ^ d ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    # The high word of (a 2^32 + b) times most, which is below 2^62.
    low, high = most.astype(np.uint64) & _LOW, most.astype(np.uint64) >> _32
    middle = (b * low >> _32) + (a * low & _LOW) + (b * high & _LOW)
    return (a * high + (a * low >> _32) + (b * high >> _32) + (middle >> _32)).astype(np.int64)
