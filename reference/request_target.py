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
    """The target of a request: the one given, if it has neither penalties nor a grammar nor a minimum, nor images.

    None of `stops` may come before its minimum of tokens.
    """
    return _masked(with_penalties(placed(target, request), request), request, stops)


def placed(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    """The target whose tokens are where those of a request are (S-MROPE)."""
    return target.placed(places_of(request)) if request.images else target  # type: ignore[attr-defined]  # a probe


def _masked(target: ReferenceTarget, request: Request, stops: Collection[int]) -> ReferenceTarget:
    return with_minimum(with_grammar(target, request), request, stops)


def others(
    target: ReferenceTarget, request: Request, stops: Collection[int], pending: int
) -> Iterator[tuple[str, ReferenceTarget]]:
    """What the target of a request would be without a part of what it is, by the count of choices that this changes.

    Of a round before which `pending` tokens are committed and pending; `stops` as in `target_of`.
    """
    target = placed(target, request)
    for name, other in penalties.others(target, request, pending):
        yield name, _masked(other, request, stops)
    penalized = with_penalties(target, request)
    yield from grammar.others(penalized, request, pending)
    yield from minimum.others(with_grammar(penalized, request), request, stops, pending)
