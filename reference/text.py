"""The text contract (S-TEXT): how far each token that a subject emitted is from the target's best.

One pass over the subject's own text; nothing is decoded, so that it goes on behind a token that rounding made another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from draftproof.properties.evidence.observed_run import InPlace
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import TokenGap
from draftproof.reference.chooser import TokenPlace, chooser_of
from draftproof.reference.memo import Memo
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.request_target import target_of
from draftproof.reference.rounding import exact_and_rounded
from draftproof.reference.stored import Following

TokenGaps = Mapping[int, tuple[TokenGap, ...]]
UNKNOWN: InPlace = MappingProxyType({})


def token_gaps(
    scenario: Scenario,
    script: Script,
    texts: Mapping[int, tuple[int, ...]],
    in_place: InPlace = UNKNOWN,
    following: Following | None = None,
) -> TokenGaps:
    """Return the gaps, by request, of every text of a real model that is not the script's.

    `texts` are the tokens that each request emitted, `in_place` the drafts in the place of each (S-SAMPLE-2).
    Ids outside of the vocabulary, and what follows them, have none.
    """
    if not isinstance(scenario.model, Checkpoint):
        return {}
    others = {at: text for at, text in texts.items() if text != script.requests[at].tokens and text}
    if not others:
        return {}
    memo = Memo(following=following)
    exact, rounded = exact_and_rounded(scenario.model, memo)
    gaps = {}
    for at, text in others.items():
        memo.follow(at)
        known = _known(text, scenario.model.vocab)
        tokens = (*scenario.requests[at].prompt, *known)
        first = len(tokens) - len(known)
        if known:
            request = scenario.requests[at]
            drafts = in_place.get(at, ((),) * len(known))
            places = [TokenPlace(first + i, _known_of(drafts[i], scenario.model.vocab)) for i in range(len(known))]
            targets = target_of(exact, request), target_of(rounded, request)
            gaps[at] = _gaps(targets, request.sampling, tokens, places)
    return gaps


def _known(text: tuple[int, ...], vocab: int) -> tuple[int, ...]:
    """Return the text up to the first id that is none of the vocabulary."""
    beyond = next((place for place, token in enumerate(text) if not 0 <= token < vocab), len(text))
    return text[:beyond]


def _known_of(drafts: tuple[int, ...], vocab: int) -> tuple[int, ...]:
    return tuple(draft for draft in drafts if 0 <= draft < vocab)


def _gaps(
    targets: tuple[ReferenceTarget, ReferenceTarget],
    sampling: Sampling | None,
    tokens: tuple[int, ...],
    places: Sequence[TokenPlace],
) -> tuple[TokenGap, ...]:
    """Return a gap for the token at each place of a sequence; its logits are a row before it.

    `targets` are the one in float64 and that in float32.
    """
    passes = [one.forward(tokens[:-1]) for one in targets]
    choosers = [chooser_of(one, sampling) for one in targets]
    closest, gaps = min(one.gap for one in passes), []
    for place in places:
        below, other = (
            chooser.gap(whole.logits[place.position - 1], place, tokens[place.position])
            for chooser, whole in zip(choosers, passes, strict=True)
        )
        gaps.append(TokenGap(below, 0.0 if below == other else abs(below - other), closest))
    return tuple(gaps)
