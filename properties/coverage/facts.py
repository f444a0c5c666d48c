"""What a run was, as the value of every coverpoint: once for each request, once for each of its decode rounds.

What the reference knows is taken from there; the subject says what only it can: batches, sizes, pages and slots.
`P` page size, `K` drafts of a round, a of them accepted, n the context length before it, m what it committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.coverage.requests import request_facts, scenario_facts
from draftproof.properties.evidence.evidence import VERIFY, Evidence, Row
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.trace import Key


class Batch(NamedTuple):
    """What all rows of a decode batch have in common."""

    rows: str | None
    bucket: str
    batch: str
    mix: str
    switch: str
    beside: str


def samples(evidence: Evidence) -> Iterator[tuple[dict[str, str | None], list[dict[str, str | None]]]]:
    """For each request its facts, and the facts of its decode rounds: point -> value, None or missing where the point
    does not apply."""
    common, batches = scenario_facts(evidence), _batches(evidence)
    rows = {(row.request, row.round): row for row in evidence.rows if row.phase}
    choices = evidence.reference.channel("verify.choice").items()
    ties = {key[:2] for key, value in choices if isinstance(value, tuple) and value[1:] == (0,)}
    for index, own in enumerate(request_facts(evidence)):
        every = {**common, **own}
        yield every, [{**every, **facts} for facts in _rounds(evidence, index, rows, batches, ties)]


def _rounds(
    evidence: Evidence,
    request: int,
    rows: Mapping[tuple[int, int], Row],
    batches: Mapping[int, Batch],
    ties: Container[tuple[int, int]],
) -> Iterator[dict[str, str | None]]:
    before, rounds = "first round", evidence.script.requests[request].rounds
    for number, solved in enumerate(rounds, start=1):
        accept = _accept(solved)
        facts: dict[str, str | None] = {"accept": accept, "before": before, "stage": _stage(number, len(rounds))}
        facts["tie"] = "yes" if (request, number) in ties else "no"
        row = rows.get((request, number))
        facts |= _of_script(evidence, request, solved)
        if row is not None:
            facts |= batches[row.step]._asdict()
            facts |= _of_row(evidence, row, number, solved)
        yield facts
        before = accept


def _accept(solved: RoundScript) -> str:
    if not solved.drafts:
        return "no drafts"
    if not solved.correct_len:
        return "none"
    return "all" if solved.correct_len == solved.drafts else "partial"


def _stage(number: int, last: int) -> str:
    if last == 1:
        return "only"
    return "first" if number == 1 else "last" if number == last else "middle"


def _of_script(evidence: Evidence, request: int, solved: RoundScript) -> dict[str, str | None]:
    """What lengths and drafts of a round say by themselves."""
    n, drafts, size = solved.context, solved.drafts, evidence.page_size
    crossed = (n + drafts) // size - n // size
    forced = "own" if solved.forced is None else "forced"
    return {
        "K": str(drafts) if drafts < 6 else "6 and more",
        "page": _page(n, size),
        "crossing": ("none", "one", "more")[min(crossed, 2)],
        "proposals": forced if drafts else "none",
        "cut": _cut(evidence, request, solved),
        "checkpoint": _checkpoint(evidence, n, len(solved.emitted)),
    }


def _page(n: int, size: int) -> str:
    if size == 1:
        return "every"
    offset = n % size
    return {0: "at", size - 1: "before"}.get(offset, "after" if offset == 1 else "inside")


def _cut(evidence: Evidence, request: int, solved: RoundScript) -> str:
    """A round that ends its request may yield more than may be emitted."""
    if len(solved.emitted) > solved.correct_len:
        return "whole"
    stopped = solved.emitted[-1] in evidence.script.requests[request].stop
    return "stop" if stopped else "max_len"


def _checkpoint(evidence: Evidence, n: int, committed: int) -> str | None:
    every = evidence.scenario.states.checkpoint
    if not evidence.hybrid:
        return None
    if not every:
        return "off"
    passed = (n + committed) // every - n // every
    if passed:
        return "one" if passed == 1 else "two and more"
    return "kept" if n >= every else "none yet"


def _of_row(evidence: Evidence, row: Row, number: int, solved: RoundScript) -> dict[str, str | None]:
    """What a round of a batch was allowed, and what its draft made of that."""
    allowed = evidence.drafts_allowed(row, solved.context)
    form = evidence.form
    facts: dict[str, str | None] = {"limit": _limit(evidence, row, solved, allowed)}
    if form.block:
        wanted = evidence.drafts_wanted(row)
        facts["block"] = "none" if not solved.drafts else "cut" if solved.drafts < wanted else "whole"
    if form.matches:
        facts["match"] = _match(evidence, Key(row.request, number), solved, allowed)
    return facts


def _limit(evidence: Evidence, row: Row, solved: RoundScript, allowed: int) -> str:
    """What kept a round from having all the drafts that were wished for: the tightest, by the order of docs."""
    scenario, request = evidence.scenario, evidence.scenario.requests[row.request]
    wished = request.rounds[(row.round - 1) % len(request.rounds)].drafts
    in_force = evidence.drafts_wanted(row)
    if solved.drafts < allowed:
        return "found"
    if solved.drafts == wished:
        return "none"
    if solved.drafts == in_force:
        few = 0 < scenario.schedule.draft_batch < len(evidence.batches[row.step, 1])
        return "batch" if few else "steps"
    left = request.budget - (solved.context + 1 - len(request.prompt)) - 1
    return "budget" if left <= scenario.memory.max_len - 1 - solved.context else "max_len"


def _match(evidence: Evidence, place: Key, solved: RoundScript, allowed: int) -> str | None:
    if not allowed:
        return None
    if solved.forced is not None:
        return "unused"
    there = evidence.found(place.request, place.round, solved.context)
    if there is None:
        return None
    return "nothing" if not there else "fewer" if there < allowed else "full"


def _batches(evidence: Evidence) -> dict[int, Batch]:
    """engine step -> what its decode batch was, and came after."""
    replayed = {launch.step for launch in evidence.launches if launch.kind == VERIFY and launch.replays}
    decode = [rows for (_, phase), rows in sorted(evidence.batches.items()) if phase]
    found: dict[int, Batch] = {}
    for before, rows in itertools.pairwise(((), *decode)):
        step = rows[0].step
        found[step] = Batch(
            rows=_rows(evidence, rows, step in replayed),
            bucket=_bucket(before, rows),
            batch=str(len(rows)) if len(rows) < 4 else "4 and more",
            mix=_mix(rows),
            switch=_switch(evidence, before, rows),
            beside="prefill" if (step, 0) in evidence.batches else "nothing",
        )
    return found


def _rows(evidence: Evidence, rows: tuple[Row, ...], replayed: bool) -> str | None:
    """None for sizes without graphs, and for a graph that should have run and did not."""
    graphs, size = evidence.scenario.graphs, rows[0].size
    if not graphs.sizes:
        return "eager"
    if len(rows) > max(graphs.sizes):
        return "oversized"
    if not (graphs.capture and replayed):
        return None
    return "padded" if size > len(rows) else "exact"


def _bucket(before: tuple[Row, ...], rows: tuple[Row, ...]) -> str:
    """How the size of a launch, and the rows in it, compare with those of the decode batch before."""
    if not before:
        return "first"
    size, last = rows[0].size or len(rows), before[0].size or len(before)
    if size != last:
        return "smaller" if size < last else "larger"
    more = len(rows) - len(before)
    return "same" if not more else "more rows" if more > 0 else "fewer rows"


def _mix(rows: tuple[Row, ...]) -> str:
    drafts = {row.count for row in rows}
    if len(rows) == 1:
        return "alone"
    if len(drafts) == 1:
        return "equal"
    return "zero among" if 0 in drafts else "unequal"


def _switch(evidence: Evidence, before: tuple[Row, ...], rows: tuple[Row, ...]) -> str:
    """Of the width that a batch runs at, against that of the decode batch before."""
    if not before:
        return "first"
    now, last = evidence.width(rows[0].step), evidence.width(before[0].step)
    if now == 1 or last == 1:
        return "still none" if now == last else "to none" if now == 1 else "from none"
    return "same" if now == last else "up" if now > last else "down"
