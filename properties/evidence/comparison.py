"""Which values of reference and subject are comparable: all, except real ties and what may be left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.tolerances import CLOSE_EXPERTS, is_best, is_close, is_near, is_right_token
from draftproof.properties.values.channel import PHASES
from draftproof.properties.values.observed import Choice, Datum, TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation, Trace

Values = Mapping[Key, Datum]
Choices = Mapping[Key, Choice]
Ties = Mapping[int, tuple[int, ...]]
"""request -> order of its first choice that rounding may make another, of a token or of experts (S-TRACE-11)."""
_OF_DRAFTS = ("draft.step.proposal", "draft.block.proposal", "extend.proposal")
_OF_TREES, _CANDIDATES = ("propose.tokens", "propose.parents"), "draft.beam.candidates"
_MOST_NEAR = 16
"""How many tokens a trace of the reference lists that come near a choice."""
_WALKED = ("accept.index", "accept.correct_len")
DraftTies = Mapping[int, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]
"""request -> for each tied choice of a draft its order, and where the drafts end that it may have made others."""


class OtherTokens(NamedTuple):
    """Where a run is of other tokens: from where on for each request, and in which of its drafts."""

    ends: Ties
    drafts: DraftTies


def find_ties(scenario: Scenario, reference: Trace, subject: Trace, known: Ties) -> Ties:
    """Return the ties of a real model, those already known among them.

    A choice of a draft ends nothing where the subject reports its drafts: the reference follows these (S-FOLLOW-3).
    """
    ties = dict(known)
    for request, order in _ties_of_experts(reference, reference.rounded or reference):
        ties[request] = min(order, ties.get(request, order))
    tied = (
        [] if _shows_drafts(subject) else [at for one in _OF_DRAFTS for at in _tied(scenario, reference, subject, one)]
    )
    for channel, key in (*tied, *_ties_behind_the_text(scenario, reference)):
        order = Observation(channel, key, 0).order
        ties[key.request] = min(order, ties.get(key.request, order))
    for request, round_ in _text_ties(scenario, reference, subject).items():
        # What a round drafts comes before what it verifies.
        order = Observation("verify.ids", Key(request, round_), 0).order
        ties[request] = min(order, ties.get(request, order))
    return ties


def _shows_drafts(subject: Trace) -> bool:
    return bool(subject.channels & {"round.drafts", "propose.tokens"})


def _tied(scenario: Scenario, reference: Trace, subject: Trace, channel: str) -> Iterator[tuple[str, Key]]:
    """Yield where a choice of the subject is another, which rounding cannot tell from the reference's."""
    for key, choice in subject.choices(channel).items():
        if is_tied(scenario, reference, channel, key, choice[0]):
            yield channel, key


def is_tied(scenario: Scenario, reference: Trace, channel: str, key: Key, token: int) -> bool:
    """Return whether a token differs from the reference's choice but is so near that rounding cannot tell them apart.

    The reference says how far it is below the best, in float64 and in float32. It lists only the nearest tokens: one
    that it does not list counts as near as the last that it does.
    """
    one = reference.choices(channel).get(key)
    if one is None or one[0] == token:
        return False
    near = reference.near.get((channel, key), ())
    below = dict(near).get(token, near[-1][1] if len(near) == _MOST_NEAR else None)
    return below is not None and is_near(scenario, below, _rounded_below(reference, channel, key, token))


def _rounded_below(reference: Trace, channel: str, key: Key, token: int) -> float | None:
    """Return how far a token is below the best in float32, where that run is of the same tokens so far."""
    rounded = reference.rounded
    other = rounded.choices(channel).get(key) if rounded else None
    if not rounded or other is None:
        return None
    before = [("draft.step.ids", key._replace(step=step)) for step in range(1, key.step + 1)]
    before += [(channel, key._replace(layer=layer)) for layer in range(key.layer)]
    for name, at in before:
        one, two = (trace.channel(name).get(at) for trace in (reference, rounded))
        if one != two and not (isinstance(one, tuple) and isinstance(two, tuple) and one[0] == two[0]):
            return None
    return 0.0 if other[0] == token else dict(rounded.near.get((channel, key), ())).get(token)


def tied_choices(scenario: Scenario, reference: Trace, subject: Trace) -> frozenset[Key]:
    """Return where the target's choice of a subject is another that is tied; no draft or text depends on it there."""
    return frozenset(key for _, key in _tied(scenario, reference, subject, "verify.choice"))


def _ties_behind_the_text(scenario: Scenario, reference: Trace) -> Iterator[tuple[str, Key]]:
    """Yield the close choices of a request's last round that lie behind the end of its text, which no text decides."""
    emitted = reference.typed("accept.emitted", TokenIds)
    last = {key.request: key for key in sorted(emitted)}
    rounded = (reference.rounded or reference).choices("verify.choice")
    for key, choice in reference.choices("verify.choice").items():
        end = last.get(key.request)
        if (
            end
            and key.round == end.round
            and key.row >= len(emitted[end])
            and is_close(scenario, choice, rounded.get(key))
        ):
            yield "verify.choice", key


def find_draft_ties(scenario: Scenario, form: Form, reference: Trace, subject: Trace) -> DraftTies:
    """Return the ties of a real model's draft; after each, only the drafts of one round may continue differently."""
    if not _shows_drafts(subject):
        return {}
    tied = [at for channel in _OF_DRAFTS for at in _tied(scenario, reference, subject, channel)]
    tied += _tied_proposals(scenario, form, reference, subject)
    tied += _tied_trees(scenario, reference, subject)
    return _spans(tied)


def _spans(tied: Iterable[tuple[str, Key]]) -> DraftTies:
    """Return what these choices of a draft may have made others: all up to the verify of what it drafts with them."""
    ties: dict[int, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {}
    for channel, key in tied:
        verified = key.round + int(channel == "extend.proposal")
        span = (Observation(channel, key, 0).order, (verified, PHASES.index("verify")))
        ties[key.request] = (*ties.get(key.request, ()), span)
    return ties


def _tied_proposals(scenario: Scenario, form: Form, reference: Trace, subject: Trace) -> Iterator[tuple[str, Key]]:
    """Yield the choice of the first proposal that is another in a round, where it is tied."""
    proposed = {**subject.typed("round.drafts", TokenIds), **subject.typed("propose.tokens", TokenIds)}
    for key, tokens in proposed.items():
        own = reference.typed("propose.tokens", TokenIds).get(key, ())
        first = next((i for i, pair in enumerate(zip(own, tokens, strict=False)) if pair[0] != pair[1]), None)
        source = None if first is None else form.choice_of(first + 1)
        if source is None or first is None or len(own) != len(tokens):
            continue
        channel, fields = source
        at = Key(key.request, key.round - int(channel == "extend.proposal"), **fields)
        if is_tied(scenario, reference, channel, at, tokens[first]):
            yield channel, at


def _tied_trees(scenario: Scenario, reference: Trace, subject: Trace) -> Iterator[tuple[str, Key]]:
    """Yield the first draft step of the proposals of a tree that are others, where rounding may have ranked otherwise.

    How closely the reference ranked is `near` of its parents; in float32 it may have ranked otherwise itself.
    """
    rounded = reference.rounded
    for key in reference.channel("propose.parents"):
        if _tree_of(reference, key) == _tree_of(subject, key):
            continue
        ((_, closest),) = reference.near.get(("propose.parents", key), ((0, math.inf),))
        other = rounded is not None and _tree_of(rounded, key) != _tree_of(reference, key)
        if other or is_near(scenario, closest, None):
            yield "draft.beam.ids", key._replace(step=1, row=0)


def _tree_of(trace: Trace, key: Key) -> list[tuple[str, Key, Datum | None]]:
    """Return what ranked the candidates of a round, and what became of them."""
    own = [(channel, key, trace.channel(channel).get(key)) for channel in _OF_TREES]
    beams = ((at, value) for at, value in trace.channel(_CANDIDATES).items() if at[:2] == key[:2])
    return own + [(_CANDIDATES, at, value) for at, value in sorted(beams)]


def without_draft_ties(channel: str, values: Values, ties: DraftTies) -> Values:
    """Return the values that no tie of a draft has made others."""
    if not ties:
        return values
    kept = {}
    for key, value in values.items():
        order = Observation(channel, key, 0).order
        if not any(start[:5] <= order[:5] and order[:2] < end for start, end in ties.get(key.request, ())):
            kept[key] = value
    return kept


def _text_ties(scenario: Scenario, reference: Trace, subject: Trace) -> Mapping[int, int]:
    """Return the round in which the text of a request first has another token that is right, too (S-TEXT-2)."""
    own, ties = reference.texts, {}
    for request, gaps in reference.token_gaps.items():
        text = subject.texts[request]
        first = next((i for i, (one, other) in enumerate(zip(text, own[request], strict=False)) if one != other), None)
        if first is not None and first < len(gaps) and is_right_token(scenario, gaps[first]):
            ties[request] = round_of(subject, request, first)
    return ties


def round_of(trace: Trace, request: int, number: int) -> int:
    """Return the round in which a request emitted its token `number`, from 0 on."""
    emitted = sorted((key, len(value)) for key, value in trace.typed("accept.emitted", TokenIds).items())
    rounds = [key.round for key, count in emitted if key.request == request for _ in range(count)]
    return rounds[number]


def find_other_tokens(reference: Trace, rounded: Trace) -> OtherTokens:
    """Return where the reference's run in float32 is of other tokens than that in float64.

    Its text and what it verifies are given: another choice of the target changes only what is accepted behind the end
    of the text, and one of a draft what is drafted after it in the same round.
    """
    ends = list(_ties_of_experts(reference, rounded))
    for channel in _WALKED:
        got = rounded.channel(channel)
        for key, value in reference.channel(channel).items():
            if got.get(key) != value:
                ends.append((key.request, Observation(channel, key, 0).order))
    others = [
        (channel, key)
        for channel in _OF_DRAFTS
        for key, one in reference.choices(channel).items()
        if rounded.choices(channel).get(key, (None,))[0] != one[0]
    ]
    others += [
        ("draft.beam.ids", key._replace(step=1, row=0))
        for key in reference.channel("propose.parents")
        if _tree_of(reference, key) != _tree_of(rounded, key)
    ]
    firsts = {request: min(order for one, order in ends if one == request) for request, _ in ends}
    return OtherTokens(firsts, _spans(others))


def of_same_tokens(channel: str, run: Trace, others: OtherTokens) -> Values:
    """Return a channel of a run in float32 as far as it is of the same tokens."""
    return without_draft_ties(channel, before_ties(channel, run.channel(channel), others.ends), others.drafts)


def _ties_of_experts(reference: Trace, rounded: Trace) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the rounds from which on a request is another continuation, for a close choice of experts (S-TRACE-11)."""
    for trace in (reference, rounded):
        for (request, round_), gap in trace.gaps.items():
            if gap < CLOSE_EXPERTS:
                yield request, (round_,)


def before_ties(channel: str, values: Values, ties: Ties) -> Values:
    """Return the values before the first tie of each request: what follows belongs to another continuation."""
    kept = {}
    for key, value in values.items():
        tie = ties.get(key.request)
        if tie is None or Observation(channel, key, 0).order[:5] < tie[:5]:
            kept[key] = value
    return kept


def without_margins(expected: Choices, got: Choices) -> Values:
    """Return the choices with the reference's margin where the token is the same: a real model's are floats."""
    right = {key: expected.get(key, choice) for key, choice in got.items()}
    return {key: right[key] if right[key][0] == choice[0] else choice for key, choice in got.items()}


def without_rounding(scenario: Scenario, reference: Trace, got: Values) -> Values:
    """Return what was told of tokens as the reference has it, where only rounding makes it other (S-SAMPLE-15)."""
    expected, gaps = reference.channel("accept.logprobs"), reference.logprob_gaps
    return {key: expected[key] if key in gaps and is_best(scenario, gaps[key]) else value for key, value in got.items()}


def without_optional_extends(script: Script, expected: Values, got: Values) -> tuple[Values, Values]:
    """Return both sides of an extend without what a subject need not compute.

    These are the entries of the round in which a request ends, and those that `may_leave_out` allows.
    """
    if got.keys() == expected.keys():
        return expected, got
    ends = {request: len(of.rounds) for request, of in enumerate(script.requests) if not of.aborted}
    got = {key: value for key, value in got.items() if key in expected or ends.get(key.request) != key.round}
    return {key: value for key, value in expected.items() if key in got or not may_leave_out(script, key)}, got


def may_leave_out(script: Script, key: Key) -> bool:
    """Return whether an extend need not compute an entry: in layer j of a chain, those below n - j had true tokens."""
    rounds = script.requests[key.request].rounds
    if key.row < 0 or not 0 < key.round <= len(rounds):
        return False
    return key.row < rounds[key.round - 1].context - key.layer
