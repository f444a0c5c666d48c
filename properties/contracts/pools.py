"""Which request owns which page at the end of every step, and that every page is given back."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from draftproof.properties.contracts.base import Differences, contract, ends, listed
from draftproof.properties.diagnosis.compare import Mismatch, classify, differing, first_divergence, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import KEPT_EVERY, CachedPages, Datum, Footprint, Holdings, Owner, PoolReport
from draftproof.properties.values.relations import (
    Different,
    GuardOverwritten,
    Missing,
    Moved,
    OtherRow,
    OutOfRange,
    SharedPage,
    Surplus,
)
from draftproof.properties.values.trace import Key

_START = Key(-1, -1)  # before the first step


def live_rows(evidence: Evidence, step: int) -> dict[int, Row]:
    """Return request -> its last row, of those that go on after an engine step."""
    schedule = evidence.schedule
    paused = evidence.preempted(step) if evidence.scenario.schedule.preemption else schedule.paused(step)
    return {
        request: rows[bisect_right(rows, step, key=lambda row: row.step) - 1]
        for request, rows in schedule.rows_by_request.items()
        if schedule.goes_on(request, step) and request not in paused
    }


def live_tables(evidence: Evidence, step: int) -> dict[int, dict[int, int]]:
    """Return request -> column -> page of those that go on after an engine step, by the tables they reported."""
    return {request: evidence.kept_table(row, step + 1) for request, row in live_rows(evidence, step).items()}


def _ownership(evidence: Evidence) -> Differences:
    """Check that a page has one owner, by the tables of the requests that go on."""
    yield first_of("pool.ownership", _shared(evidence))
    preempts = any(evidence.schedule.attempts.values()) and not evidence.scenario.schedule.preemption
    if evidence.limits.allocation == "ahead" or preempts:
        yield first_of("pool.ownership", _within(evidence))
        return
    expected: dict[Key, Datum] = {}
    for key in ends(evidence):
        tables = live_tables(evidence, key.round)
        expected[key] = tuple(sorted(Owner(page, one) for one, table in tables.items() for page in table.values()))
    got = {key: report.owners for key, report in evidence.subject.typed("pool.owners", PoolReport).items()}
    yield first_divergence("pool.ownership", "pool.owners", expected, got)


def _within(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield pages that a request reached and does not own, or owns too far ahead of what it reached (S-BATCH-9)."""
    reported = evidence.subject.typed("pool.owners", PoolReport)
    for key in ends(evidence):
        if key not in reported:
            yield Mismatch("pool.owners", key, "owners", None, Missing())
            continue
        owned: dict[int, set[int]] = defaultdict(set)
        for owner in reported[key].owners:
            owned[owner.request].add(owner.index)
        live = live_rows(evidence, key.round)
        for request, row in live.items():
            least, most = _reach(evidence, row)
            table = evidence.tables.pages.get((request, row.round), {})
            for column in range(least):
                if column in table and table[column] not in owned[request]:
                    owner = Owner(table[column], request)
                    yield Mismatch("pool.owners", key, str(owner), None, Missing())
            if len(owned[request]) > most:
                pages = f"at most {most} pages of request {request}"
                yield Mismatch("pool.owners", key, pages, f"{len(owned[request])} pages", OutOfRange())
        for request in sorted(owned.keys() - live.keys() - evidence.schedule.paused(key.round)):
            if owned[request]:
                yield Mismatch("pool.owners", key, None, f"{len(owned[request])} pages of request {request}", Surplus())


def _reach(evidence: Evidence, row: Row) -> tuple[int, int]:
    """Return how many pages a row reached, and how many its request may own at that point.

    A subject that allocates ahead may own pages for the prompt and two more rounds.
    """
    size, place = evidence.page_size, (row.request, row.round)
    if row.phase:
        end = evidence.contexts[place] + row.count + 1
    else:
        end = evidence.schedule.chunk_starts[*place, row.chunk] + row.count
    if evidence.limits.allocation == "exact":
        return -(-end // size), -(-end // size)
    furthest = max(end, len(evidence.scenario.requests[row.request].prompt)) + 2 * (evidence.scenario.steps + 1)
    return -(-end // size), -(-furthest // size)


def _shared(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield pages in the tables of two requests at a time, or twice in one; columns left out."""
    ran = {(row.request, row.round) for row in evidence.schedule.rows}
    for (request, round_), table in evidence.tables.pages.items():
        if (request, round_) not in ran:
            column = min(table)
            yield Mismatch("round.table", Key(request, round_, row=column), None, table[column], Surplus())
        first = evidence.freed_before(request, round_)
        wanted = range(first, first + len(table))
        if sorted(table) != list(wanted):
            early = min(table)
            if early < first:
                place = Key(request, round_, row=early)
                yield Mismatch("round.table", place, "no page, as no window reaches it", table[early], Surplus())
            gap = next(column for column in wanted if column not in table)
            yield Mismatch("round.table", Key(request, round_, row=gap), "a page", None, Missing())
        times = Counter(table.values())
        for column, page in table.items():
            if times[page] > 1:
                place = Key(request, round_, row=column)
                yield Mismatch("round.table", place, "a page of its own", page, SharedPage())
    yield from _overlapping(evidence)
    yield from _short(evidence)


def _overlapping(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that the owner of a page ended in an earlier step than the next one gets it, unless a cache shares it."""
    schedule = evidence.schedule
    begins: dict[int, dict[tuple[int, int, int], Row]] = defaultdict(dict)
    ends: dict[tuple[int, int, int], int] = {}
    for row in schedule.rows:
        attempt = schedule.attempt(row)
        for column, page in evidence.tables.at(row).items():
            place = row.request, attempt, column
            begins[page].setdefault(place, row)
            ends[place] = row.step
    windowed = evidence.scenario.widest_window > 0
    for page, owners in begins.items():
        for (place, one), ((_, _, column), other) in pairwise(owners.items()):
            # Windows free some pages before the end of who owns them.
            last = ends[place] if windowed else schedule.attempt_spans[place[:2]][1]
            if one.request != other.request and other.step <= last:
                if (column + 1) * evidence.page_size <= schedule.cached.get((other.request, other.round), 0):
                    continue
                key = Key(other.request, other.round, row=column)
                yield Mismatch("round.table", key, "a page of its own", page, OtherRow(request=one.request))


def _short(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a table has a page for every position of its round, and keeps the pages that it had."""
    for row in evidence.schedule.rows:
        last = evidence.contexts[row.request, row.round] + evidence.columns(row) - 1 if row.phase else row.count - 1
        if last < 0:
            continue
        if evidence.tables.slot(row.request, row.round, last) is None:
            key = Key(row.request, row.round, row=last // evidence.page_size)
            yield Mismatch("round.table", key, "a page", None, Missing())
        before = evidence.tables.pages.get((row.request, row.round - 1), {})
        now = evidence.tables.pages.get((row.request, row.round), {})
        if (row.request, row.round) in evidence.schedule.moved:
            continue
        for column in before.keys() & now.keys():
            if before[column] != now[column]:
                key = Key(row.request, row.round, row=column)
                yield Mismatch("round.table", key, before[column], now[column], Moved())


def _balance(evidence: Evidence) -> Differences:
    """Check that free and owned pages are all, request rows likewise, and that everything is back at the end."""
    pages, rows = evidence.scenario.all_pages, evidence.scenario.all_rows
    got: dict[Key, Datum] = {}
    expected: dict[Key, Datum] = dict.fromkeys(ends(evidence), (pages, rows))
    cached = evidence.subject.typed("pool.cached", CachedPages)
    for key, report in evidence.subject.typed("pool.owners", PoolReport).items():
        is_over, kept = key.round > evidence.schedule.last_step, cached.get(key, ())
        owners = () if is_over else report.owners
        with_rows = len(_with_rows(evidence, key.round, owners))
        expected[key] = (pages - _in_use(evidence, owners, kept), rows - with_rows)
        got[key] = (report.free_pages, report.free_rows)
    yield first_divergence("pool.balance", "pool.owners", expected, got)


def _with_rows(evidence: Evidence, step: int, owners: tuple[Owner, ...]) -> set[int]:
    """Return the requests that have a request row after a step, even if their windows freed all their pages."""
    whole = {owner.request for owner in owners}
    return whole | set(live_rows(evidence, step)) if evidence.scenario.widest_window else whole


def _in_use(evidence: Evidence, owners: tuple[Owner, ...], kept: CachedPages) -> int:
    """Return how many pages are not free: those that a cache keeps, which several requests may own, and all others."""
    pages = [owner.index for owner in owners]
    if evidence.limits.own_prefix_cache:
        return len(set(pages))
    of_cache = [one.page for one in kept]
    return len(of_cache) + sum(page not in of_cache for page in pages)


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
    first: dict[int, int] = {}
    rows, got = evidence.schedule.rows, evidence.subject.typed("pool.drafts", tuple)
    for row in rows:
        if not row.phase and not row.round:
            first[row.request] = evidence.schedule.last_step + 1 if evidence.schedule.is_unfinished(row) else row.step
    for key in ends(evidence):
        step = key.round
        going_on = {one for one in evidence.schedule.spans if evidence.schedule.goes_on(one, step)}
        going_on -= evidence.preempted(step) | _running_again(evidence, step)
        live = {request for request in going_on if first.get(request, step) <= step}
        # A prompt in flight may have run, or not.
        in_flight = set[int]()
        if evidence.schedule.overlap:
            ran = (row for row in rows if not row.phase and row.step <= step)
            in_flight = {row.request for row in ran if step < evidence.schedule.done(row)}
        live = live - in_flight | in_flight & {*got.get(key, ())}
        expected[key] = tuple(sorted(live)) if evidence.form.proposes == "lookup" else ()
    yield first_divergence("draft.kept", "pool.drafts", expected, got)


def _running_again(evidence: Evidence, step: int) -> set[int]:
    """Return the requests that are running their text again after a preemption and have not finished by this step."""
    return {place[0] for place, (first, last) in evidence.schedule.chunked.items() if first <= step < last}


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


def _of_ended(evidence: Evidence) -> Differences:
    """Check that an engine has what it needs of each request that has not ended, once, and nothing of any other."""
    schedule, got = evidence.schedule, evidence.subject.typed("pool.kept", Holdings)
    # A step on its way, or a prompt, has tensors of its own.
    moves, last = evidence.scenario.schedule.overlap or evidence.scenario.engines > 1, schedule.last_step + 1
    at_first = got[_START].tensor_bytes if _START in got else 0
    requests, before, expected = range(len(evidence.scenario.requests)), 0, dict[Key, Datum]()
    expected[_START] = Holdings((), at_first, 0)
    for key in ends(evidence):
        begun = {one for one in schedule.spans if schedule.goes_on(one, key.round)}
        live = tuple(one for one in requests if one in begun or schedule.waits(one, key.round))
        if not live or len(live) < before or not key.round % KEPT_EVERY:
            tensor_bytes = got[key].tensor_bytes if moves and key.round < last and key in got else at_first
            expected[key] = Holdings(live, tensor_bytes, 0)
        before = len(live)
    yield first_divergence("memory.kept", "pool.kept", expected, got)


_COMMON: dict[str, Any] = {"cites": "S-BATCH-1", "minimum": "scenarios slot_reuses"}
CONTRACTS = (
    contract(
        "draft.kept",
        _kept,
        ("pool.drafts",),
        reads=("round.rows",),
        also=("round.attempt", "pool.owners"),
        cites="S-NGRAM-2, S-LIMIT-10",
        minimum="scenarios slot_reuses",
    ),
    contract(
        "pool.ownership",
        _ownership,
        ("round.table", "pool.owners"),
        reads=("round.rows", "commit.length"),
        also=("round.cached", "round.attempt"),
        cites="S-BATCH-1, S-BATCH-9, S-TREE-6, S-WINDOW-3",
        minimum="scenarios slot_reuses window_pages_freed",
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
    contract(
        "memory.kept",
        _of_ended,
        ("pool.kept",),
        reads=("round.rows",),
        also=("round.attempt", "pool.owners"),
        cites="S-BATCH-11",
        minimum="scenarios slot_reuses aborted_before_others",
    ),
    contract(
        "pool.balance",
        _balance,
        ("pool.owners",),
        reads=("round.rows",),
        also=("pool.cached",),
        cites="S-BATCH-1, S-CACHE-5, S-WINDOW-3",
        minimum="scenarios slot_reuses window_pages_freed",
    ),
    contract(
        "memory.guards",
        _guards,
        ("pool.guards",),
        reads=("round.rows",),
        cites="S-BATCH-1",
        minimum="scenarios decode_rounds",
    ),
)
