"""Requests that are aborted: while they wait, in their prefill, between two rounds, or after they gave way."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, has
from draftproof.properties.features.feature import Feature, requests_put
from draftproof.properties.features.some_requests import slots_for
from draftproof.properties.values.scenario import Request, Scenario

_AFTER = (1, 0, 3, 2, 4, 6, 0, 5, 8)
# Those that were served most of their prompt are soon at their end.
_SOON = (2, 3, 1, 2, 4)
# When most of those that give way wait to come back.
_PREEMPTED_AFTER = (5, 6, 5, 8, 7, 5)
# Those that give way have all come by then: several are aborted in one step.
_AT_ONCE = 1
_SOME = (True, False)
_MOSTLY = (True, True, True, True, False)
# Of those that share pages, and do not give way: half come so soon after each other that some wait.
_CROWDED = (True, False)
# Of those of them with grammars.
_AT_PAGES = (True, True, True, False)
_ALONE = 40
_MORE_PAGES = 2


def with_aborts(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests are aborted, half of them, and in which step after they came; the first or the last is.

    Where they give way to each other all but the first may be, and most of these at once, so that none of these aborts
    leaves more pages to another; where they share pages all but the first, of which these are. Most of those that share
    pages, have grammars and do not give way are aborted when all their pages are to be kept.
    """
    last, schedule = len(scenario.requests) - 1, scenario.schedule
    preempts, depends = schedule.preemption, schedule.preemption or schedule.prefix_cache
    if schedule.prefix_cache and not preempts:
        if scenario.is_constrained and choose.one_of(_AT_PAGES):
            return _at_pages(choose, scenario)
        if choose.one_of(_CROWDED):
            return _in_line(choose, scenario)
    certain = choose.one_of((last, last) if depends else (0, 0, last))
    after: tuple[int, ...] = _SOON if schedule.prefix_cache else _AFTER
    after = (choose.one_of(_PREEMPTED_AFTER),) if preempts and choose.one_of(_MOSTLY) else after
    requests = list(scenario.requests)
    for index, request in enumerate(requests):
        if index == certain or (choose.one_of(_MOSTLY if depends else _SOME) and not (depends and not index)):
            # Something runs: the certain one, if nobody else.
            steps = max(choose.one_of(after), int(index == certain))
            since = _AT_ONCE if preempts else request.arrival
            requests[index] = replace(request, abort_at=since + steps)
    return replace(scenario, requests=tuple(requests))


def _in_line(choose: Choose, scenario: Scenario) -> Scenario:
    """Return requests that come while the first runs, each of which but the first and the last may be aborted: those
    that wait have others behind them.
    """
    first, *others = scenario.requests
    requests = [first]
    for place, one in enumerate(others, start=1):
        arrival = first.arrival + choose.one_of((1, 2, 3)) + place // 2
        is_aborted = place == 1 or (place < len(others) and choose.one_of(_SOME))
        abort_at = arrival + choose.one_of((2, 3, 1, 4)) if is_aborted else None
        requests.append(replace(one, arrival=arrival, abort_at=abort_at))
    memory = replace(scenario.memory, request_slots=slots_for(scenario, requests))
    return replace(scenario, requests=tuple(requests), memory=memory)


def _at_pages(choose: Choose, scenario: Scenario) -> Scenario:
    """Return requests with a page in each chunk, all but the first of which may be aborted behind their first chunk:
    they have no page then that a cache does not keep. The last is, has a grammar, and comes when nobody else is there.

    Served again, it finds the page of its first chunk, with its state, and runs the next: what is left of it shows.
    """
    memory, vocab = scenario.memory, scenario.model.vocab
    first, *others = scenario.requests
    requests = [first]
    requests += [
        _cut_off(one, one.arrival, memory.page_size, vocab) if choose.one_of(_SOME) else one for one in others[:-1]
    ]
    grammar, stops = next((one.grammar, one.stops) for one in reversed(scenario.requests) if one.grammar)
    last = replace(others[-1], grammar=grammar, stops=stops, prompt_logprobs=None)
    requests.append(_cut_off(last, requests[-1].arrival + _ALONE, memory.page_size, vocab))
    more = 1 + _MORE_PAGES
    memory = replace(memory, pages=memory.pages + more, max_len=memory.max_len + more * memory.page_size)
    states = scenario.states
    if memory.checkpoint_slots:
        memory, states = replace(memory, checkpoint_slots=memory.pages), replace(states, checkpoint=memory.page_size)
    return replace(
        scenario,
        requests=tuple(requests),
        memory=memory,
        states=states,
        schedule=replace(scenario.schedule, chunk=memory.page_size, services=2),
    )


def _cut_off(request: Request, arrival: int, size: int, vocab: int) -> Request:
    """Return the request with a prompt of pages more, and whole ones, aborted a step after it came."""
    missing = -len(request.prompt) % size + _MORE_PAGES * size
    more = tuple((request.prompt[-1] + place) % vocab for place in range(1, missing + 1))
    return replace(request, arrival=arrival, abort_at=arrival + 1, prompt=request.prompt + more)


_request = facts_of("request", channels="round.rows")
_FACTS = (
    _request("aborted_waiting", has(aborted="waiting"), "aborted: waiting", effect=True),
    _request("aborted_in_prefill", has(aborted="in_prefill"), "aborted: in its prefill", effect=True),
    _request("aborted_in_decode", has(aborted="in_decode"), "aborted: between rounds", effect=True),
    _request("aborted_preempted", has(aborted="preempted"), "aborted: preempted", takes="preemption", effect=True),
    _request("aborted_before_others", lambda one: one.is_aborted_before_others, "aborted: before others"),
    facts_of("request", channels="round.rows, round.table", takes="prefix-cache")(
        "aborted_on_served_pages", lambda one: one.is_aborted_on_served_pages, "aborted: on served pages"
    ),
)

FEATURE = Feature(
    name="aborts",
    weight=0.38,
    what="a request is aborted",
    has=lambda one: one.has_aborts,
    without=requests_put(abort_at=None),
    draw=with_aborts,
    rule="S-SCHED-9",
    of_probes=True,
    facts=_FACTS,
)
