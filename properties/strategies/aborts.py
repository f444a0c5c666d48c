"""Requests that are aborted: while they wait, in their prefill, between two rounds, or after they gave way."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.strategies.some_requests import slots_for
from draftproof.properties.values.scenario import Request, Scenario

_AFTER = (1, 3, 2, 4, 6, 0, 5, 8)
# Those that were served most of their prompt are soon at their end.
_SOON = (2, 3, 1, 2, 4)
# When most of those that give way wait to come back.
_PREEMPTED_AFTER = (3, 4, 3, 6, 5, 3)
# Those that give way have all come by then: several are aborted in one step.
_AT_ONCE = 1
_SOME = (True, False)
_MOSTLY = (True, True, True, True, False)
# Of those that share pages, and do not give way: half come so soon after each other that some wait.
_CROWDED = (True, False)


def with_aborts(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests are aborted, half of them, and in which step after they came; the first or the last is.

    Where they give way to each other all but the first may be, and most of these at once, so that none of these aborts
    leaves more pages to another; where they share pages all but the first, of which these are.
    """
    last, schedule = len(scenario.requests) - 1, scenario.schedule
    preempts, depends = schedule.preemption, schedule.preemption or schedule.prefix_cache
    if schedule.prefix_cache and not preempts and draw(sampled(_CROWDED)):
        return _in_line(draw, scenario)
    certain = draw(sampled((last, last) if depends else (0, 0, last)))
    after: tuple[int, ...] = _SOON if schedule.prefix_cache else _AFTER
    after = (draw(sampled(_PREEMPTED_AFTER)),) if preempts and draw(sampled(_MOSTLY)) else after
    requests = list(scenario.requests)
    for index, request in enumerate(requests):
        if index == certain or (draw(sampled(_MOSTLY if depends else _SOME)) and not (depends and not index)):
            # Something runs: the certain one, if nobody else.
            steps = max(draw(sampled(after)), int(index == certain))
            since = _AT_ONCE if preempts else request.arrival
            requests[index] = replace(request, abort_at=since + steps)
    return replace(scenario, requests=tuple(requests))


def _in_line(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Return requests that come while the first runs, each of which but the first and the last may be aborted: those
    that wait have others behind them.
    """
    first, *others = scenario.requests
    requests = [first]
    for place, one in enumerate(others, start=1):
        arrival = first.arrival + draw(sampled((1, 2, 3))) + place // 2
        is_aborted = place == 1 or (place < len(others) and draw(sampled(_SOME)))
        abort_at = arrival + draw(sampled((2, 3, 1, 4))) if is_aborted else None
        requests.append(replace(one, arrival=arrival, abort_at=abort_at))
    memory = replace(scenario.memory, request_slots=slots_for(scenario, requests))
    return replace(scenario, requests=tuple(requests), memory=memory)


def without_aborts(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that are served to their ends."""
    return replace(scenario, requests=tuple(map(_served, scenario.requests))) if scenario.has_aborts else scenario


def _served(request: Request) -> Request:
    return replace(request, abort_at=None)
