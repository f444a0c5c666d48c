"""What a target is for one request: its logits go by the text (S-PENALTY), and by its grammar (S-GRAMMAR)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.values.scenario import Request
from draftproof.reference import grammar, penalties
from draftproof.reference.grammar import with_grammar
from draftproof.reference.mrope import places_of
from draftproof.reference.penalties import with_penalties
from draftproof.reference.protocols import ReferenceTarget


def target_of(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    """The target of a request: the one given, if it has neither penalties nor a grammar, nor images."""
    return with_grammar(with_penalties(_placed(target, request), request), request)


def _placed(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    return target.placed(places_of(request)) if request.images else target  # type: ignore[attr-defined]  # a probe


def others(target: ReferenceTarget, request: Request, pending: int) -> Iterator[tuple[str, ReferenceTarget]]:
    """What the target of a request would be without a part of what it is, by the count of choices that this changes.

    Of a round before which `pending` tokens are committed and pending.
    """
    target = _placed(target, request)
    for name, other in penalties.others(target, request, pending):
        yield name, with_grammar(other, request)
    yield from grammar.others(with_penalties(target, request), request, pending)
