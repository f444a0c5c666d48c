"""Requests that are aborted: while they wait, in their prefill, between two rounds, or after a preemption."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, has
from draftproof.properties.features.feature import ROUNDS_OF_ITS_SCHEDULE, Feature, requests_put
from draftproof.properties.features.lasting import with_some_going_on
from draftproof.properties.values.scenario import Scenario

_AFTER = (1, 0, 3, 2, 4, 6, 1, 5, 8)
# When most of the preempted requests wait to resume.
_PREEMPTED_AFTER = (5, 6, 5, 8, 7, 5)
# The requests that may be preempted have all come by then: several are aborted in one step.
_AT_ONCE = 1
_SOME = (True, False)
_MOSTLY = (True, True, True, True, False)


def with_aborts(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests are aborted, half of them, and in which step after they came; the first or the last is.

    With preemption all but the first may be aborted, and mostly at once, so that none of these aborts leaves more pages
    to another.
    """
    return aborted(choose, scenario, _AFTER, depends=scenario.schedule.preemption)


def aborted(choose: Choose, scenario: Scenario, after: tuple[int, ...], *, depends: bool) -> Scenario:
    """Draw which requests are aborted, `after` how many steps; not the first where others depend on what it leaves."""
    last, preempts = len(scenario.requests) - 1, scenario.schedule.preemption
    certain = choose.one_of((last, last) if depends else (0, 0, last))
    after = (choose.one_of(_PREEMPTED_AFTER),) if preempts and choose.one_of(_MOSTLY) else after
    requests = list(scenario.requests)
    for index, request in enumerate(requests):
        if index == certain or (choose.one_of(_SOME) and not (depends and not index)):
            # At least one request runs: the certain one, if no other does.
            steps = max(choose.one_of(after), int(index == certain))
            since = _AT_ONCE if preempts else request.arrival
            requests[index] = replace(request, abort_at=since + steps)
    return replace(scenario, requests=tuple(requests))


_request = facts_of("request", channels="round.rows")
_FACTS = (
    _request("aborted_waiting", has(aborted="waiting"), "aborted: waiting", effect=True),
    _request("aborted_in_prefill", has(aborted="in_prefill"), "aborted: in its prefill", effect=True),
    _request("aborted_in_decode", has(aborted="in_decode"), "aborted: between rounds", effect=True),
    _request("aborted_preempted", has(aborted="preempted"), "aborted: preempted", takes="preemption", effect=True),
    _request("aborted_before_others", lambda one: one.is_aborted_before_others, "aborted: before others"),
)

FEATURE = Feature(
    name="aborts",
    not_compared={"unoverlapped": ROUNDS_OF_ITS_SCHEDULE},
    weight=0.38,
    what="a request is aborted",
    has=lambda one: one.has_aborts,
    without=requests_put(abort_at=None),
    draw=with_aborts,
    # The last feature by which requests end.
    behind=with_some_going_on,
    rule="S-SCHED-9",
    of_probes=True,
    facts=_FACTS,
)
