"""The target of a request with a minimum of tokens (S-LIMIT-15): stop tokens have no logits before.

How many tokens a row's text has is read off the text, row by row; nothing is counted along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request
from draftproof.reference.decode import Verification
from draftproof.reference.grammar import LOGIT_OF_EXCLUDED
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceTarget


def excluded(request: Request, emitted: int, stops: Collection[int]) -> frozenset[int]:
    """Return the stop tokens, which may not come next before a request has emitted its minimum; else nothing."""
    return frozenset(stops) if emitted < request.min_tokens else frozenset()


class MinimumTarget:
    """A target for one request: rows before one of its first `min_tokens` tokens have no logits of `stops`.

    With `known` all rows are treated as rows of a text of that many tokens, including its prompt.
    """

    def __init__(
        self, target: ReferenceTarget, request: Request, stops: Collection[int], known: int | None = None
    ) -> None:
        self._target, self._request, self._stops, self._known = target, request, stops, known
        self.layer_types, self.widened = target.layer_types, target.widened

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Return the target's pass with its logits masked, except in rows before the end of the prompt."""
        whole = self._target.forward(tokens, first)
        logits, prompt = whole.logits_from(first), len(self._request.prompt)
        for row in range(max(first, prompt - 1), len(tokens)):
            emitted = (row + 1 if self._known is None else self._known) - prompt
            logits[row, list(excluded(self._request, emitted, self._stops))] = LOGIT_OF_EXCLUDED
        return whole._replace(logits=logits)


def with_minimum(target: ReferenceTarget, request: Request, stops: Collection[int]) -> ReferenceTarget:
    """Return the target of a request with these stop tokens: the given one, if it has no minimum or no stop token."""
    return MinimumTarget(target, request, stops) if request.min_tokens and stops else target


def weakened_targets(
    target: ReferenceTarget, request: Request, stops: Collection[int], pending: int
) -> Iterator[tuple[str, ReferenceTarget]]:
    """Yield targets with less of the request's minimum, each with the count of choices that this changes.

    They are for a round with `pending` tokens committed and pending before it.
    """
    if request.min_tokens and stops:
        yield "minimum_changed_choice", target
        yield "minimum_of_first_row", MinimumTarget(target, request, stops, pending)


def counted(request: Request, before: TokenIds, paths: tuple[TokenIds, ...], verified: Verification) -> Iterator[str]:
    """Yield the counts of a round with a minimum, after the tokens `before` that the request emitted.

    `paths` are the drafts on the way to each row of the verify.
    """
    under = [len(before + path) < request.min_tokens for path in paths]
    if any(under) and not all(under):
        yield "minimum_in_window"
    if any(under) and len(before + verified.emitted) > request.min_tokens:
        yield "minimum_in_accepted_run"
