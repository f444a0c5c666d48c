"""What a verify emits of its drafts, by definition (S-ROUND-4) and where the decision is mistaken (S-AUDIT-11)."""

from __future__ import annotations

from draftproof.reference.audit.rules import AcceptRule
from draftproof.reference.decode import accept


def emits(rule: AcceptRule, drafts: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    """Return what a round emits; `own` is what the target chooses at each of its places, as many as are known."""
    right = accept(drafts[: len(own)], own)
    if rule == "wrong first draft emitted" and drafts and right == 0:
        return drafts[:1]
    if rule == "first draft unchecked" and drafts:
        right = max(right, 1 + accept(drafts[1 : len(own)], own[1:]))
    elif rule == "last draft never accepted" and drafts:
        right = min(right, len(drafts) - 1)
    elif rule == "one too few":
        right = max(0, right - 1)
    return (*drafts[:right], *own[right : right + 1])
