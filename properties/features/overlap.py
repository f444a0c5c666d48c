"""A host that plans a step while the one before runs: delays of results, and ends that it learns of too late."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, variant
from draftproof.properties.features.feature import Feature, field_is_not, field_put
from draftproof.properties.features.lasting import forced, lasting, rejecting, with_pages_of
from draftproof.properties.features.some_requests import together
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.delays import Delay
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, pages_needed

DELAYS: tuple[tuple[Delay, ...], ...] = (
    ("late",),
    ("late", "early"),
    ("early",),
    ("late", "late", "none"),
    ("early", "late", "late", "none", "late"),
    ("late", "late", "early"),
)
"""What the delays of steps are, repeated: most of them late, as a mistake shows there at once."""
_DELAYS_KEPT: tuple[tuple[Delay, ...], ...] = (("early",), ("late", "early"), ("early", "early", "late"))
"""The same where a cache keeps states: what an early step writes is there when the host has the step before copied."""

_ROOMY = (True, *(False,) * 7)
_STOPPED = (True, True, True, False)
_SWINGING = (True, True, True, False)
_CUT = (True, True, False)
"""Whether `max_len` ends requests without a stop token, rather than their budget; a host can tell when that is."""
_BY_BUDGET = (False, True)
_AT_FIRST = (True, False)
"""Whether requests end by their budgets alone, and whether the last does with its first token."""
_LASTING = 3
_LASTING_CONTROLLED = 5
"""Rounds that a request could accept all of: a length that is a step old shows in the second of them, and under a
controller step counts are to rise and fall.
"""
_CHECKPOINTS = (3, 2, 5)
"""After how many tokens a state is kept: some rounds reach it by the length that the host has, and not by their own."""


def with_overlap(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw the delays of steps. Most requests end by a stop token before their budgets, so that they run on.

    Without a controller each request has a budget for some rounds, one of which rejects a draft. Most scenarios have
    pages for two requests at a time, so that others get the pages that these give back.
    """
    keeps = scenario.schedule.prefix_cache and scenario.states.checkpoint
    schedule = replace(scenario.schedule, overlap=choose.one_of(_DELAYS_KEPT if keeps else DELAYS))
    made = replace(scenario, schedule=schedule)
    if made.adaptive_steps is not None and choose.one_of(_SWINGING):
        made = _swinging(made, made.adaptive_steps)
    else:
        made = _long_enough(made)
        if not made.dynamic and choose.one_of(_BY_BUDGET):
            made = _by_budget(made)
        else:
            made = _cut(made) if choose.one_of(_CUT) else made
            made = replace(made, requests=tuple(_ending(choose, made, one) for one in made.requests))
        if not made.dynamic and choose.one_of(_AT_FIRST):
            *others, last = made.requests
            last = last if _ends_otherwise(last) else replace(_endless(last), budget=1)
            made = replace(made, requests=(*others, last))
    if made.most_prompt_logprobs is not None:
        made = _told_in_chunks(made)
    if made.states.checkpoint and not made.schedule.prefix_cache:
        made = put_in(made, "states", checkpoint=choose.one_of(_CHECKPOINTS))
    if made.dynamic or choose.one_of(_ROOMY):
        return made
    needs = sorted(pages_needed(made, request) for request in made.requests)
    return put_in(made, "memory", pages=min(made.memory.pages, sum(needs[-2:])))


def _long_enough(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that last until what is a step old shows."""
    if not scenario.dynamic:
        return lasting(rejecting(scenario), _LASTING)
    return scenario if scenario.schedule.draft_batch else lasting(scenario, _LASTING_CONTROLLED)


def _cut(scenario: Scenario) -> Scenario:
    """Return the scenario with budgets larger by a round, and with `max_len` as long as the longest request was.

    That one accepts no draft, so that it is certain when it ends.
    """
    longest = max(len(one.prompt) + one.budget for one in scenario.requests)
    requests = tuple(
        replace(_slow(one) if len(one.prompt) + one.budget == longest else one, budget=one.budget + scenario.width)
        for one in scenario.requests
    )
    made = put_in(replace(scenario, requests=requests), "memory", max_len=min(longest, scenario.memory.max_len))
    return with_pages_of(made, scenario)


def _by_budget(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that no stop token ends, nor `max_len`: budgets bound the pages of a round.

    What a feature ends otherwise stays as it is.
    """
    requests = tuple(map(_endless, scenario.requests))
    longest = max(len(one.prompt) + one.budget for one in requests)
    roomy = longest + scenario.width + scenario.memory.page_size
    made = put_in(replace(scenario, requests=requests), "memory", max_len=max(scenario.memory.max_len, roomy))
    return with_pages_of(made, scenario)


def _ends_otherwise(request: Request) -> bool:
    return bool(request.grammar or request.stop_sequences or request.stop_sequences_at or request.min_tokens)


def _endless(request: Request) -> Request:
    return request if _ends_otherwise(request) else replace(request, stop_at=-1, stops=())


def _slow(request: Request) -> Request:
    """Return the request without right drafts, and without a stop token of its own."""
    return replace(request, rounds=tuple(map(_wrong, request.rounds)), stop_at=-1)


def _wrong(plan: RoundPlan) -> RoundPlan:
    shape = plan.shape and replace(plan.shape, path=())
    return replace(plan, num_correct=min(plan.num_correct, 0), shape=shape)


def _told_in_chunks(scenario: Scenario) -> Scenario:
    """Return the scenario with several chunks in the longest prompts that ask for logprobs, each with some of them."""
    longest = max(len(one.prompt) for one in scenario.requests if one.prompt_logprobs)
    requests = (
        replace(one, prompt_logprobs=replace(one.prompt_logprobs, start=0))
        if one.prompt_logprobs and len(one.prompt) == longest
        else one
        for one in scenario.requests
    )
    chunk = min(scenario.schedule.chunk, max(1, longest // 2))
    return put_in(replace(scenario, requests=tuple(requests)), "schedule", chunk=chunk)


def _swinging(scenario: Scenario, adaptive: Adaptive | AdaptiveByBatch) -> Scenario:
    """Return the scenario with rounds that accept drafts, and then rounds that accept none: step counts rise and fall.

    Of one list of step counts the least is accepted: the count then rises while drafts are accepted. What is unpacked
    by the width of another step shows only there, and in the second row of a batch: two come together, and are forced.
    """
    right = scenario.steps
    if isinstance(adaptive, Adaptive) and scenario.steps in adaptive.candidates:
        right = min(adaptive.candidates)
        scenario = put_in(scenario, "adaptive_steps", initial=right)

    def swinging(one: Request) -> Request:
        rounds = (forced(scenario, one.rounds[-1], right),) * 3 + (forced(scenario, one.rounds[-1], 0),) * 2
        stops = one.stops if one.grammar else ()
        return replace(one, sampling=None, stop_at=-1, stops=stops, rounds=rounds)

    requests = (
        replace(one if one.sampling and place > 1 else swinging(one), min_tokens=0)
        for place, one in enumerate(scenario.requests)
    )
    made = lasting(replace(scenario, requests=tuple(requests)), _LASTING_CONTROLLED)
    longest = max(len(one.prompt) + one.budget for one in made.requests)
    made = put_in(made, "memory", max_len=max(made.memory.max_len, longest))
    needs = sum(pages_needed(made, one) for one in made.requests)
    return together(put_in(made, "memory", pages=max(made.memory.pages, needs)))


def _ending(choose: Choose, scenario: Scenario, request: Request) -> Request:
    """Return the request with a stop token in the second half of its text, mostly, if its budget can be reached."""
    is_open = request.sampling is not None and scenario.dynamic
    room = scenario.memory.max_len - len(request.prompt)
    most = min(request.budget, room) - 2
    if is_open or most < 0 or request.budget > room or not choose.one_of(_STOPPED):
        return request
    least = max(min(1, most), most // 2, request.min_tokens)
    return replace(request, stop_at=choose.integer(least, most)) if least <= most else request


_run = facts_of("run", channels="round.rows")
_FACTS = (
    variant("unoverlapped"),
    _run("overlapped_steps", shown="overlap: at all", effect=True),
    _run("overlap_late_steps", shown="overlap: as late as possible"),
    _run("overlap_waits", shown="overlap: a step waited for"),
    _run("overlap_rounds_after_end", shown="overlap: a round after the end"),
    facts_of("run", channels="round.rows, commit.length")("overlap_cut_ends", shown="overlap: behind a cut end"),
    _run("overlap_sure_ends", shown="overlap: a sure end"),
    _run("overlap_pages_ahead", shown="overlap: a page boundary ahead"),
    _run("overlap_pages_in_need", shown="overlap: a page in need"),
    _run("overlap_widths_changed", shown="overlap: widths in flight", takes="adaptive-steps|draft-batch"),
    _run("overlap_late_decisions", shown="overlap: a late decision", takes="adaptive-steps"),
    facts_of("run", channels="round.rows, round.table")(
        "overlap_admitted_behind", shown="overlap: pages after a discarded round"
    ),
)

FEATURE = Feature(
    name="overlap",
    not_compared={
        "alone": "a host that is a step behind commits what another does not",
        "chain_as_tree": "near a limit a tree has pages for all columns that it may come to need",
        "unmixed": "a host waits before a step that mixes chunks and rounds, and for others less often",
    },
    what="the host plans a step while the one before runs",
    has=field_is_not("schedule.overlap", ()),
    without=field_put("schedule.overlap", (), variant="unoverlapped"),
    draw=with_overlap,
    rule="S-OVERLAP-9",
    of_probes=True,
    facts=_FACTS,
)
