"""Requests that one engine transfers to another: what arrives, where it lies, and when (S-DISAGG)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from draftproof.properties.contracts.base import equals, listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing, OutOfOrder, OutOfRange
from draftproof.properties.values.scenario import pages_needed
from draftproof.properties.values.trace import Key

Spans = Mapping[int, tuple[int, int]]


def _is_disaggregated(evidence: Evidence) -> bool:
    return evidence.scenario.schedule.disaggregation


def _engines(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that prompts use pages and state slots of the prefill engine, and rounds those of the decode engine."""
    memory = evidence.scenario.memory
    for channel, count in (("round.table", memory.pages), ("round.state", memory.request_slots)):
        for key, number in evidence.subject.typed(channel, int).items():
            first = 1 if key.round else count + 1
            if not first <= number < first + count:
                yield Mismatch(channel, key, f"{first} .. {first + count - 1}", number, OutOfRange())


def _spans(evidence: Evidence, attempt: int) -> dict[int, tuple[int, int]]:
    """Return the first and the last step of requests in the prefill engine (0), or in the decode engine (1).

    Of one that is aborted while it waits it is an empty span, from that step on.
    """
    never = {one: (step, -1) for (one, of), step in evidence.schedule.never.items() if of == attempt}
    return never | {one: span for (one, of), span in evidence.schedule.attempt_spans.items() if of == attempt}


def _schedule(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that both engines take requests in order, as soon as there is room, and run all that they have."""
    scenario, prompts = evidence.scenario, _spans(evidence, 0)
    requests, memory = scenario.requests, scenario.memory
    arrivals = {one: requests[one].arrival for one in prompts}
    line = sorted(arrivals, key=lambda one: (arrivals[one], one))
    prompt_pages = [-(-len(request.prompt) // memory.page_size) for request in requests]
    yield from _line(evidence, 0, line, arrivals, prompt_pages.__getitem__, memory.request_slots)
    came = {one: evidence.schedule.came(one, 1, 0) for one in _spans(evidence, 1)}
    arrivals = {one: step for one, (step, _) in came.items()}
    line = sorted(arrivals, key=came.__getitem__)
    most = min(memory.request_slots, scenario.schedule.max_batch)
    yield from _line(evidence, 1, line, arrivals, lambda one: pages_needed(scenario, requests[one]), most)


def _line(
    evidence: Evidence,
    attempt: int,
    line: Sequence[int],
    arrivals: Mapping[int, int],
    pages: Callable[[int], int],
    most: int,
) -> Iterator[Mismatch]:
    """Check the requests of one engine, which come to it at `arrivals`; it has `most` of them at a time."""
    spans, place = _spans(evidence, attempt), {one: at for at, one in enumerate(line)}
    ran = {(row.request, row.step) for row in evidence.schedule.rows if int(row.round > 0) == attempt}
    for step in range(evidence.schedule.last_step + 1):
        live = [one for one in line if spans[one][0] <= step <= spans[one][1]]
        # Of a budget another contract knows who runs.
        for one in () if evidence.scenario.schedule.token_budget else live:
            if (one, step) not in ran:
                yield _mismatch(one, attempt, f"a row in step {step}", None, Missing())
        waiting = [one for one in line if arrivals[one] <= step < spans[one][0]]
        held = sum(map(pages, live))
        if live and (len(live) > most or held > evidence.scenario.memory.pages):
            got = f"{len(live)} with {held} pages in step {step}"
            yield _mismatch(live[-1], attempt, f"at most {most} requests with all pages", got, OutOfRange())
        if not waiting:
            continue
        first = waiting[0]
        for one in live:
            if spans[one][0] == step and place[one] > place[first]:
                yield _mismatch(one, attempt, f"request {first} first", f"request {one} in step {step}", OutOfOrder())
        fits = len(live) < most and held + pages(first) <= evidence.scenario.memory.pages
        if fits and evidence.plans.tokens_left(step, attempt) > 0:
            yield _mismatch(first, attempt, f"from step {step} on", f"from step {spans[first][0]} on", Missing())


def _mismatch(request: int, round_: int, expected: str, got: str | None, relation: Any) -> Mismatch:
    return Mismatch("round.rows", Key(request, round_, step=0), expected, got, relation)


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
