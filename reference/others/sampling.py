"""Naive twins of ops of sampled verification. `B` rows of a launch, `T` packed tokens: drafts, `V` vocabulary.

Probabilities are compared as fractions, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from torch import Tensor


def _spans(ends: Tensor) -> Iterator[tuple[int, range]]:
    """Yield each request with the places of its drafts."""
    begin = 0
    for b, end in enumerate(ends.tolist()):
        yield b, range(begin, end)
        begin = end


def rejection_greedy(
    out: Tensor, cu_drafts: Tensor, drafts: Tensor, target: Tensor, bonus: Tensor, greedy: Tensor
) -> None:
    """Write the target's choices [T] to out [B,K+1] up to the first draft that is another, or all and the bonus.

    Rows that are not greedy, and what comes behind, stay.
    """
    for b, places in _spans(cu_drafts):
        if not greedy[b]:
            continue
        agree = True
        for i, t in enumerate(places):
            if agree:
                out[b, i] = target[t]
                agree = int(drafts[t]) == int(target[t])
        if agree:
            out[b, len(places)] = bonus[b]


def rejection_random(
    out: Tensor,
    cu_drafts: Tensor,
    drafts: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    bonus: Tensor,
    recovered: Tensor,
    uniform: Tensor,
    greedy: Tensor,
) -> None:
    """Accept drafts [T] as long as p / q is at least uniform [T]; then the recovered token, or after all the bonus.

    q is draft_probs and p target_probs [T,V]; a draft of -1, or of q = 0, is rejected. Greedy rows stay.
    """
    for b, places in _spans(cu_drafts):
        if greedy[b]:
            continue
        accepted = True
        for i, t in enumerate(places):
            if accepted:
                accepted = _holds(int(drafts[t]), draft_probs[t], target_probs[t], uniform[t].item())
                out[b, i] = drafts[t] if accepted else recovered[t]
        if accepted:
            out[b, len(places)] = bonus[b]


def _holds(draft: int, draft_probs: Tensor, target_probs: Tensor, uniform: float) -> bool:
    if draft < 0:
        return False
    q, p = Fraction(draft_probs[draft].item()), Fraction(target_probs[draft].item())
    return q > 0 and p >= Fraction(uniform) * q


def recovered_tokens(
    out: Tensor, cu_drafts: Tensor, drafts: Tensor, draft_probs: Tensor, target_probs: Tensor, weights: Tensor
) -> None:
    """Draw out[t] from the positive part of p - q: the token of the largest weights[b,v] * (p - q), lowest on ties."""
    for b, places in _spans(cu_drafts):
        for t in places:
            q, p = (list(map(Fraction, row[t].tolist())) for row in (draft_probs, target_probs))
            scores = [max(p[v] - q[v], Fraction(0)) * Fraction(w) for v, w in enumerate(weights[b].tolist())]
            out[t] = scores.index(max(scores))
