"""What a subject told of its tokens beside a real model, held to its definition (S-SAMPLE-15).

Weights come from floats, so that rounding may tell others: the gap says how far logits would have to be off for it.
`V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Key, TokenGap, Trace
from draftproof.reference.memo import Memo
from draftproof.reference.real_sampling import Range, least_gap, weight_range
from draftproof.reference.request_target import target_of
from draftproof.reference.rounding import exact_and_rounded
from draftproof.reference.stored import Following

Told = tuple[int, ...]
"""As in `accept.logprobs`: the weight of a token, the sum of all, and the likeliest tokens, each with its weight."""


def logprob_gaps(
    scenario: Scenario, reference: Trace, told: Mapping[Key, Told], following: Following | None = None
) -> dict[Key, TokenGap]:
    """Return the gap of the logprobs `told` for each token that the reference emits, for requests beside a real model.

    The rows are those of the reference's text; logprobs of another text have the gaps that they have there.
    """
    if not isinstance(scenario.model, Checkpoint) or scenario.most_logprobs is None:
        return {}
    memo = Memo(following=following)
    targets, gaps = exact_and_rounded(scenario.model, memo), dict[Key, TokenGap]()
    keys = sorted(reference.channel("accept.logprobs"))
    for index, request in enumerate(scenario.requests):
        if request.logprobs is None:
            continue
        memo.follow(index)
        tokens, first = request.prompt + reference.texts[index], len(request.prompt)
        own = [target_of(one, request) for one in targets]
        passes = [one.forward(tokens[:-1]) for one in own]
        sampling, closest = request.sampling or Sampling(), min(one.gap for one in passes)
        for place, key in enumerate((key for key in keys if key.request == index), start=first):
            if key in told:
                below, other = (
                    told_gap(told[key], tokens[place], request.logprobs, whole.logits[place - 1], sampling)
                    / target.widened
                    for target, whole in zip(own, passes, strict=True)
                )
                gaps[key] = TokenGap(below, abs(below - other) if np.isfinite(below) else 0.0, closest)
    return gaps


def told_gap(told: Told, token: int, top: int, logits: np.ndarray, sampling: Sampling) -> float:
    """Twice as far as logits [V] have to be off, each, for this to be told of a token; inf: too far, or by no logits.

    `top` is how many of the likeliest tokens were asked for.
    """
    if not _is_consistent(told, token, top, len(logits)):
        return np.inf
    return least_gap(lambda gap: _explains(weight_range(logits, sampling, gap), told, token, top))


def _pairs(told: Told) -> tuple[tuple[int, int], ...]:
    return tuple(zip(told[2::2], told[3::2], strict=True))


def _is_consistent(told: Told, token: int, top: int, vocab: int) -> bool:
    """Whether numbers could be of some weights: the likeliest in order, each once, the token's own as among them."""
    if len(told) < 2 or len(told) % 2 or len(told) > 2 + 2 * top:
        return False
    own, total, pairs = told[0], told[1], _pairs(told)
    ids = [other for other, _ in pairs]
    if token not in ids and len(ids) < top:
        return False
    if len({*ids}) < len(ids) or not all(0 <= other < vocab and weight > 0 for other, weight in pairs):
        return False
    every = dict(pairs) | ({} if token in ids else {token: own})
    # Whatever is not listed comes behind all that is.
    ranked = sorted(every.items(), key=lambda one: (-one[1], one[0]))
    return own > 0 and every[token] == own and sum(every.values()) <= total and ranked[: len(pairs)] == list(pairs)


def _explains(weights: Range, told: Told, token: int, top: int) -> bool:
    """Whether each share is one that such weights may have, and each token that is not listed may be too light."""
    own, total, pairs = told[0], told[1], _pairs(told)
    if not all(_has_share(weights, other, weight / total) for other, weight in (*pairs, (token, own))):
        return False
    listed = np.zeros(len(weights.low), bool)
    listed[[other for other, _ in pairs]] = True
    if not top:
        return True
    lightest = weights.high[pairs[-1][0]] if len(pairs) == top else 0.0
    return bool((weights.low[~listed] <= lightest).all())


def _has_share(weights: Range, token: int, share: float) -> bool:
    at = np.arange(len(weights.low)) == token
    return weights.share(at, more=False) <= share <= weights.share(at, more=True)
