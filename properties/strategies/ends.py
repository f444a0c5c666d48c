"""Requests that end by more than a stop id and a budget: ids of the model, stop sequences, a minimum of tokens."""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.requests import without_stops
from draftproof.properties.values.scenario import Request, Scenario, TokenSpan

Kind = Literal["both", "sequences", "minimum", "ids"]
_KINDS: tuple[Kind, ...] = ("both", "ids", "sequences", "minimum", "ids")
_BELOW = 97
# Of a vocabulary of 61 tokens few come in a text of ten.
_EOS = (10, 8, 15, 12, 3)
# How many of the first tokens; a budget is 5 to 11, seldom more.
_LEAST = (3, 2, 4, 1, 6)
# How many tokens a late sequence has besides its last, of the whole text at most.
_LATE = (99, 99, 4)
# Where the stop token is, behind the minimum: the first that may be one, one that may not, the next, or none.
_BEHIND = (0, -1, 0, 1, None)


def with_ends(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw the model's own ids, and what ends each request: kinds take turns, from a drawn one on."""
    vocab = scenario.model.vocab
    count = min(draw(sampled(_EOS)), max(1, vocab // 4))
    eos = dict.fromkeys(draw(integers(0, _BELOW - 1)) * vocab // _BELOW for _ in range(count))
    first = draw(integers(0, len(_KINDS) - 1))
    requests = (
        _ended(draw, request, scenario, _KINDS[(first + number) % len(_KINDS)])
        for number, request in enumerate(scenario.requests)
    )
    return replace(scenario, eos=tuple(eos), requests=tuple(requests))


def without_ends(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that end at a stop id of their own, at a budget or at `max_len`."""
    if not scenario.has_ends:
        return scenario
    return replace(scenario, eos=(), requests=tuple(map(without_stops, scenario.requests)))


def _ended(draw: st.DrawFn, request: Request, scenario: Scenario, kind: Kind) -> Request:
    """Draw what ends a request; but where that is to be shown, it ends by no id of the model."""
    if scenario.schedule.preemption:
        # Who gives way is to go on for some rounds.
        request = replace(request, ignore_eos=True)
        if not request.grammar:
            least = min(draw(sampled(_LEAST)), request.budget)
            request = replace(request, min_tokens=least, stops=(), stop_at=-1)
        return _late_sequence(draw, request) if request.sampling is None else request
    if kind == "ids":
        return request
    knows_text = request.sampling is None or not scenario.dynamic
    request = replace(request, ignore_eos=True)
    if kind != "sequences" and not request.grammar:
        request = _with_minimum(draw, request, knows_text=knows_text)
    if not knows_text:
        return request
    early = _before_minimum(request)
    has_more = kind != "minimum" or request.grammar is not None
    return replace(request, sequences_at=(*_sequences(draw, request), *early) if has_more else early)


def _with_minimum(draw: st.DrawFn, request: Request, *, knows_text: bool) -> Request:
    """Draw a minimum, and a stop token at about the first place where there may be one."""
    least = min(draw(sampled(_LEAST)), request.budget)
    behind = draw(sampled(_BEHIND))
    at = -1 if behind is None or not knows_text else min(least + behind, request.budget - 1)
    return replace(request, min_tokens=least, stop_at=at)


def _sequences(draw: st.DrawFn, request: Request) -> tuple[TokenSpan, ...]:
    """Draw a sequence near the end, and perhaps one that begins in the prompt."""
    length = draw(sampled((2, 3, 2, 4, 1)))
    last = min(draw(sampled((3, 4, 2, 5, 6))) + request.min_tokens, request.budget - 1)
    found = [TokenSpan(first=max(0, last - length + 1), last=last)]
    if draw(st.booleans()):
        before = min(len(request.prompt), draw(sampled((1, 2))))
        found.append(TokenSpan(first=-before, last=draw(sampled((0, 1)))))
    return tuple(found)


def _late_sequence(draw: st.DrawFn, request: Request) -> Request:
    """Return a request that ends with a sequence one token before its budget would be spent: one that is so long that
    the request may have given way in the middle of it.
    """
    last = request.budget - 2
    first = max(0, last - draw(sampled(_LATE)))
    return replace(request, sequences_at=(TokenSpan(first=first, last=last),)) if last > request.min_tokens else request


def _before_minimum(request: Request) -> tuple[TokenSpan, ...]:
    """Return a sequence that ends with the last token before the minimum."""
    least = request.min_tokens
    return (TokenSpan(first=least - 2, last=least - 1),) if least > 1 else ()
