"""Requests spread unevenly over ranks that run in lockstep (docs/semantics/ranks.md, S-RANK)."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import NOTHING_OF_RANKS, Feature, requests_put
from draftproof.properties.values.scenario import Ranks, Request, RoundPlan, Scenario

Spread = Literal["first apart", "second apart", "last apart", "in turn", "one idle"]
_SPREADS: tuple[Spread, ...] = (
    "first apart",
    "second apart",
    "last apart",
    "first apart",
    "in turn",
    "second apart",
    "one idle",
)
"""Which requests another rank serves than the first."""
_RANKS = (2, 2, 3, 2, 4)
"""How many ranks there are; each is a process, so more of them are dearer."""
_PLAIN = (True, False)
_AFTER_ALL = (True, False)
"""Whether one more request comes when nothing else is left, and until then no rank has anything to run.

A prefix cache has its prompt by then, on its rank alone.
"""


def with_ranks(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw how requests are spread over ranks, some of which have fewer requests, or none.

    What the ranks have to agree on differs within a few steps: the first request of one rank arrives when the other
    rank begins to decode, so that each rank is idle while the other runs a prompt or decodes, and later has more rows
    than the other. Or all requests arrive at once, and one rank runs more prompts. A batch of one has a captured size
    of its own, so that ranks that do not agree run at different sizes.
    """
    count, spread, last = choose.one_of(_RANKS), choose.one_of(_SPREADS), len(scenario.requests) - 1
    apart: dict[str, set[int]] = {
        "first apart": {0},
        "second apart": {min(1, last)},
        "last apart": {last},
        "one idle": set(),
    }
    if spread == "in turn":
        # Each rank has as many as every other, if a number of ranks allows it.
        count = next((one for one in (count, *_RANKS) if (last + 1) % one == 0), count)
    ranks = [index % count for index in range(last + 1)]
    if spread != "in turn":
        ranks = [int(index in apart[spread] and last > 0) for index in range(last + 1)]
    is_spread = len(set(ranks)) > 1
    if max(ranks) == 1 and choose.boolean():
        ranks = [1 - rank for rank in ranks]
    requests = tuple(replace(one, rank=rank) for one, rank in zip(scenario.requests, ranks, strict=True))
    if is_spread:
        chunks = 0 if spread in ("last apart", "in turn") else -(-len(requests[0].prompt) // scenario.schedule.chunk)
        requests = (_arriving(requests[0], 0), *(_arriving(one, chunks) for one in requests[1:]))
    if (choose.one_of(_AFTER_ALL) and spread != "in turn") or scenario.schedule.prefix_cache:
        requests = (*requests, _arriving(requests[-1], _steps_at_most(scenario)))
    if choose.one_of(_PLAIN):
        # The rank with fewer requests has rounds without drafts, beside others that have some.
        fewer = min(set(ranks), key=lambda rank: (ranks.count(rank), rank))
        requests = tuple(_plainer(one) if one.rank == fewer else one for one in requests)
    most = max(Counter((one.arrival, one.rank) for one in requests).values())
    memory = replace(scenario.memory, request_slots=max(scenario.memory.request_slots, most))
    sizes = scenario.graphs.sizes and tuple(sorted({1, *scenario.graphs.sizes}))
    graphs = replace(scenario.graphs, sizes=sizes)
    return replace(scenario, requests=requests, memory=memory, ranks=Ranks(data=count), graphs=graphs)


def _steps_at_most(scenario: Scenario) -> int:
    """Return in how many steps all requests are done, one after another, if none accepts a draft."""
    chunk = scenario.schedule.chunk
    return sum(-(-len(one.prompt) // chunk) + one.budget for one in scenario.requests)


def _plainer(request: Request) -> Request:
    """Return the request with two rounds without drafts before its own."""
    none = RoundPlan(num_drafts=0, num_correct=min(0, max(plan.num_correct for plan in request.rounds)))
    return replace(request, rounds=(none, none, *request.rounds))


def _arriving(request: Request, arrival: int) -> Request:
    """Return the request as one that comes in another step, and is aborted as long after that."""
    abort = None if request.abort_at is None else request.abort_at - request.arrival + arrival
    return replace(request, arrival=arrival, abort_at=abort)


def without_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests on one rank."""
    if scenario.ranks.data == 1:
        return scenario
    most = max(Counter(one.arrival for one in scenario.requests).values())
    memory = replace(scenario.memory, request_slots=max(scenario.memory.request_slots, most))
    return replace(_on_first(scenario), ranks=replace(scenario.ranks, data=1), memory=memory)


def first_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with its requests on the first ranks: those that serve none come last."""
    serving = sorted({one.rank for one in scenario.requests})
    requests = tuple(replace(one, rank=serving.index(one.rank)) for one in scenario.requests)
    return replace(scenario, requests=requests)


_on_first = requests_put(rank=0)
_run = facts_of("run", channels="rank.collectives")
_FACTS = (
    _run("idle_steps", shown="ranks: a step without a row"),
    _run("idle_launches", shown="ranks: idle", effect=True),
    _run("agreed_tokens", shown="ranks: uneven prompts", effect=True),
    _run("agreed_rows", shown="ranks: uneven", effect=True),
    _run("agreed_sizes", shown="ranks: larger graph", effect=True),
    _run("agreed_steps", shown="ranks: more steps", effect=True, takes="adaptive-steps"),
    _run("windows_of_ranks", shown="ranks: windows", takes="windows"),
)

FEATURE = Feature(
    name="data-parallel",
    not_compared=NOTHING_OF_RANKS,
    weight=0.3,
    what="requests are spread over ranks in lockstep",
    has=lambda one: one.ranks.data > 1,
    without=without_ranks,
    draw=with_ranks,
    rule="S-RANK-6",
    of_probes=True,
    # On each rank pages are enough for all of its few requests.
    lacks=("admitted_before_others",),
    facts=_FACTS,
)
