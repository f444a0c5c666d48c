"""Aims at how tokens are chosen, at trees of drafts, and at memory that is given back or shared.

What is drawn, penalized, constrained or kept is drawn as everywhere, for scenarios of which that is wanted; a value of
it that is seldom is put in afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.coverage.points import OF_TREES
from draftproof.properties.strategies.ends import with_ends, without_ends
from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.goals_batches import copies
from draftproof.properties.strategies.grammars import SHORT, with_grammars, without_grammars
from draftproof.properties.strategies.handovers import without_handover
from draftproof.properties.strategies.logprobs import with_logprobs
from draftproof.properties.strategies.overlap import without_overlap
from draftproof.properties.strategies.penalties import with_penalties, without_penalties
from draftproof.properties.strategies.preemption import with_preemption
from draftproof.properties.strategies.prefix_cache import with_prefix_cache, without_prefix_cache
from draftproof.properties.strategies.sampling import greedy, with_sampling
from draftproof.properties.strategies.step_tokens import without_step_tokens
from draftproof.properties.strategies.trees import with_tree, without_tree
from draftproof.properties.strategies.windows import without_windows
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, Scenario

Draw = st.DrawFn
Wanted = Mapping[str, str]
TREES = frozenset(OF_TREES)
SAMPLED = frozenset({"choice", "drawn", "filter", "temperature"})
PREEMPTED = frozenset({"preempted", "resumed in", "refilled", "attempt"})
CACHED = frozenset({"prefix", "evicted", "copied", "shared", "continued"})
ENDED = frozenset({"ended by", "sequence", "minimum"})
WINDOWED = frozenset({"windows", "window", "freed"})
CHOICES = TREES | SAMPLED | PREEMPTED | CACHED | ENDED | {"penalty", "grammar", "logprobs"}
_FILTERS: dict[str, tuple[dict[str, Any], ...]] = {
    "none": ({},),
    "top-k 1": ({"top_k": 1},),
    "top-k": ({"top_k": 2}, {"top_k": 3}),
    "top-p": ({"top_p": 0.75}, {"top_p": 0.5}),
    "min-p": ({"min_p": 0.25}, {"min_p": 0.0625}),
    "several": ({"top_k": 3, "top_p": 0.75}, {"top_p": 0.75, "min_p": 0.0625}),
}
_TEMPERATURES = {"below 1": (0.5,), "1": (1.0,), "above 1": (2.0, 4.0, 8.0)}
# What makes drafts of a sampled request likely to be accepted, or not.
_SURE, _UNSURE = 0.5, 8.0
_TOPK = {"1": (1,), "2": (2,), "2 and more": (2, 3, 4), "3 and 4": (3, 4), "5 and more": (8, 5)}
_CROWD, _SMALL_PAGE = 3, 2


def plain(scenario: Scenario, wanted: Wanted) -> Scenario:
    """Return the scenario without what no aim at rounds, or at one of these, reckons with."""
    # Proposals that know of no penalties, and of no grammar, are seldom right.
    scenario = without_ends(without_grammars(without_penalties(without_tree(greedy(scenario)))))
    scenario = without_overlap(without_handover(without_step_tokens(scenario)))
    if (PREEMPTED | CACHED | TREES) & set(wanted):
        return put_in(without_prefix_cache(scenario), "schedule", preemption=False)
    return scenario


def aim_choices(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Put in what is wanted of trees and choices, before memory is made to fit."""
    if TREES & set(wanted):
        branches = "2 and more" if wanted.get("path", "").startswith("other") else ""
        topk = wanted.get("topk", branches)
        scenario = with_tree(draw, scenario, _TOPK[topk]) if topk else with_tree(draw, scenario)
    if wanted.get("choice", "greedy") != "greedy" or {"drawn", "filter", "temperature"} & set(wanted):
        requests = scenario.requests
        if wanted.get("choice") == "beside sampled" and len(requests) == 1:
            scenario = replace(scenario, requests=tuple(copies(scenario, 2)))
        scenario = _sampled(draw, with_sampling(draw, scenario), wanted)
        if wanted.get("choice") == "beside sampled":
            *some, last = scenario.requests
            scenario = replace(scenario, requests=(*some, replace(last, sampling=None)))
    if wanted.get("limit") == "tokens":
        crowd = scenario if len(scenario.requests) > 1 else replace(scenario, requests=tuple(copies(scenario, _CROWD)))
        scenario = put_in(crowd, "schedule", step_tokens=scenario.width + draw(sampled((1, 0, 2))), services=1)
    if "penalty" in wanted:
        scenario = with_penalties(draw, scenario)
    if "grammar" in wanted:
        is_short = wanted["grammar"] == "one token"
        scenario = with_grammars(draw, scenario, SHORT) if is_short else with_grammars(draw, scenario)
    if ENDED & set(wanted) and wanted.get("ended by") not in ("id", "budget", "max_len"):
        scenario = with_ends(draw, without_grammars(scenario) if "minimum" in wanted else scenario)
    if "logprobs" in wanted:
        count = 0 if wanted["logprobs"] == "of the token" else draw(sampled((2, 1, 5)))
        requests = tuple(one if one.logprobs is None else replace(one, logprobs=count) for one in scenario.requests)
        scenario = with_logprobs(draw, replace(scenario, requests=requests))
        first, *others = scenario.requests
        scenario = replace(scenario, requests=(replace(first, logprobs=count), *others))
    return scenario


def aim_memory(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Let requests give way to each other, or share pages, once there are enough pages."""
    from_cache = wanted.get("refilled") == "from cache"
    if PREEMPTED & set(wanted):
        if len(scenario.requests) < _CROWD:
            scenario = replace(scenario, requests=tuple(copies(scenario, _CROWD)))
        if wanted.get("refilled") == "in chunks":
            scenario = put_in(scenario, "schedule", chunk=2)
        scenario = put_in(scenario, "schedule", max_batch=max(scenario.schedule.max_batch, _CROWD), services=1)
        if not WINDOWED & set(wanted):
            # Where pages go back early nobody has to give way.
            scenario = without_windows(scenario)
        scenario = with_preemption(draw, replace(scenario, requests=tuple(map(_lasting, scenario.requests))))
    if CACHED & set(wanted) or from_cache:
        if from_cache:
            scenario = put_in(scenario, "memory", page_size=_SMALL_PAGE)
        scenario = with_prefix_cache(draw, scenario)
    return scenario


def _lasting(request: Request) -> Request:
    """Return a request that goes on for long enough to give way."""
    return replace(request, stop_at=-1, stops=request.stops if request.grammar else ())


def _sampled(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    requests = tuple(
        one if one.sampling is None else replace(one, sampling=_sampling(draw, one.sampling, wanted))
        for one in scenario.requests
    )
    return replace(scenario, requests=requests)


def _sampling(draw: Draw, given: Sampling, wanted: Wanted) -> Sampling:
    """Return the sampling of a request with the wanted filters and temperature, or one that suits what is accepted."""
    changes: dict[str, Any] = {}
    if "filter" in wanted:
        able = _FILTERS[wanted["filter"]]
        one = able[draw(integers(0, len(able) - 1))]
        changes = {"top_k": None, "top_p": 1.0, "min_p": 0.0, **one}
    accept = wanted.get("accept", "")
    if "temperature" in wanted:
        changes["temperature"] = draw(sampled(_TEMPERATURES[wanted["temperature"]]))
    elif accept in ("all", "none"):
        # Drafts that are drawn are likely to be accepted where the target and the draft are both nearly flat.
        changes["temperature"] = _SURE if (accept == "all") != (wanted.get("drawn") == "yes") else _UNSURE
    if wanted.get("drawn") == "no":
        changes["draft"] = "greedy"
    elif wanted.get("drawn") == "yes" and given.draft == "greedy":
        changes["draft"] = "sampled"
    return replace(given, **changes)
