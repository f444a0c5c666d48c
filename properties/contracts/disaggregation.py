"""Requests that one engine transfers to another: what arrives, where it lies, and when (S-DISAGG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from draftproof.properties.contracts.base import equals, listed
from draftproof.properties.contracts.preemption import Attempt, Holding, in_line
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing, OutOfRange
from draftproof.properties.values.scenario import pages_needed


def _is_disaggregated(evidence: Evidence) -> bool:
    return evidence.scenario.schedule.disaggregation


def _engines(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that prompts use pages and state slots of the prefill engine, and rounds those of the decode engine."""
    memory = evidence.scenario.memory
    for channel, count in (("round.table", memory.pages), ("round.state", memory.request_slots)):
        for key, number in evidence.subject.typed(channel, int).items():
            first = 1 if key[:2] in evidence.schedule.decode_steps else count + 1
            if not first <= number < first + count:
                yield Mismatch(channel, key, f"{first} .. {first + count - 1}", number, OutOfRange())


def _schedule(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that both engines take requests in order, as soon as there is room, and run all that they have."""
    for engine in (0, 1):
        yield from _line(evidence, Holding(evidence, engine))


def _spans(holding: Holding) -> dict[Attempt, tuple[int, int]]:
    """Return the first and the last step of each attempt of an engine.

    Of one that is aborted while it waits it is an empty span, from that step on.
    """
    schedule = holding.evidence.schedule
    spans = {one: (step, -1) for one, step in schedule.never.items()} | holding.spans
    return {one: span for one, span in spans.items() if schedule.engine(one[1]) == holding.of_engine}


def _came(holding: Holding, attempt: Attempt) -> int:
    """Return from which step on a request is in the line of an engine.

    One that gave way is back in the step after that, in its old place.
    """
    # Of a trace that has no attempt before this one, another contract tells.
    before = holding.spans.get((attempt[0], attempt[1] - 1))
    return before[1] + 2 if before and not holding.of_engine else holding.place(attempt)[0]


def _pages(holding: Holding, attempt: Attempt) -> int:
    """Return the pages that an engine takes a request with."""
    scenario, request = holding.evidence.scenario, holding.evidence.scenario.requests[attempt[0]]
    if not holding.of_engine:
        return holding.prefill_pages(attempt)
    if scenario.schedule.preemption:
        # As if the next token were its last.
        request = replace(request, budget=max(1, holding.context(attempt) + 1 - len(request.prompt)))
    return pages_needed(scenario, request)


def _held(holding: Holding, attempts: Sequence[Attempt], step: int) -> int:
    """Return the pages that an engine counts for those that it has in a step, when it takes another."""
    if not holding.on_demand:
        return sum(_pages(holding, one) for one in attempts)
    return holding.needed(attempts, step) + sum(holding.more_drafts(one, step) for one in attempts)


def _line(evidence: Evidence, holding: Holding) -> Iterator[Mismatch]:
    """Check the requests of one engine: nobody is taken without room, or waits where there is some."""
    scenario, engine, spans = evidence.scenario, holding.of_engine, _spans(holding)
    line = sorted(spans, key=holding.place)
    most = min(scenario.memory.request_slots, scenario.schedule.max_batch if engine else len(scenario.requests))
    ran = {(row.request, row.step) for row in evidence.schedule.rows if row.phase == engine}
    for step in range(evidence.schedule.last_step + 1):
        live = sorted(holding.live(step), key=holding.admitted)
        for count, one in enumerate(live):
            # Of a budget another contract knows who runs.
            if not scenario.schedule.token_budget and (one[0], step) not in ran:
                yield Mismatch("round.rows", holding.key(one), f"a row in step {step}", None, Missing())
            pages = _held(holding, live[:count], step) + _pages(holding, one) if spans[one][0] == step else 0
            if pages > scenario.memory.pages or count >= most:
                expected = f"taken beside {most - 1} others at most, with {scenario.memory.pages} pages in all"
                got = f"beside {count} with {pages} pages in step {step}"
                yield Mismatch("round.rows", holding.key(one), expected, got, OutOfRange())
        first = next((one for one in line if _came(holding, one) <= step < spans[one][0]), None)
        if first is not None:
            pages = _held(holding, live, step) + _pages(holding, first)
            yield from in_line(holding, step, first, pages, most)


_disaggregated = partial(equals, concerns=_is_disaggregated)
CONTRACTS = (
    _disaggregated(
        *("disaggregation.committed", "disaggregation.length", "disaggregation.token"),
        cites="S-DISAGG-1, S-DISAGG-3",
        minimum="disaggregated_requests disaggregated_in_chunks disaggregated_waiting",
    ),
    _disaggregated(
        *("disaggregation.entries", "disaggregation.kv", "disaggregation.draft_kv"),
        cites="S-DISAGG-3",
        minimum="disaggregated_requests disaggregated_partial_pages disaggregated_several_pages",
    ),
    _disaggregated("disaggregation.hidden", cites="S-DISAGG-3, S-DISAGG-4", minimum="disaggregated_hidden_states"),
    _disaggregated("disaggregation.state", cites="S-DISAGG-3", minimum="disaggregated_states"),
    listed(
        "disaggregation.engines",
        _engines,
        ("round.table", "round.state"),
        concerns=_is_disaggregated,
        partial=("round.table", "round.state"),
        whole=False,
        cites="S-DISAGG-2",
        minimum="disaggregated_requests",
    ),
    listed(
        "disaggregation.schedule",
        _schedule,
        ("round.rows",),
        concerns=_is_disaggregated,
        partial=("round.rows",),
        cites="S-DISAGG-5",
        minimum="disaggregated_requests disaggregated_waiting",
    ),
)
