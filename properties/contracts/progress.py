"""No request waits without need: live requests run in every step, and the first in line is admitted when it fits."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing
from draftproof.properties.values.scenario import pages_needed
from draftproof.properties.values.trace import Key


def _waiting(evidence: Evidence) -> Iterator[Mismatch]:
    schedule = evidence.scenario.schedule
    # Of an overlap and of a budget other contracts know who runs.
    if not schedule.overlap and not schedule.token_budget:
        yield from _live(evidence)
    # Where pages are taken on demand, and with PD disaggregation, other contracts know who is admitted. A subject that
    # preempts by a rule of its own may admit by one, too.
    if not schedule.preemption and not schedule.disaggregation and not any(evidence.schedule.attempts.values()):
        yield from _in_line(evidence)


def _live(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield steps in which a request has memory and no row, though the decode batch is not full of others."""
    schedule, most = evidence.schedule, evidence.scenario.schedule.max_batch
    ran = {(row.request, row.step) for row in schedule.rows}
    prefilled = {
        (row.request, schedule.attempt(row)): row.step
        for row in schedule.rows
        if not row.phase and not schedule.is_unfinished(row)
    }
    for (request, attempt), (first, last) in schedule.attempt_spans.items():
        for step in range(first, last + 1):
            is_past = prefilled.get((request, attempt), step) < step
            is_full = is_past and len(schedule.batches.get((step, 1), ())) >= most
            if (request, step) not in ran and not is_full:
                yield _lacks(request, _next_round(evidence, request, step), f"a row in step {step}", None)


def _next_round(evidence: Evidence, request: int, step: int) -> int:
    """Return the round that a request runs next; of one that runs no more that in which it was aborted."""
    rows = (row.round for row in evidence.schedule.rows if row.request == request and row.step > step)
    return min(rows, default=evidence.script.requests[request].ended)


def _in_line(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield steps in which the first request in line waits although it fits."""
    scenario, schedule = evidence.scenario, evidence.schedule
    arrivals = [one.arrival for one in scenario.requests]
    needs = [pages_needed(scenario, one) for one in scenario.requests]
    for step in range(schedule.last_step + 1):
        beside = schedule.running(step)
        first = schedule.first_waiting(step, ((one, 0) for one in beside), arrivals)
        if first is None or len(beside) >= scenario.memory.request_slots:
            continue
        free = scenario.memory.pages - sum(needs[one] for one in beside)
        if needs[first[0]] <= free and evidence.plans.tokens_left(step):
            never = schedule.never
            got = f"aborted in step {never[first]}" if first in never else f"step {schedule.attempt_spans[first][0]}"
            yield _lacks(first[0], 0, f"admitted in step {step}", got)


def _lacks(request: int, round_: int, expected: str, got: str | None) -> Mismatch:
    return Mismatch("round.rows", Key(request, round_, step=0), expected, got, Missing())


CONTRACTS = (
    listed(
        "schedule.progress",
        _waiting,
        ("round.rows",),
        also=("round.attempt", "pool.owners"),
        partial=("round.rows",),
        cites="S-SCHED-11",
        minimum="scenarios chunked_prefills admitted_before_others",
        # Who cuts prompts as it likes shares a budget of tokens among all that run, and says not how; who serves one
        # request after another lets all others wait.
        concerns=lambda evidence: (evidence.limits.chunks, evidence.limits.arrivals) == ("exact", "by step"),
    ),
)
