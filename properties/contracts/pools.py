"""Who owns which page at the end of every step, and that every page comes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from draftproof.properties.contracts.base import Differences, contract, ends, listed
from draftproof.properties.diagnosis.compare import Mismatch, classify, differing, first_divergence, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import Datum, Footprint, Owner, PoolReport
from draftproof.properties.values.relations import (
    Different,
    GuardOverwritten,
    Missing,
    Moved,
    OtherRow,
    SharedPage,
    Surplus,
)
from draftproof.properties.values.trace import Key


def live_tables(evidence: Evidence, step: int) -> dict[int, dict[int, int]]:
    """Return request -> column -> page of those that go on after an engine step, by the tables they reported."""
    live: dict[int, dict[int, int]] = {}
    for row in evidence.schedule.rows:
        first, last = evidence.schedule.spans[row.request]
        if row.step <= step and first <= step < last:
            live[row.request] = dict(evidence.tables.at(row))
    return live


def _ownership(evidence: Evidence) -> Differences:
    """Check that a page has one owner, by the tables of the requests that go on."""
    yield first_of("pool.ownership", _shared(evidence))
    expected: dict[Key, Datum] = {}
    for key in ends(evidence):
        tables = live_tables(evidence, key.round)
        expected[key] = tuple(sorted(Owner(page, one) for one, table in tables.items() for page in table.values()))
    got = {key: report.owners for key, report in evidence.subject.typed("pool.owners", PoolReport).items()}
    yield first_divergence("pool.ownership", "pool.owners", expected, got)


def _shared(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield pages in the tables of two requests at a time, or twice in one; columns left out."""
    ran = {(row.request, row.round) for row in evidence.schedule.rows}
    for (request, round_), table in evidence.tables.pages.items():
        if (request, round_) not in ran:
            column = min(table)
            yield Mismatch("round.table", Key(request, round_, row=column), None, table[column], Surplus())
        if sorted(table) != list(range(len(table))):
            gap = next(column for column in range(len(table)) if column not in table)
            yield Mismatch("round.table", Key(request, round_, row=gap), "a page", None, Missing())
        pages = list(table.values())
        for column, page in table.items():
            if pages.count(page) > 1:
                place = Key(request, round_, row=column)
                yield Mismatch("round.table", place, "a page of its own", page, SharedPage())
    yield from _overlapping(evidence)
    yield from _short(evidence)


def _overlapping(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that the owner of a page ended in an earlier step than the next one gets it."""
    begins: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in evidence.schedule.rows:
        for page in evidence.tables.at(row).values():
            begins[page].setdefault(row.request, row)
    for page, owners in begins.items():
        for one, other in pairwise(owners.values()):
            if other.step <= evidence.schedule.spans[one.request][1]:
                column = next(column for column, owned in evidence.tables.at(other).items() if owned == page)
                key = Key(other.request, other.round, row=column)
                yield Mismatch("round.table", key, "a page of its own", page, OtherRow(request=one.request))


def _short(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a table has a page for every position of its round, and keeps the pages that it had."""
    for row in evidence.schedule.rows:
        last = evidence.contexts[row.request, row.round] + row.count if row.phase else row.count - 1
        if last < 0:
            continue
        if evidence.tables.slot(row.request, row.round, last) is None:
            key = Key(row.request, row.round, row=last // evidence.page_size)
            yield Mismatch("round.table", key, "a page", None, Missing())
        before = evidence.tables.pages.get((row.request, row.round - 1), {})
        now = evidence.tables.pages.get((row.request, row.round), {})
        for column in before.keys() & now.keys():
            if before[column] != now[column]:
                key = Key(row.request, row.round, row=column)
                yield Mismatch("round.table", key, before[column], now[column], Moved())


def _balance(evidence: Evidence) -> Differences:
    """Check that free and owned pages are all, request rows likewise, and that everything is back at the end."""
    memory = evidence.scenario.memory
    got: dict[Key, Datum] = {}
    expected: dict[Key, Datum] = dict.fromkeys(ends(evidence), (memory.pages, memory.request_slots))
    for key, report in evidence.subject.typed("pool.owners", PoolReport).items():
        if key.round <= evidence.schedule.last_step:
            requests = {owner.request for owner in report.owners}
            expected[key] = (memory.pages - len(report.owners), memory.request_slots - len(requests))
        got[key] = (report.free_pages, report.free_rows)
    yield first_divergence("pool.balance", "pool.owners", expected, got)


def _guards(evidence: Evidence) -> Differences:
    """Check that no guard byte is ever damaged."""
    expected: dict[Key, Datum] = dict.fromkeys(ends(evidence), ())
    got = evidence.subject.channel("pool.guards")
    wrong = differing(expected, got)
    if wrong:
        key = min(wrong)
        value = got.get(key)
        damaged = key in expected and value is not None
        relation = GuardOverwritten() if damaged else classify("pool.guards", key, expected, got)
        shown = f"damage at bytes {value!r}" if damaged else value
        yield Mismatch("pool.guards", key, "intact" if key in expected else None, shown, relation).divergence(
            "memory.guards", count=len(wrong)
        )


def _kept(evidence: Evidence) -> Differences:
    """Check that a lookup keeps on the host tokens of live requests past their prompts, and other drafts nothing."""
    expected: dict[Key, Datum] = {}
    last = {row.request: row.step for row in evidence.schedule.rows if not row.phase}
    for key in ends(evidence):
        step = key.round
        live = (request for request in sorted(live_tables(evidence, step)) if last.get(request, step) <= step)
        expected[key] = tuple(live) if evidence.form.proposes == "lookup" else ()
    yield first_divergence("draft.kept", "pool.drafts", expected, evidence.subject.channel("pool.drafts"))


def _reachable(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a second service leaves as much as the first one did."""
    channel, step = "pool.reachable", evidence.schedule.last_step
    reported = evidence.subject.typed(channel, Footprint)
    services = {key.step: key for key in sorted(reported, reverse=True)}
    for service in (1, 2):
        if service not in services:
            yield Mismatch(channel, Key(-1, step, step=service), "what is left", None, Missing())
    for key in reported:
        if services.get(key.step) != key or key.step not in (1, 2):
            yield Mismatch(channel, key, None, reported[key], Surplus())
    if {1, 2} <= services.keys() and reported[services[1]] != reported[services[2]]:
        yield Mismatch(channel, services[2], reported[services[1]], reported[services[2]], Different())


_COMMON: dict[str, Any] = {"cites": "S-BATCH-1", "minimum": "scenarios slot_reuses"}
CONTRACTS = (
    contract(
        "draft.kept",
        _kept,
        ("pool.drafts",),
        reads=("round.rows", "round.table"),
        cites="S-NGRAM-2, S-LIMIT-10",
        minimum="scenarios slot_reuses",
    ),
    contract(
        "pool.ownership", _ownership, ("round.table", "pool.owners"), reads=("round.rows", "commit.length"), **_COMMON
    ),
    listed(
        "memory.reachable",
        _reachable,
        ("pool.reachable",),
        reads=("round.rows",),
        cites="S-BATCH-8",
        minimum="scenarios",
        concerns=lambda evidence: evidence.scenario.is_served_twice,
    ),
    contract("pool.balance", _balance, ("pool.owners",), reads=("round.rows",), **_COMMON),
    contract(
        "memory.guards",
        _guards,
        ("pool.guards",),
        reads=("round.rows",),
        cites="S-BATCH-1",
        minimum="scenarios decode_rounds",
    ),
)
