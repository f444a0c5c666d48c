"""Pages on demand, and fewer of them than all requests come to own."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import ROUNDS_OF_ITS_SCHEDULE, Feature, field_is_not, field_put
from draftproof.properties.features.some_requests import slots_for, unstopped
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, pages_needed
from draftproof.properties.values.tree import TreeShape

_LONGER, _MOST_TOKENS = 9, 8
# Whether rounds take more pages than the ones behind them, and keep them.
_SPARE = (False, True, False, False)
# Whether there are no more pages than must be.
_FEWEST = (True, False, True)


def with_preemption(choose: Choose, scenario: Scenario) -> Scenario:
    """Return requests that come soon after each other, each with a row, and go on for some rounds.

    In some scenarios each owns more pages than it needs in every other round.
    """
    requests = tuple(
        replace(one, arrival=min(one.arrival, 1), budget=max(one.budget, _LONGER)) for one in scenario.requests
    )
    if len(requests) == 1:
        return scenario
    # On larger pages most rounds take none.
    size = min(scenario.memory.page_size, _MOST_TOKENS)
    pages = -(-scenario.memory.pages * scenario.memory.page_size // size)
    memory = replace(scenario.memory, page_size=size, pages=pages)
    if choose.one_of(_SPARE) and scenario.variant != "taps_off":
        requests, memory = _with_spare_pages(requests, scenario), replace(memory, page_size=1)
    memory = replace(memory, request_slots=max(scenario.memory.request_slots, len(requests)))
    schedule = replace(scenario.schedule, preemption=True)
    made = replace(scenario, requests=requests, memory=memory, schedule=schedule)
    return put_in(made, "memory", pages=max(memory.pages, *(pages_needed(made, one) for one in requests)))


def with_few_pages(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw how many pages there are: enough for the prefills of a few requests at once, and not for all their rounds.

    Pages that prompts have in common are taken once where a prefix cache shares them. Of ranks, each of which has as
    many pages, the one with the most requests counts.
    """
    if not scenario.schedule.preemption or len(scenario.requests) == 1:
        return scenario
    scenario = _side_by_side(scenario)
    size, most = scenario.memory.page_size, min(scenario.schedule.max_batch, scenario.memory.request_slots)
    own = [scenario.requests[place] for place in _of_fullest_rank(scenario)]
    first = sorted(own, key=lambda one: one.arrival)[: max(2, choose.one_of((2, most)))]
    taken = [_pages_of(one.known_prompt, size) for one in first]
    prefills = len(set().union(*taken)) if scenario.schedule.prefix_cache else sum(map(len, taken))
    rounds = sum(pages_needed(scenario, one) - len(pages) for one, pages in zip(first, taken, strict=True))
    if scenario.schedule.disaggregation:
        # The decode engine takes two requests with the pages of their first rounds.
        prefills, rounds = sum(pages_needed(scenario, replace(one, budget=1)) for one in first[:2]), 1
    longest = max(pages_needed(scenario, one) for one in scenario.requests)
    least = max(prefills, longest)
    most = least if choose.one_of(_FEWEST) else max(least, prefills + (rounds - 1) // 2)
    return put_in(scenario, "memory", pages=choose.integer(least, most))


def _of_fullest_rank(scenario: Scenario) -> list[int]:
    """Return the places of the requests of the rank that has most."""
    rank = Counter(one.rank for one in scenario.requests).most_common(1)[0][0]
    return [place for place, one in enumerate(scenario.requests) if one.rank == rank]


def _side_by_side(scenario: Scenario) -> Scenario:
    """Return the scenario with the longest request and another one of its rank run to their ends, from the first step.

    There are pages for the longest request, so that it must not run alone. Others come a step later, and may be
    aborted or end by a sequence: where none of them does, one of the two may. A budget of tokens leaves some beside a
    whole round.
    """
    own = _of_fullest_rank(scenario)
    if len(own) == 1:
        return scenario
    requests = [replace(one, arrival=max(one.arrival, 1)) for one in scenario.requests]

    def whole(place: int) -> int:
        return min(scenario.memory.max_len, len(requests[place].prompt) + requests[place].budget)

    longest = max(own, key=lambda place: (whole(place), -len(requests[place].prompt)))
    other = min((place for place in own if place != longest), key=lambda place: len(requests[place].prompt))
    both = {longest: unstopped(requests[longest]), other: unstopped(requests[other])}
    budget = whole(longest) - len(both[other].prompt)
    both[other] = replace(both[other], budget=max(1, both[other].min_tokens, budget))
    others = [one for place, one in enumerate(requests) if place not in both and one.flaw == "none"]
    some_aborted = any(one.abort_at is not None for one in others)
    for place, one in both.items():
        if not any(other.stop_sequences or other.stop_sequences_at for other in others):
            was = requests[place]
            one = replace(one, stop_sequences=was.stop_sequences, stop_sequences_at=was.stop_sequences_at)
        requests[place] = replace(one, arrival=0, abort_at=None if some_aborted else one.abort_at)
    tokens = scenario.schedule.token_budget and max(scenario.schedule.token_budget, scenario.width + 1)
    made = put_in(replace(scenario, requests=tuple(requests)), "schedule", token_budget=tokens)
    return put_in(made, "memory", request_slots=slots_for(scenario, requests))


def _pages_of(prompt: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    """Return what each page of a prompt, and the first entry behind it, are known by: the tokens up to their ends."""
    return {prompt[: start + size] for start in range(0, len(prompt) + 1, size)}


def _with_spare_pages(requests: tuple[Request, ...], scenario: Scenario) -> tuple[Request, ...]:
    """Return requests that alternate between rounds with all drafts, none of them right, and rounds without drafts."""
    none, shape = RoundPlan(num_drafts=0, num_correct=0), TreeShape(parents=(0,)) if scenario.tree else None
    made = list[Request]()
    for place, one in enumerate(requests):
        wrong = RoundPlan(num_drafts=scenario.steps, num_correct=0, wrong=one.rounds[-1].wrong, shape=shape)
        plans = (wrong, none)
        made.append(replace(one, rounds=plans if place % 2 else plans[::-1]))
    return tuple(made)


_request = facts_of("request", channels="round.attempt")
_FACTS = (
    _request("preemptions", lambda one: one.preemptions, "preemption: at all", effect=True),
    _request("preempted_again", lambda one: one.preemptions > 1, "preemption: again"),
    _request("resumed_in_first_round", lambda one: one.resumed_in == 1, "preemption: in its first round"),
    _request(
        "resumed_in_chunks",
        lambda one: one.resumed_in_chunks,
        "preemption: resumed in chunks",
        channels="round.attempt, round.rows",
    ),
    _request(
        "preemptions_of_hybrids",
        lambda one: one.run.is_hybrid * one.preemptions,
        "preemption: of a hybrid",
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
    not_compared={
        "unoverlapped": ROUNDS_OF_ITS_SCHEDULE,
        "chain_as_tree": "it is compared where no request waits for pages",
    },
    what="pages are taken on demand, and a request is preempted where they run out",
    has=field_is_not("schedule.preemption", False),
    without=field_put("schedule.preemption", False),
    draw=with_preemption,
    finish=with_few_pages,
    rule="S-SCHED-8",
    facts=_FACTS,
)
