"""Aims at single rounds: how many drafts, what becomes of them, where in a page, and how a request ends.

`P` page size, `K` drafts of a round, a of them accepted, n the context length before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.requests import endless
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario

Draw = st.DrawFn
Wanted = Mapping[str, str]
ROUNDS = frozenset(
    {"accept", "before", "K", "stage", "mix", "switch", "page", "crossing", "proposals", "limit", "cut", "end"}
    | {"chunks", "block", "match"}
)
_NOTHING = RoundPlan(num_drafts=0, num_correct=0)


class _Round(NamedTuple):
    """The round that is aimed at, and the one before it, if it is to be another."""

    plan: RoundPlan
    before: RoundPlan | None


def aim_rounds(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Set plans, then prompts, then ends."""
    if not (ROUNDS | {"checkpoint"}) & set(wanted):
        return scenario
    aimed = _round(draw, scenario, wanted)
    requests = []
    for index, request in enumerate(scenario.requests):
        rounds = _rounds(aimed, index, wanted, scenario)
        request = replace(endless(request), rounds=rounds, budget=max(request.budget, _lasting(rounds)))
        requests.append(_prompted(draw, scenario, request, aimed, wanted))
    chunk = 3 if "chunks" in wanted else scenario.schedule.chunk
    made = put_in(replace(scenario, requests=tuple(requests)), "schedule", chunk=chunk)
    return _ended(draw, made, aimed, wanted)


def _round(draw: Draw, scenario: Scenario, wanted: Wanted) -> _Round:
    before = wanted.get("before", "first round")
    if before == "first round" and "before" not in wanted and wanted.get("stage") != "first":
        # As well in a later round, where nothing speaks against it.
        before = draw(sampled(("first round", "all", "none")))
    plan = _plan(draw, scenario.steps, wanted, wanted.get("accept", ""))
    return _Round(plan, None if before == "first round" else _plan(draw, scenario.steps, {}, before))


def _plan(draw: Draw, steps: int, wanted: Wanted, accept: str) -> RoundPlan:
    """Draw a plan with the wanted number of drafts, and how many of them are right."""
    if accept == "no drafts" or wanted.get("K") == "0" or wanted.get("proposals") == "none":
        return _NOTHING
    low = 2 if accept == "partial" and steps > 1 else 1
    drafts = min(int(wanted.get("K", "0")[0]), steps)
    if " and " in wanted.get("K", "") or {"limit", "block", "cut", "end"} & set(wanted):
        drafts = steps
    drafts = drafts or draw(integers(low, steps))
    if wanted.get("crossing") == "none" or ("K" not in wanted and {accept, wanted.get("drawn")} == {"all", "yes"}):
        # Of fewer that are drawn all are more often accepted.
        drafts = min(drafts, 2)
    if wanted.get("crossing") == "more":
        drafts = steps
    if wanted.get("proposals") == "own" or wanted.get("match", "unused") != "unused" or wanted.get("limit") == "found":
        return RoundPlan(num_drafts=drafts, num_correct=-1)
    right = {"none": 0, "all": drafts, "partial": draw(integers(1, max(1, drafts - 1)))}
    return RoundPlan(num_drafts=drafts, num_correct=right[accept] if accept in right else draw(integers(0, drafts)))


def _rounds(aimed: _Round, index: int, wanted: Wanted, scenario: Scenario) -> tuple[RoundPlan, ...]:
    """Return the plans of request number `index`: rows of one batch are alike, or not, as they are to be."""
    some, steps = aimed.plan if aimed.plan.num_drafts else RoundPlan(num_drafts=1, num_correct=1), scenario.steps
    switches = {
        "to none": (some, _NOTHING),
        "from none": (_NOTHING, some),
        "still none": (some, _NOTHING, _NOTHING),
        "up": (RoundPlan(num_drafts=steps, num_correct=steps),),
        "down": (RoundPlan(num_drafts=steps, num_correct=0),),
        "same": (some,),
    }
    if wanted.get("switch") in switches:
        return switches[wanted["switch"]]
    plan = _beside(aimed.plan, index, wanted.get("mix"), steps)
    return (plan,) if aimed.before is None else (aimed.before, plan)


def _beside(plan: RoundPlan, index: int, mix: str | None, steps: int) -> RoundPlan:
    if mix == "zero among" and index % 2:
        return _NOTHING if plan.num_drafts else RoundPlan(num_drafts=steps, num_correct=1)
    if mix == "unequal" and index % 2:
        drafts = plan.num_drafts - 1 if plan.num_drafts > 1 else min(2, steps)
        # Right in the same way: all, some or none.
        accept = drafts if plan.num_correct == plan.num_drafts else min(plan.num_correct, max(drafts - 1, 0))
        return RoundPlan(num_drafts=drafts, num_correct=accept)
    return plan


def _lasting(rounds: tuple[RoundPlan, ...]) -> int:
    """Return a budget that all of these rounds fit into, with one more to come."""
    return (
        2 * len(rounds) + 2 + sum(max(plan.num_correct, 0) for plan in rounds) + max(plan.num_drafts for plan in rounds)
    )


def _prompted(draw: Draw, scenario: Scenario, request: Request, aimed: _Round, wanted: Wanted) -> Request:
    """Cut the prompt to the length at which the round begins where it is to begin."""
    length = _length(draw, scenario, len(request.prompt), aimed, wanted)
    return replace(request, prompt=(request.prompt * length)[:length])


def _length(draw: Draw, scenario: Scenario, length: int, aimed: _Round, wanted: Wanted) -> int:
    if "chunks" in wanted:
        lengths = {"one": (1, 2, 3), "full": (6, 9), "tail of one": (4, 7)}.get(wanted["chunks"], (5, 8))
        return draw(sampled(lengths))
    if wanted.get("checkpoint") in ("none yet", "kept"):
        return 7 if wanted["checkpoint"] == "kept" else draw(integers(1, 3))
    size = scenario.memory.page_size
    offset = _offset(draw, size, aimed.plan.num_drafts, wanted)
    if offset is None:
        return length
    passed = 0 if aimed.before is None else max(aimed.before.num_correct, 0) + 1
    least = (offset - passed) % size
    return (least or size) + size * draw(integers(0, 1))


def _offset(draw: Draw, size: int, drafts: int, wanted: Wanted) -> int | None:
    """Return n modulo P; None if it does not matter."""
    page, crossing = wanted.get("page"), wanted.get("crossing")
    if page is not None:
        offsets = {"at": 0, "every": 0, "after": 1 % size, "before": size - 1}
        return offsets[page] if page in offsets else draw(integers(2, max(2, size - 2)))
    if crossing is None:
        return None
    return 0 if crossing == "none" else (size - 1 if crossing == "more" or drafts <= size else 0)


def _ended(draw: Draw, scenario: Scenario, aimed: _Round, wanted: Wanted) -> Scenario:
    """Set budgets, stop tokens and the longest length."""
    changes = _end(draw, aimed, wanted)
    room = changes.pop("room", None)
    requests = tuple(replace(request, **changes) for request in scenario.requests)
    memory = scenario.memory
    longest = max(len(request.prompt) for request in requests)
    if room is not None:
        # Prompts of one length, so that each of them is as near to the longest length.
        requests = tuple(replace(one, prompt=(one.prompt * longest)[:longest]) for one in requests)
        memory = replace(memory, max_len=max(4, longest + room))
        short = max(0, 4 - longest - room)
        requests = tuple(replace(one, prompt=(*one.prompt, *one.prompt[:1] * short)) for one in requests)
    else:
        totals = [len(request.prompt) + request.budget for request in requests]
        memory = replace(memory, max_len=max(memory.max_len, max(totals) + scenario.steps))
    return replace(scenario, requests=requests, memory=memory)


def _end(draw: Draw, aimed: _Round, wanted: Wanted) -> dict[str, Any]:
    """Return the fields that make a request end as wanted; `room` is how far max_len is above the prompt."""
    end, limit, drafts = wanted.get("end", ""), wanted.get("limit", ""), aimed.plan.num_drafts
    right, stage = max(aimed.plan.num_correct, 0), wanted.get("stage", "")
    budget = draw(integers(4, 8))
    if end:
        ends: dict[str, dict[str, Any]] = {
            "stop in run": {"stop_at": draw(integers(1, max(1, right)))},
            "stop as bonus": {"stop_at": right + 1},
            "stop at prefill": {"stop_at": 0},
            "stop on budget": {"stop_at": budget - 1, "budget": budget},
            "budget": {"budget": budget},
            "max_len": {"room": draw(integers(3, 6)), "budget": 20},
            "at prefill": {draw(sampled(("budget", "room"))): 1},
        }
        return ends[end]
    if wanted.get("cut") == "stop":
        return {"stop_at": draw(integers(1, max(1, right)))}
    if wanted.get("cut") == "max_len":
        return {
            "room": drafts + 1 + (0 if aimed.before is None else max(aimed.before.num_correct, 0) + 1),
            "budget": 20,
        }
    if limit == "found" and stage in ("only", "last"):
        # Whoever found fewer than there was room for ends with a stop token, or in the very last place.
        return {"stop_at": draw(integers(1, 2) if stage == "only" else integers(3, 7)), "budget": 20}
    if limit == "max_len":
        return {"room": 2 if stage == "only" else 4, "budget": 20}
    if limit == "budget" or wanted.get("block") == "cut":
        return {"budget": 2 if stage == "only" and limit else 4}
    # One round spends the budget, whatever limits it.
    return {"budget": {"batch": 2, "steps": 3}.get(limit, drafts + 2)} if stage == "only" else {}
