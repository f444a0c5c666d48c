"""Pages on demand, and fewer of them than all requests come to own."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, field_is_not, field_put
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, pages_needed

_LONGER = 7
# Whether rounds take more pages than the ones behind them, and keep them.
_SPARE = (False, True, False, False)


def with_preemption(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw how many pages there are: enough for the longest request, and for the prefills of all, or for a few more.

    Requests come soon after each other, each with a row, and go on for some rounds. In some scenarios each owns more
    pages than it needs in every other round.
    """
    requests = tuple(
        replace(one, arrival=min(one.arrival, 1), budget=max(one.budget, _LONGER)) for one in scenario.requests
    )
    if len(requests) == 1:
        return scenario
    memory = scenario.memory
    if choose.one_of(_SPARE) and scenario.variant != "taps_off":
        requests, memory = _with_spare_pages(requests, scenario.steps), replace(memory, page_size=1)
    memory = replace(memory, request_slots=max(scenario.memory.request_slots, len(requests)))
    scenario = replace(scenario, requests=requests, memory=memory)
    needs = [pages_needed(scenario, request) for request in requests]
    prefills = sum(len(request.prompt) // memory.page_size + 1 for request in requests)
    pages = min(prefills + choose.one_of((0, -1, 1, -2)), sum(needs) - 1)
    return replace(
        scenario,
        memory=replace(memory, pages=max(pages, *needs)),
        schedule=replace(scenario.schedule, preemption=True),
    )


def _with_spare_pages(requests: tuple[Request, ...], steps: int) -> tuple[Request, ...]:
    """Return requests with all drafts in every other round, of which none is right, and none in those between."""
    plans = (RoundPlan(num_drafts=steps, num_correct=0), RoundPlan(num_drafts=0, num_correct=0))
    return tuple(replace(one, rounds=plans if place % 2 else plans[::-1]) for place, one in enumerate(requests))


_ALL = "S-SCHED-8 decides who gives way by the pages of all requests of one engine; "
_request = facts_of("request", channels="round.attempt")
_FACTS = (
    _request("preemptions", lambda one: one.preemptions, "preempted: at all", effect=True),
    _request("preempted_again", lambda one: one.preemptions > 1, "preempted: again"),
    _request("resumed_in_first_round", lambda one: one.resumed_in == 1, "preempted: in its first round"),
    _request(
        "resumed_in_chunks",
        lambda one: one.resumed_in_chunks,
        "preempted: resumed in chunks",
        channels="round.attempt, round.rows",
    ),
    _request(
        "preemptions_of_hybrids",
        lambda one: one.run.is_hybrid * one.preemptions,
        "preempted: of a hybrid",
        takes="hybrid",
    ),
    _request(
        "variant_alone_of_resumed",
        lambda one: one.run.changed == "alone" and one.preemptions > 0,
        "variant: alone, of a resumed one",
        takes="variant alone",
        real=False,
    ),
)

FEATURE = Feature(
    name="preemption",
    what="pages are taken on demand, and a request gives way where they run out",
    has=field_is_not("schedule.preemption", False),
    without=field_put("schedule.preemption", False),
    draw=with_preemption,
    rule="S-SCHED-8",
    refuses={
        "data-parallel": _ALL + "ranks would run prompts again in steps that they have agreed on (S-RANK-3)",
        "tensor-parallel": _ALL + "S-TP-2 has every rank own the same pages from admission to end",
    },
    facts=_FACTS,
)
