"""What a target is for one request: its logits go by the text (S-PENALTY), its grammar (S-GRAMMAR) and its minimum."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from draftproof.properties.values.scenario import Request
from draftproof.reference import grammar, minimum, penalties
from draftproof.reference.grammar import with_grammar
from draftproof.reference.minimum import with_minimum
from draftproof.reference.mrope import places_of
from draftproof.reference.penalties import with_penalties
from draftproof.reference.protocols import ReferenceTarget


def target_of(target: ReferenceTarget, request: Request, stops: Collection[int] = ()) -> ReferenceTarget:
    """Return the target of a request, with its penalties, grammar, minimum and images, as far as it has them.

    None of `stops` may come before its minimum of tokens.
    """
    return _masked(with_penalties(placed(target, request), request), request, stops)


def placed(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    """Return the target with the RoPE positions of the request's tokens (S-MROPE)."""
    return target.placed(places_of(request)) if request.images else target  # type: ignore[attr-defined]  # a probe


def _masked(target: ReferenceTarget, request: Request, stops: Collection[int]) -> ReferenceTarget:
    return with_minimum(with_grammar(target, request), request, stops)


def weakened_targets(
    target: ReferenceTarget, request: Request, stops: Collection[int], pending: int
) -> Iterator[tuple[str, ReferenceTarget]]:
    """Yield targets that lack a part of what the request asks for, each with the count of choices that this changes.

    They are for a round with `pending` tokens committed and pending before it; `stops` as in `target_of`.
    """
    target = placed(target, request)
    for name, other in penalties.weakened_targets(target, request, pending):
        yield name, _masked(other, request, stops)
    penalized = with_penalties(target, request)
    yield from grammar.weakened_targets(penalized, request, pending)
    yield from minimum.weakened_targets(with_grammar(penalized, request), request, stops, pending)
