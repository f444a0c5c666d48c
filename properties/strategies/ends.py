"""Requests that end by more than a stop id and a budget: ids of the model, stop sequences, a minimum of tokens."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.requests import without_stops
from draftproof.properties.strategies.some_requests import with_some
from draftproof.properties.values.scenario import Request, Scenario, Span

_BELOW = 97
# Of a vocabulary of 61 tokens few come in a text of ten.
_EOS = (4, 6, 3, 8, 0)
# How many of the first tokens; a budget is 5 to 11, seldom more.
_LEAST = (3, 2, 4, 1, 6)
# Where the stop token is, behind the minimum: the first that may be one, one that may not, the next, or none.
_BEHIND = (0, -1, 0, 1, None)


def with_ends(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw the model's own ids, and which requests have sequences and a minimum; the first has."""
    vocab = scenario.model.vocab
    count = min(draw(sampled(_EOS)), vocab // 4)
    eos = dict.fromkeys(draw(integers(0, _BELOW - 1)) * vocab // _BELOW for _ in range(count))
    return with_some(draw, replace(scenario, eos=tuple(eos)), lambda request: _ended(draw, request, scenario))


def without_ends(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that end at a stop id of their own, at a budget or at `max_len`."""
    if not scenario.has_ends:
        return scenario
    return replace(scenario, eos=(), requests=tuple(map(without_stops, scenario.requests)))


def _ended(draw: st.DrawFn, request: Request, scenario: Scenario) -> Request:
    has_minimum, has_sequence = draw(sampled(((True, True), (True, False), (False, True), (True, True))))
    request = replace(request, ignore_eos=draw(sampled((False, True, True))))
    knows_text = request.sampling is None or not scenario.dynamic
    if has_minimum and not request.grammar:
        request = _with_minimum(draw, request, knows_text=knows_text)
    return replace(request, sequences_at=_sequences(draw, request)) if has_sequence and knows_text else request


def _with_minimum(draw: st.DrawFn, request: Request, *, knows_text: bool) -> Request:
    """Draw a minimum, and a stop token at about the first place where there may be one."""
    least = min(draw(sampled(_LEAST)), request.budget)
    behind = draw(sampled(_BEHIND))
    at = -1 if behind is None or not knows_text else min(least + behind, request.budget - 1)
    return replace(request, min_tokens=least, stop_at=at)


def _sequences(draw: st.DrawFn, request: Request) -> tuple[Span, ...]:
    """Draw a sequence near the end, perhaps one that begins in the prompt, and one before the minimum."""
    length = draw(sampled((2, 3, 2, 4, 1)))
    last = min(draw(sampled((3, 4, 2, 5, 6))) + request.min_tokens, request.budget - 1)
    found = [Span(first=max(0, last - length + 1), last=last)]
    if draw(sampled((False, True, False))):
        before = min(len(request.prompt), draw(sampled((1, 2))))
        found.append(Span(first=-before, last=draw(sampled((0, 1)))))
    if request.min_tokens > 1 and draw(sampled((True, True, False))):
        found.append(Span(first=request.min_tokens - 2, last=request.min_tokens - 1))
    return tuple(found)
