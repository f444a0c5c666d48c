"""Mixed schedules: chunks beside verify rows, in token buckets that some launches fill, pad or exceed."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, variant
from draftproof.properties.features.feature import Feature, field_is_not, field_put, in_turn
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.scenario import Graphs, ProbeModel, Request, RoundPlan, Scenario, pages_needed

_NO_DRAFTS = RoundPlan(num_drafts=0, num_correct=-1)
_FEW = 3
_ONE_DECODES = (True, True, False)
_OVERLAPPED = (True, True, True, False)
"""Whether ranks beside each other keep their overlap rather than chunks beside rounds: they have one of the two."""
_LATER = (2, 7, 1)
"""With this many requests or more, the last one arrives when most others decode, or when some are done."""


def with_mixed(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw requests that come one after another, in chunks, so that chunks of some meet rounds of others.

    Where that was drawn for something else they stay. Two thirds of chunks are as long as a verify row.
    """
    schedule = scenario.schedule
    if not schedule.token_budget:
        chunk = choose.one_of((scenario.width, scenario.width, schedule.chunk))
        scenario = put_in(scenario, "schedule", chunk=chunk)
    if not (schedule.preemption or schedule.token_budget or scenario.has_aborts):
        scenario = replace(scenario, requests=tuple(_one_after_another(choose, scenario.requests)))
    return with_mixed_steps(choose, scenario)


def with_mixed_steps(choose: Choose, scenario: Scenario) -> Scenario:
    """Return the scenario mixed, with buckets about as large as a chunk, a decode batch, or all rows of a step."""
    requests = tuple(_plainer(one, place) for place, one in enumerate(scenario.requests))
    overlap = scenario.schedule.overlap
    if overlap and scenario.ranks.data > 1:
        if choose.one_of(_OVERLAPPED):
            return scenario
        overlap = ("none",)
    mixed = put_in(replace(scenario, requests=requests), "schedule", mixed=True, overlap=overlap)
    if _may_decode_one(mixed) and choose.one_of(_ONE_DECODES):
        mixed = _one_decodes(mixed)
    if isinstance(mixed.model, ProbeModel) and mixed.model.linear:
        return mixed
    if not mixed.graphs.sizes and choose.one_of((True, True, False)):
        mixed = replace(mixed, graphs=Graphs(sizes=(mixed.schedule.max_batch,)))
    return put_in(mixed, "graphs", tokens=_buckets(choose, mixed)) if mixed.graphs.sizes else mixed


def _buckets(choose: Choose, scenario: Scenario) -> tuple[int, ...]:
    chunk = min(scenario.schedule.chunk, max(len(request.prompt) for request in scenario.requests))
    width, batch = scenario.width, scenario.schedule.max_batch
    whole = 2 * chunk + batch * width
    if scenario.tree and scenario.ranks.data > 1 and choose.one_of((True, False)):
        # Rows of a tree and of a chain beside each other are in different buckets.
        chain = scenario.steps + 1
        return tuple(sorted({chain, chunk + chain, chunk + batch * chain, whole}))
    about = (
        (whole,),
        (chunk,),
        (chunk + width, whole),
        (chunk - 1 or 1,),
        (batch * width,),
        (chunk + batch * width,),
        (chunk, whole),
        (chunk, chunk + 2),
        (whole + 1,),
    )
    return tuple(sorted(set(choose.one_of(about))))


def for_two(scenario: Scenario) -> Scenario:
    """Return the scenario with pages for the two longest requests: one alone would meet no chunk of another."""
    needs = sorted(pages_needed(scenario, request) for request in scenario.requests)
    return put_in(scenario, "memory", pages=max(scenario.memory.pages, sum(needs[-2:])))


def _may_decode_one(scenario: Scenario) -> bool:
    """Return whether nothing in a scenario needs decode batches of several rows, such as a mean or a lookup."""
    crowded = scenario.schedule.preemption or scenario.schedule.token_budget
    return not (crowded or scenario.adaptive_steps or kind_of(scenario.draft).proposes == "lookup")


def _one_decodes(scenario: Scenario) -> Scenario:
    """Return the scenario with a decode batch of one row, beside which prompts of others have their later chunks."""
    third = max(1, max(len(request.prompt) for request in scenario.requests) // 3)
    schedule = replace(scenario.schedule, max_batch=1, draft_batch=0, chunk=min(scenario.schedule.chunk, third))
    memory = replace(scenario.memory, request_slots=max(2, scenario.memory.request_slots))
    graphs = replace(scenario.graphs, sizes=(1,)) if scenario.graphs.sizes else scenario.graphs
    return for_two(replace(scenario, schedule=schedule, memory=memory, graphs=graphs))


def _plainer(request: Request, place: int) -> Request:
    """Return every other request without drafts in most of its first rounds, while others decode with drafts."""
    if place % 2:
        return replace(request, rounds=(_NO_DRAFTS, _NO_DRAFTS, request.rounds[0], _NO_DRAFTS, *request.rounds[1:]))
    most = max(request.rounds, key=lambda plan: plan.num_drafts)
    return replace(request, rounds=(most, most, *request.rounds))


def _one_after_another(choose: Choose, requests: tuple[Request, ...]) -> list[Request]:
    """Return requests with the longest prompt first; the last one arrives when some of the others are done."""
    arrival, made = 0, list(requests)
    order = sorted(range(len(requests)), key=lambda one: -len(requests[one].prompt))
    for place, index in enumerate(order):
        made[index] = replace(requests[index], arrival=arrival)
        arrival += choose.integer(1, 2) if place + 2 < len(order) or len(order) < _FEW else choose.one_of(_LATER)
    return made


_run = facts_of("run", channels="graph.replay")
_FACTS = (
    variant("unmixed"),
    _run("mixed_launches", shown="mixed launch: chunks beside rounds", effect=True),
    _run("mixed_beside_no_drafts", shown="mixed launch: beside no drafts"),
    _run("mixed_as_large_as_decode", shown="mixed launch: as large as decode"),
    _run("prefill_as_large_as_decode", shown="mixed launch: chunks as large as decode"),
    _run("buckets_padded", shown="mixed launch: bucket padded", effect=True),
    _run("buckets_filled", shown="mixed launch: bucket filled", effect=True),
    _run("buckets_exceeded", shown="mixed launch: beyond buckets"),
    _run("buckets_after_larger", shown="mixed launch: after a larger one"),
)

FEATURE = Feature(
    name="mixed",
    weight=0.35,
    what="chunks of prompts and verify rows share a launch",
    has=field_is_not("schedule.mixed", False),
    without=in_turn(field_put("schedule.mixed", False, variant="unmixed"), field_put("graphs.tokens", ())),
    draw=with_mixed,
    rule="S-MIXED-7",
    of_probes=True,
    facts=_FACTS,
)
