"""Step-count controllers by batch size that move within a few rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import ROUNDS_OF_ITS_SCHEDULE, Feature, field_is_not, field_put
from draftproof.properties.features.some_requests import slots_for
from draftproof.properties.features.trees import with_nodes
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch, AdaptiveSlot
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.scenario import RoundPlan, Scenario, pages_needed

_Table = tuple[tuple[int, tuple[int, ...]], ...]
_Rounding = tuple[int, ...]
# Least batch size and step counts of each slot; 0 is a round without drafts. Some begin above one row, some leave large
# batches no drafts at all. Beside it what numbers of rows are rounded up to: into the slot of a larger batch, mostly.
_TABLES: tuple[tuple[_Table, tuple[_Rounding, ...]], ...] = (
    (((1, (0, 1, 3)), (2, (0, 3, 4))), ((2, 4), (1, 2), ())),
    (((1, (0, 2, 5)), (2, (0, 1, 3)), (4, (1, 2))), ((1, 4), (2, 4), (1, 3))),
    (((2, (0, 1, 2, 4)), (3, (1, 3))), ((1, 4), (1, 3), ())),
    (((1, (0, 1, 5)), (2, (0, 1, 3)), (4, (0,))), ((2, 4), (1, 4), (2, 3))),
    (((1, (1, 3, 4)), (2, (0, 2)), (3, (0, 1))), ((1, 3), (2, 4), (1, 4))),
)
# 6 is in no slot: each then begins with its middle one.
_INITIAL = (0, 6, 0, 3, 0, 6)
# One that no average meets exactly, and one at whose thresholds it is after a round that accepted all.
_THRESHOLDS = (False, True)


def by_batch(choose: Choose) -> AdaptiveByBatch:
    """Draw a controller by batch size; `initial` is a candidate of some slots, and 0 is probed at once."""
    (table, roundings), is_exact = choose.one_of(_TABLES), choose.one_of(_THRESHOLDS)
    slots = tuple(
        AdaptiveSlot(
            batch=batch,
            candidates=candidates,
            down=0.0 if is_exact else choose.one_of((0.0, -0.25, 0.5)),
            up=0.0 if is_exact else choose.one_of((0.0, -0.25, 0.25)),
            ceiling=choose.one_of((0.5, 0.0, 0.5, 0.5, 1.0, 0.5)),
        )
        for batch, candidates in table
    )
    return AdaptiveByBatch(
        initial=choose.one_of(_INITIAL),
        slots=slots,
        alpha=0.5 if is_exact else choose.one_of((0.5, 0.75, 1.0)),
        interval=1 if is_exact else choose.one_of((1, 1, 2)),
        warmup=0 if is_exact else choose.integer(0, 1),
        rounding=choose.one_of(roundings),
    )


# Step counts to choose from, with one to begin with: among them or between them, so that there is one above; and above
# them all. Then many of them.
_RISING = ((1, (1, 4)), (2, (2, 5)), (1, (1, 2, 5)), (2, (1, 4)), (2, (1, 2, 5)))
_CANDIDATES = (*_RISING, (4, (1, 2)), (3, (1, 2)))
_MANY = ((8, (2, 12)), (3, (1, 3, 7)), (12, (4, 16)))
_ONE = ((1, (1, 2)), (2, (1, 2)))


def adaptive(choose: Choose, pattern: str, steps: str) -> Adaptive | AdaptiveByBatch:
    """Draw a controller that moves within a few rounds, with "one", "several" or "many" steps."""
    if steps == "several" and choose.one_of((True, False, True)):
        return by_batch(choose)
    usual = _RISING if pattern == "rising" else _CANDIDATES
    initial, candidates = choose.one_of({"many": _MANY, "one": _ONE}.get(steps, usual))
    if choose.one_of((True, False, True)):
        # After a round that accepted all the average is exactly at a threshold.
        return Adaptive(initial=initial, candidates=candidates, alpha=0.5, interval=1, warmup=0, down=0.0, up=0.0)
    return Adaptive(
        initial=initial,
        candidates=candidates,
        alpha=choose.one_of((0.5, 0.25, 0.75)),
        interval=choose.one_of((1, 1, 2)),
        warmup=choose.integer(0, 2),
        # At half an average that falls to the next lower step count meets its threshold exactly.
        down=choose.one_of((0.0, -0.25, 0.25, 0.5)),
        # Far below zero an average rises past two candidates at once.
        up=choose.one_of((0.0, -0.25, 0.25, -1.5)),
    )


def with_nothing_found(choose: Choose, scenario: Scenario) -> Scenario:
    """Return the scenario with a request whose lookup finds nothing in its first rounds, beside one that has drafts.

    Two rows may be a batch, and have drafts. Of ties a low id is the target's choice: the highest hardly comes again.
    """
    first, *others = scenario.requests
    places = [place for place, one in enumerate(others, start=1) if one.rank == first.rank and one.flaw == "none"]
    if kind_of(scenario.draft).proposes != "lookup" or not places:
        return scenario
    own = RoundPlan(num_drafts=scenario.steps, num_correct=-1)
    changed = replace(
        scenario.requests[places[0]],
        arrival=first.arrival + -(-len(first.prompt) // scenario.schedule.chunk),
        prompt=(scenario.model.vocab - 1,),
        rounds=(own, own),
        stop_at=-1,
        stop_sequences_at=(),
        prompt_logprobs=None,
        images=(),
        abort_at=None,
    )
    requests = list(scenario.requests)
    requests[places[0]] = replace(changed, budget=max(changed.budget, 2 * scenario.width))
    limit = scenario.schedule.draft_batch and max(2, scenario.schedule.draft_batch)
    schedule = replace(scenario.schedule, max_batch=max(2, scenario.schedule.max_batch), draft_batch=limit)
    made = replace(scenario, requests=tuple(requests), schedule=schedule)
    memory = replace(made.memory, request_slots=max(2, slots_for(made, requests)))
    return replace(made, memory=replace(memory, pages=max(memory.pages, pages_needed(made, requests[places[0]]))))


def _is_unfound_beside_found(one: Any) -> bool:
    """Return whether a lookup finds nothing for a row that may have drafts, beside others, under a controller."""
    return bool(one.run.form.proposes == "lookup" and one.run.is_controlled and one.is_unfound_beside_found)


_run, _batch = facts_of("scenario"), facts_of("batch")
_FACTS = (
    _run("adaptive_scenarios", lambda run: run.is_controlled, "adaptive steps: by accepted drafts or batch"),
    _run(
        "by_batch_scenarios",
        lambda run: isinstance(run.scenario.adaptive_steps, AdaptiveByBatch),
        "adaptive steps: by batch",
        real=False,
    ),
    _batch(
        "step_switches_up",
        lambda one: one.steps_change > 0,
        "adaptive steps: steps up",
        takes="several drafts",
        effect=True,
    ),
    _batch(
        "step_switches_down",
        lambda one: one.steps_change < 0,
        "adaptive steps: steps down",
        takes="several drafts",
        effect=True,
    ),
    _batch("batches_without_steps", lambda one: one.steps == 0, "adaptive steps: zero steps", real=False, effect=True),
    _batch("steps_after_none", lambda one: one.steps == one.steps_change > 0, "adaptive steps: and back", real=False),
    _batch(
        "unfound_beside_found",
        _is_unfound_beside_found,
        "adaptive steps: nothing found beside what was",
        takes="several rows",
        drafts=lambda kind: kind.proposes == "lookup",
        real=False,
    ),
)

FEATURE = Feature(
    name="adaptive-steps",
    not_compared=dict.fromkeys(("alone", "unoverlapped"), ROUNDS_OF_ITS_SCHEDULE),
    weight=0.3,
    what="a controller changes the step count from round to round",
    has=field_is_not("adaptive_steps", None),
    finish=with_nothing_found,
    without=field_put("adaptive_steps", None),
    rule="S-ADAPT-1",
    facts=_FACTS,
)


def with_steps(scenario: Scenario, steps: int) -> Scenario:
    """Return the scenario with at most `steps` drafts a round: step counts to choose from and plans are cut to that.

    Raises ValueError for less than one.
    """
    if steps < 1:
        raise ValueError(f"invalid steps {steps}: expected 1 or more")
    requests = tuple(
        replace(request, rounds=tuple(_cut(plan, steps) for plan in request.rounds)) for request in scenario.requests
    )
    made = replace(
        scenario,
        steps=min(scenario.steps, steps),
        adaptive_steps=_fewer(scenario.adaptive_steps, steps),
        requests=requests,
    )
    return made if made.tree is None else with_nodes(made, made.tree.nodes)


def _fewer(adaptive: Adaptive | AdaptiveByBatch | None, steps: int) -> Adaptive | AdaptiveByBatch | None:
    """Return a controller of at most `steps` steps; none if that leaves one list nothing to choose from."""
    if adaptive is None:
        return None
    initial = min(adaptive.initial, steps)
    if isinstance(adaptive, AdaptiveByBatch):
        slots = tuple(replace(slot, candidates=_at_most(slot.candidates, steps)) for slot in adaptive.slots)
        return replace(adaptive, initial=initial, slots=slots)
    if adaptive.initial < max(adaptive.steps) and initial == steps:
        # It could rise, and still should.
        initial = max(1, steps - 1)
    made = replace(adaptive, initial=initial, candidates=_at_most(adaptive.candidates, steps))
    return made if len(made.steps) > 1 else None


def _at_most(candidates: Sequence[int], steps: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(count, steps) for count in candidates))


def _cut(plan: RoundPlan, steps: int) -> RoundPlan:
    drafts = min(plan.num_drafts, steps)
    return replace(plan, num_drafts=drafts, num_correct=min(plan.num_correct, drafts))
