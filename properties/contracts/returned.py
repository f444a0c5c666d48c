"""What a step returns: when, in which order, and with the news that a request has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from draftproof.properties.contracts.base import Differences, equals, listed
from draftproof.properties.diagnosis.compare import Mismatch, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Returned
from draftproof.properties.values.relations import Different, Missing, OutOfOrder, Relation, Surplus, off_by
from draftproof.properties.values.trace import Key


def _returned(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield rounds that are returned in another step than their results are there in, or with another end."""
    channel = "accept.returned"
    reported = dict(evidence.subject.typed(channel, Returned))
    for request, script in enumerate(evidence.script.requests):
        if request in evidence.ties:
            reported = {key: one for key, one in reported.items() if key.request != request}
            continue
        if evidence.scenario.requests[request].flaw != "none":
            reported.pop(Key(request, 0), None)
        for number in range(script.ended):
            key, step = Key(request, number), evidence.schedule.ends.get((request, number))
            if step is None:
                continue
            is_last = number == script.ended - 1 and not script.aborted
            expected, got = Returned(step + evidence.schedule.lag(step), is_last), reported.pop(key, None)
            if got != expected:
                yield Mismatch(channel, key, expected, got, _relation(expected, got))
    for key in sorted(reported):
        yield Mismatch(channel, key, None, reported[key], Surplus())


def _relation(expected: Returned, got: Returned | None) -> Relation:
    if got is None:
        return Missing()
    return Different() if got.finished != expected.finished else off_by(expected.step, got.step)


def _refused(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield requests that are not refused where they come and why they must be, and rows that they run."""
    channel, reported = "accept.returned", evidence.subject.typed("accept.returned", Returned)
    for number, request in enumerate(evidence.scenario.requests):
        if request.flaw == "none":
            continue
        key, expected = Key(number, 0), Returned(request.arrival, finished=True, error=request.flaw)
        got = reported.get(key)
        if got != expected:
            relation = Missing() if got is None else Different()
            yield Mismatch(channel, key, expected, got, relation)
        for row in evidence.schedule.rows:
            if row.request == number:
                place = Key(number, row.round, step=row.chunk)
                yield Mismatch("round.rows", place, None, f"a row in step {row.step}", Surplus())


def _unordered(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield logprobs of a prompt position that were returned after a later position's."""
    channel, last = "accept.prompt_logprobs", dict[int, int]()
    for key in evidence.subject.channel(channel):
        before = last.get(key.request, -1)
        if key.row < before:
            yield Mismatch(channel, key, f"before position {before}", f"behind position {before}", OutOfOrder())
        last[key.request] = max(before, key.row)


_PROMPT_LOGPROBS = equals(
    "accept.prompt_logprobs",
    cites="S-SAMPLE-16, S-CACHE-8, S-TRACE-12",
    minimum="prompt_logprobs_told prompt_logprobs_in_chunks prompt_logprobs_behind_prefix prefix_hits_cut_by_logprobs",
    concerns=lambda evidence: evidence.scenario.most_prompt_logprobs is not None,
)


def _prompt_logprobs(evidence: Evidence) -> Differences:
    """Check what a request is told of its prompt, and that it is told in the order of positions."""
    yield from _PROMPT_LOGPROBS.differences(evidence)
    yield first_of(_PROMPT_LOGPROBS.name, _unordered(evidence))


CONTRACTS = (
    listed(
        "output.returned",
        _returned,
        ("accept.returned",),
        reads=("round.rows",),
        cites="S-LIMIT-17, S-OVERLAP-1",
        minimum="scenarios decode_rounds",
    ),
    listed(
        "output.refused",
        _refused,
        ("accept.returned",),
        partial=("accept.returned",),
        reads=("round.rows",),
        cites="S-LIMIT-18",
        minimum="refused_for_length refused_for_token refused_for_grammar refused_beside_others",
        concerns=lambda evidence: any(one.flaw != "none" for one in evidence.scenario.requests),
    ),
    replace(_PROMPT_LOGPROBS, differences=_prompt_logprobs),
)
