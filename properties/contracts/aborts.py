"""Aborts: who is aborted runs no more, and until then as any other (S-SCHED-9)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing, Surplus
from draftproof.properties.values.scenario import pages_needed
from draftproof.properties.values.trace import Key


def _aborted(evidence: Evidence) -> Iterator[Mismatch]:
    for request, abort in sorted(evidence.aborts.items()):
        for row in evidence.schedule.rows:
            if row.request == request and row.step >= abort.step:
                key = Key(request, row.round, step=row.chunk)
                yield Mismatch("round.rows", key, f"aborted in step {abort.step}", f"step {row.step}", Surplus())
        yield from _runs(evidence, request)
        yield from _waits(evidence, request)


def _runs(evidence: Evidence, request: int) -> Iterator[Mismatch]:
    """Check that it has a chunk or a round in every step in which it owns pages, unless the batch is full of others."""
    schedule, most = evidence.schedule, evidence.scenario.schedule.max_batch
    own = [row for row in schedule.rows if row.request == request]
    ran = {row.step for row in own}
    for (one, _), (first, last) in schedule.attempt_spans.items():
        for step in range(first, last + 1 if one == request else first):
            before = [row for row in own if row.step < step]
            is_full = before and not schedule.is_unfinished(before[-1])
            is_full = is_full and len(schedule.batches.get((step, 1), ())) >= most
            if step not in ran and not is_full:
                key = Key(request, evidence.aborts[request].ended, step=0)
                yield Mismatch("round.rows", key, f"a row in step {step}", None, Missing())


def _waits(evidence: Evidence, request: int) -> Iterator[Mismatch]:
    """Check that one that never ran, and came before all who waited, did not fit; of pages on demand see S-SCHED-8."""
    scenario, schedule = evidence.scenario, evidence.schedule
    if request in schedule.spans or scenario.schedule.preemption:
        return
    need, arrival = pages_needed(scenario, scenario.requests[request]), scenario.requests[request].arrival
    for step in range(arrival, evidence.aborts[request].step):
        beside = schedule.running(step)
        free = scenario.memory.pages - sum(pages_needed(scenario, scenario.requests[one]) for one in beside)
        if _is_first(evidence, request, step) and len(beside) < scenario.memory.request_slots and need <= free:
            yield Mismatch("round.rows", Key(request, 0, step=0), f"in step {step}", None, Missing())


def _is_first(evidence: Evidence, request: int, step: int) -> bool:
    """Return whether nobody who came earlier waits in a step."""
    requests = evidence.scenario.requests
    own = (requests[request].arrival, request)
    return not any(
        evidence.schedule.waits(other, step) for other, one in enumerate(requests) if (one.arrival, other) < own
    )


CONTRACTS = (
    listed(
        "schedule.aborted",
        _aborted,
        ("round.rows",),
        also=("pool.owners", "round.attempt"),
        partial=("round.rows",),
        cites="S-SCHED-9",
        minimum="scenarios aborted_waiting aborted_in_prefill aborted_in_decode aborted_preempted "
        "aborted_before_others aborted_on_served_pages",
        concerns=lambda evidence: evidence.scenario.has_aborts,
    ),
)
