"""What ends a request besides its own stop ids and limits, and the least that it emits."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, any_request, field_put, in_turn, requests_put
from draftproof.properties.features.some_requests import with_some
from draftproof.properties.values.scenario import Request, Scenario, TokenSpan

_BELOW = 97
# Of a vocabulary of 61 tokens few come in a text of ten.
_EOS = (10, 8, 15, 12, 3)
# How many of the first tokens; a budget is 5 to 11, seldom more.
_LEAST = (3, 2, 4, 1, 6)
# How many tokens a late sequence has besides its last, of the whole text at most.
_LATE = (99, 99, 4)
# Where the stop token is, behind the minimum: the first that may be one, one that may not, the next, or none.
_BEHIND = (0, -1, 0, 1, None)
# Of how many tokens one is a stop, so that the minimum moves choices of most rows; 0: only the one behind it.
_ONE_OF = (2, 0, 3)
_MOST_STOPS = 60


def with_eos(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw the model's own ids. Some requests ignore them, and all do with preemption, so that they go on."""
    vocab = scenario.model.vocab
    count = min(choose.one_of(_EOS), max(1, vocab // 4))
    eos = dict.fromkeys(choose.integer(0, _BELOW - 1) * vocab // _BELOW for _ in range(count))
    ignoring = (replace(one, ignore_eos=scenario.schedule.preemption or choose.boolean()) for one in scenario.requests)
    return replace(scenario, eos=tuple(eos), requests=tuple(ignoring))


def with_min_tokens(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests have a minimum of tokens; a grammar says itself when it ends."""

    def changed(request: Request) -> Request:
        return request if request.grammar else _with_minimum(choose, scenario, request)

    *others, last = scenario.requests
    if others and all(one.grammar for one in scenario.requests):
        scenario = replace(scenario, requests=(*others, replace(last, grammar=None)))
    made = with_some(choose, scenario, changed)
    free = [place for place, one in enumerate(made.requests) if not one.grammar]
    if made.has_minimum or not free:
        return made
    return replace(
        made, requests=tuple(changed(one) if place == free[0] else one for place, one in enumerate(made.requests))
    )


def with_stop_sequences(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests end by a sequence of their text, where that is known: near the end, or before a minimum."""

    def changed(request: Request) -> Request:
        if not _knows_text(scenario, request):
            return request
        # Nothing else is to end it before.
        request = replace(request, ignore_eos=bool(scenario.eos))
        if scenario.schedule.preemption:
            return _late_sequence(choose, request)
        return replace(request, stop_sequences_at=(*_sequences(choose, request), *_before_minimum(request)))

    if scenario.schedule.preemption:
        # Nobody knows who will be preempted.
        return replace(scenario, requests=tuple(map(changed, scenario.requests)))
    return with_some(choose, scenario, changed)


def _knows_text(scenario: Scenario, request: Request) -> bool:
    """Return whether a request's text is known without its schedule."""
    return request.sampling is None or not scenario.dynamic


def _with_minimum(choose: Choose, scenario: Scenario, request: Request) -> Request:
    """Draw a minimum, and a stop token at about the first place where there may be one, or many of them."""
    # A request that is preempted is to have its minimum before it still, or just behind it.
    some = (request.budget // 2,) if scenario.schedule.preemption and choose.boolean() else _LEAST
    least, vocab = min(choose.one_of(some), request.budget), scenario.model.vocab
    behind, one_of = choose.one_of(_BEHIND), choose.one_of(_ONE_OF)
    known = behind is not None and _knows_text(scenario, request)
    stops = tuple(range(choose.integer(0, one_of - 1), vocab, max(one_of, vocab // _MOST_STOPS))) if one_of else ()
    return replace(
        request,
        min_tokens=least,
        stop_at=min(least + (behind or 0), request.budget - 1) if known else -1,
        stops=stops or request.stops,
    )


def _sequences(choose: Choose, request: Request) -> tuple[TokenSpan, ...]:
    """Draw a sequence near the end, perhaps a longer one that ends later, and perhaps one that begins in the prompt.

    The longer one comes first in the list: which of several sequences ended a text is then not the first of them.
    """
    length = choose.one_of((2, 3, 2, 4, 1))
    last = min(choose.one_of((3, 4, 2, 5, 6)) + request.min_tokens, request.budget - 1)
    found = [TokenSpan(first=max(0, last - length + 1), last=last)]
    if choose.boolean():
        before = min(len(request.prompt), choose.one_of((1, 2)))
        found.append(TokenSpan(first=-before, last=choose.one_of((0, 1))))
    if choose.boolean():
        later = min(last + 1, request.budget - 1)
        found.insert(0, TokenSpan(first=max(0, later - length), last=later))
    return tuple(found)


def _late_sequence(choose: Choose, request: Request) -> Request:
    """Return a request that a sequence ends one token before its budget is spent.

    The sequence is long enough that the request may be preempted in the middle of it.
    """
    last = request.budget - 2
    first = max(0, last - choose.one_of(_LATE))
    return (
        replace(request, stop_sequences_at=(TokenSpan(first=first, last=last), *_before_minimum(request)))
        if last > request.min_tokens
        else request
    )


def _before_minimum(request: Request) -> tuple[TokenSpan, ...]:
    """Return a sequence that ends with the last token before the minimum."""
    least = request.min_tokens
    return (TokenSpan(first=least - 2, last=least - 1),) if least > 1 else ()


_ignores = any_request(lambda one: one.ignore_eos)
_request, _round = facts_of("request"), facts_of("round")
EOS = Feature(
    name="eos",
    weight=0.38,
    what="the model has stop ids, heeded or ignored",
    has=lambda one: bool(one.eos) or _ignores(one),
    without=in_turn(requests_put(ignore_eos=False), field_put("eos", ())),
    draw=with_eos,
    rule="S-LIMIT-13",
    of_probes=True,
    facts=(
        _request("ends_by_eos", shown="stop: id of the model", effect=True),
        _request("eos_ignored", shown="stop: id ignored", effect=True),
    ),
)
MIN_TOKENS = Feature(
    name="min-tokens",
    weight=0.38,
    what="a request has a minimum of tokens",
    has=lambda one: one.has_minimum,
    without=requests_put(min_tokens=0),
    draw=with_min_tokens,
    rule="S-LIMIT-15",
    of_probes=True,
    facts=(
        _round("minimum_changed_choice", shown="minimum: moved a choice", effect=True),
        _round("minimum_of_first_row", shown="minimum: by row"),
        _round("minimum_in_window", shown="minimum: in the window"),
        _round("minimum_in_accepted_run", shown="minimum: in the accepted run"),
        _request("ends_as_minimum_is_reached", shown="minimum: met by a stop"),
    ),
)
STOP_SEQUENCES = Feature(
    name="stop-sequences",
    weight=0.38,
    what="a request ends after a stop sequence",
    has=any_request(lambda one: one.stop_sequences or one.stop_sequences_at),
    without=requests_put(stop_sequences=(), stop_sequences_at=()),
    draw=with_stop_sequences,
    rule="S-LIMIT-14",
    of_probes=True,
    facts=(
        _request("ends_by_sequence", shown="stop: sequence", effect=True),
        _request("sequences_across_rounds", shown="stop: sequence across rounds"),
        _request("sequences_in_accepted_run", shown="stop: sequence in the accepted run"),
        _request(
            "sequences_before_minimum", shown="stop: sequence before the minimum", takes="min-tokens", effect=True
        ),
        _request("sequences_from_prompt", shown="stop: sequence from the prompt", effect=True),
        _request(
            "sequences_across_resume",
            lambda one: one.ends_across_resume,
            "stop: sequence across a preemption",
            channels="round.attempt",
            takes="preemption",
        ),
    ),
)
