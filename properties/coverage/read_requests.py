"""Read a run's requests off its evidence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from draftproof.properties.coverage.samples import RequestSample, RunSample
from draftproof.properties.evidence.ends import STOPS, count_ends, ended_by, sequence_at_end
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request
from draftproof.properties.values.trace import Key


def read_requests(evidence: Evidence, run: RunSample) -> tuple[RequestSample, ...]:
    """Return a sample of every request."""
    schedule, scenario = evidence.schedule, evidence.scenario
    lengths, freed = _lengths(evidence), _freed(evidence)
    pages, states = _page_owners(evidence), _state_owners(evidence)
    chunked = {row.request for row in schedule.rows if not row.phase and row.chunk == 1}
    again = [row for row in schedule.rows if (row.request, row.round) in schedule.resumed]
    emitted = evidence.subject.typed("accept.emitted", TokenIds)
    finals = {key.request for key in evidence.subject.channel("commit.final")}
    unfolded = [key.request for key in evidence.subject.channel("commit.unfolded") if key.round]
    tokens = [(key.request, len(value)) for key, value in emitted.items()]
    moved = {index for index, _ in schedule.installed} if scenario.engines > 1 else frozenset[int]()
    hidden = {key.request for key in evidence.reference.channel("disaggregation.hidden")}
    shown = "accept.correct_len" if "accept.correct_len" in evidence.subject.channels else "round.drafts"
    rounds = Counter(key.request for key in evidence.subject.channel(shown))
    served = evidence.prefixes.served
    samples = []
    for index, (request, script) in enumerate(zip(scenario.requests, evidence.script.requests, strict=True)):
        before = pages.get(index, [])
        length = min(request.budget, scenario.memory.max_len - len(request.prompt))
        first = schedule.spans.get(index, (request.arrival, 0))[0]
        resumed = sorted(number for owner, number in schedule.resumed if owner == index)
        notes = [*count_ends(scenario, index, script), *_told_of_prompt(evidence, index, is_chunked=index in chunked)]
        notes += ["refused_beside_others"] if request.flaw != "none" and schedule.running(request.arrival) else []
        samples.append(
            RequestSample(
                run=run,
                request=request,
                length=lengths[index],
                chunks=_chunks(len(request.prompt), scenario.schedule.chunk),
                end=_end(evidence, index),
                stopped_by=_stopped_by(script.tokens, script.stop),
                is_admitted_before_others=first > request.arrival and _is_before_others(evidence, index),
                reuses=len(before),
                shorter_reuses=sum(lengths[index] < lengths[one] for one in before),
                has_state=index in states,
                reuses_state=bool(states.get(index)),
                is_prefilled=Key(index, 0) in emitted,
                rounds=rounds[index],
                is_chunked=index in chunked,
                aborted=_aborted(evidence, index),
                is_aborted_before_others=_is_aborted_before_others(evidence, index),
                is_aborted_on_served_pages=_is_aborted_on_served_pages(evidence, index),
                preemptions=max((count for place, count in schedule.attempts.items() if place[0] == index), default=0),
                resumed_in=resumed[0] if resumed else -1,
                resumed_in_chunks=sum(row.request == index and row.chunk == 1 for row in again),
                ends_across_resume="ends_by_sequence" in notes and _is_across_resume(evidence, index),
                is_served=served.get((index, 0), 0) > 0,
                tokens=sum(count for owner, count in tokens if owner == index),
                is_text_settled=request.sampling is None or not scenario.dynamic,
                stops_in_run=_stops_in_run(evidence, index),
                is_at_limit=len(script.tokens) == length,
                zero_tails=_zero_tails(request, scenario.schedule.chunk),
                has_final_state=index in finals,
                flushes=unfolded.count(index),
                pages_freed=freed.get(index, 0),
                is_transferred=index in moved,
                waited_for_place=_waited_for_place(evidence, index),
                has_hidden_handed=index in hidden,
                notes=dict.fromkeys(notes, 1),
            )
        )
    return tuple(samples)


def _waited_for_place(evidence: Evidence, index: int) -> bool:
    """Return whether its first round came later than in the step after its prompt."""
    first = evidence.schedule.decode_steps.get((index, 1))
    return first is not None and first > evidence.schedule.ends.get((index, 0), first) + 1


def _freed(evidence: Evidence) -> dict[int, int]:
    """Return request -> the pages that it no longer had in its last round, as its tables say."""
    if not evidence.scenario.widest_window:
        return {}
    return {
        request: min(table, default=0)
        for (request, round_), table in sorted(evidence.tables.pages.items())
        if round_ and (request, round_) not in evidence.schedule.resumed
    }


def _stopped_by(tokens: Sequence[int], stop: Sequence[int]) -> str | None:
    """Return which of its stop tokens ended a request, None if none did."""
    if not tokens or tokens[-1] not in stop:
        return None
    return "only one" if len(stop) == 1 else "lowest" if tokens[-1] == min(stop) else "higher"


def _is_across_resume(evidence: Evidence, index: int) -> bool:
    """Return whether the stop sequence that ended a request began before it was last resumed."""
    script = evidence.script.requests[index]
    last = max((number for owner, number in evidence.schedule.resumed if owner == index), default=0)
    since = sum(len(one.emitted) for one in script.rounds[last - 1 :])
    return last > 0 and len(sequence_at_end(script, script.tokens)) > since


def _is_before_others(evidence: Evidence, index: int) -> bool:
    """Return whether a later request was waiting as well when a request was admitted."""
    spans, first = evidence.schedule.spans, evidence.schedule.spans.get(index, (-1, -1))[0]
    requests = evidence.scenario.requests
    return any(
        requests[other].arrival <= first < spans[other][0]
        for other in spans
        if (requests[other].arrival, other) > (requests[index].arrival, index)
    )


def _aborted(evidence: Evidence, index: int) -> str:
    """Return what an aborted request was about to do; "" of any other."""
    abort, schedule = evidence.aborts.get(index), evidence.schedule
    if abort is None or evidence.scenario.requests[index].flaw != "none":
        return ""
    if index not in schedule.spans:
        return "waiting"
    if index in evidence.preempted(abort.step - 1):
        return "preempted"
    is_in_prefill = any(schedule.is_unfinished(row) for row in schedule.rows if row.request == index)
    return "in_prefill" if is_in_prefill else "in_decode"


def _told_of_prompt(evidence: Evidence, index: int, *, is_chunked: bool) -> Iterator[str]:
    """Yield the facts of how a request was told of its prompt; nothing if it was not."""
    if not any(key.request == index for key in evidence.reference.channel("accept.prompt_logprobs")):
        return
    yield "prompt_logprobs_told"
    if is_chunked:
        yield "prompt_logprobs_in_chunks"
    if evidence.schedule.cached.get((index, 0), 0):
        yield "prompt_logprobs_behind_prefix"


def _is_aborted_before_others(evidence: Evidence, index: int) -> bool:
    """Return whether a later request was waiting as well, and went on, when a waiting request was aborted."""
    abort, requests = evidence.aborts.get(index), evidence.scenario.requests
    if abort is None or index in evidence.schedule.spans or requests[index].flaw != "none":
        return False
    return any(
        requests[other].arrival < abort.step <= first
        for other, (first, _) in evidence.schedule.spans.items()
        if (requests[other].arrival, other) > (requests[index].arrival, index)
    )


def _is_aborted_on_served_pages(evidence: Evidence, index: int) -> bool:
    """Return whether a request was aborted on pages that it had been served."""
    if not evidence.prefixes.served or _aborted(evidence, index) not in ("in_prefill", "in_decode"):
        return False
    begun = [row.round for row in evidence.schedule.rows if row.request == index and not row.phase]
    return evidence.prefixes.served.get((index, max(begun)), 0) > 0


def _end(evidence: Evidence, index: int) -> str | None:
    request, script = evidence.scenario.requests[index], evidence.script.requests[index]
    if not script.tokens or script.aborted:
        return None
    stopped = ended_by(evidence.scenario, index, script) in STOPS
    if not script.rounds:
        return "stop at prefill" if stopped else "at prefill"
    spent = len(script.tokens) == request.budget
    if not stopped:
        return "budget" if spent else "max_len"
    if spent:
        return "stop on budget"
    last = script.rounds[-1]
    return "stop in run" if len(last.emitted) <= last.correct_len else "stop as bonus"


def _stops_in_run(evidence: Evidence, index: int) -> bool:
    """Return whether the subject's last round ended at a stop among its accepted drafts."""
    script = evidence.script.requests[index]
    key = Key(index, len(script.rounds))
    last = evidence.subject.typed("accept.emitted", TokenIds).get(key)
    correct_len = evidence.subject.typed("accept.correct_len", int).get(key)
    if last is None or correct_len is None:
        return False
    return ended_by(evidence.scenario, index, script) in STOPS and len(last) <= correct_len


def _lengths(evidence: Evidence) -> list[int]:
    """Return the tokens of every request at its end."""
    both = zip(evidence.scenario.requests, evidence.script.requests, strict=True)
    return [len(request.prompt) + len(script.tokens) for request, script in both]


def _page_owners(evidence: Evidence) -> Mapping[int, list[int]]:
    """Return request -> the requests that had its pages just before it, one a page."""
    owners: dict[int, list[int]] = {}
    for row in evidence.schedule.rows:
        for page in evidence.tables.at(row).values():
            in_order = owners.setdefault(page, [])
            if row.request not in in_order:
                in_order.append(row.request)
    before: dict[int, list[int]] = {}
    for in_order in owners.values():
        for one, other in itertools.pairwise(in_order):
            before.setdefault(other, []).append(one)
    return before


def _state_owners(evidence: Evidence) -> Mapping[int, list[int]]:
    """Return request -> the request that had its state slot just before it, if any."""
    if not evidence.hybrid:
        return {}
    owner: dict[int, int] = {}
    before: dict[int, list[int]] = {}
    slots = {key.request: slot for key, slot in evidence.subject.typed("round.state", int).items() if not key.round}
    for request in sorted(slots, key=lambda one: evidence.schedule.spans.get(one, (0, 0))):
        slot = slots[request]
        before[request] = [owner[slot]] if slot in owner else []
        owner[slot] = request
    return before


def _chunks(length: int, chunk: int) -> str:
    if length <= chunk:
        return "one"
    return {0: "full", 1: "tail of one"}.get(length % chunk, "short tail")


def _zero_tails(request: Request, chunk: int) -> int:
    """Count later chunks of the prompt that begin with token 0."""
    return sum(request.prompt[start] == 0 for start in range(chunk, len(request.prompt), chunk))
