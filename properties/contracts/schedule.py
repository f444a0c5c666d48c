"""A legal schedule: which rows ran when, and together."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.relations import Different, Missing, OutOfOrder, OutOfRange, Relation, Surplus, off_by
from draftproof.properties.values.scenario import pages_needed
from draftproof.properties.values.trace import Key


def _illegal(evidence: Evidence) -> Iterator[Mismatch]:
    by_request: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(evidence.schedule.rows, key=lambda row: (row.request, row.round, row.chunk)):
        by_request[row.request].append(row)
    for request in range(len(evidence.script.requests)):
        yield from _request(evidence, request, by_request.get(request, []))
    for (_, phase), rows in evidence.schedule.batches.items():
        yield from _batch(evidence, phase, rows)
    if evidence.scenario.engines == 1:
        yield from _live(evidence)
        yield from _admitted(evidence)
        yield from _waiting(evidence)
    yield from _resting(evidence)


def _key(row: Row) -> Key:
    return Key(row.request, row.round, step=row.chunk)


def _place(row: Row, expected: object, got: object, relation: Relation) -> Mismatch:
    return Mismatch("round.rows", _key(row), str(expected), str(got), relation)


def _request(evidence: Evidence, request: int, rows: list[Row]) -> Iterator[Mismatch]:
    """Check a request: rounds without gaps, each with its drafts; a whole prompt; steps ascending from its arrival."""
    wanted, solved = evidence.scenario.requests[request], evidence.script.requests[request]
    resumed = {number for one, number in evidence.schedule.resumed if one == request}
    for row in rows:
        phase = int(row.round > 0 and row.round not in resumed)
        if row.phase != phase:
            yield _place(row, f"phase {phase}", f"phase {row.phase}", Different())
    first = [row for row in rows if row.round == 0]
    if first or request not in evidence.aborts:
        yield from _chunks(evidence, request, 0, first, len(wanted.prompt))
    got = {row.round: row for row in rows if row.round > 0}
    tied = request in evidence.ties
    for number, round_ in enumerate(solved.rounds, start=1):
        decoded = got.pop(number, None)
        if number in resumed and not tied:
            again = [row for row in rows if row.round == number]
            yield from _chunks(evidence, request, number, again, round_.context + 1)
        elif decoded is None and not tied:
            yield Mismatch("round.rows", Key(request, number, step=0), f"{round_.drafts} drafts", None, Missing())
        elif decoded is not None and not tied and decoded.count != round_.drafts:
            expected = f"{round_.drafts} drafts"
            yield _place(decoded, expected, f"{decoded.count} drafts", off_by(round_.drafts, decoded.count))
    if again := [row for row in got.values() if not row.phase and evidence.schedule.is_unfinished(row)]:
        number = again[0].round
        got.pop(number)
        again = [row for row in rows if row.round == number]
        yield from _chunks(evidence, request, number, again, solved.context(number, len(wanted.prompt)) + 1)
    if evidence.scenario.schedule.overlap:
        # Whether it had to be there, overlap.schedule knows.
        got.pop(len(solved.rounds) + 1, None)
    for row in got.values():
        if not tied:
            yield Mismatch("round.rows", _key(row), None, f"round {row.round}", Surplus())
    for before, row in itertools.pairwise(rows):
        if row.step <= before.step:
            yield _place(row, f"after step {before.step}", f"step {row.step}", OutOfOrder())
    if rows and rows[0].step < wanted.arrival:
        early = off_by(wanted.arrival, rows[0].step)
        yield _place(rows[0], f"from step {wanted.arrival} on", f"step {rows[0].step}", early)


def _chunks(evidence: Evidence, request: int, number: int, chunks: list[Row], tokens: int) -> Iterator[Mismatch]:
    """Check that the chunks of a round run each of its tokens once, except those served by a prefix cache.

    The chunks of a round that is aborted run some of its tokens.
    """
    wanted = tokens - evidence.schedule.cached.get((request, number), 0)
    limit = evidence.scenario.schedule.chunk if evidence.limits.chunks == "exact" else wanted
    if [row.chunk for row in chunks] != list(range(len(chunks))):
        yield Mismatch("round.rows", Key(request, number, step=0), "chunks 0, 1, ..", None, Missing())
    for row in chunks:
        if not 0 < row.count <= limit:
            yield _place(row, f"1 .. {limit} tokens", f"{row.count} tokens", OutOfRange())
    covered = sum(row.count for row in chunks)
    is_cut = bool(chunks) and evidence.schedule.is_unfinished(chunks[0]) and covered < wanted
    if covered != wanted and not is_cut:
        key = _key(chunks[-1]) if chunks else Key(request, number, step=0)
        relation: Relation = off_by(wanted, covered) if chunks else Missing()
        yield Mismatch("round.rows", key, f"{wanted} tokens", f"{covered} tokens", relation)


def _batch(evidence: Evidence, phase: int, rows: tuple[Row, ...]) -> Iterator[Mismatch]:
    """Check the rows of one batch: places 0 .. R-1, not too many, all in one size that holds them."""
    for place, row in enumerate(rows):
        if row.place != place:
            yield _place(row, f"place {place} of its batch", f"place {row.place}", off_by(place, row.place))
        if row.size != rows[0].size or (row.size and row.size < len(rows)):
            yield _place(row, f"a size that holds {len(rows)} rows", f"size {row.size}", Different())
    limit = evidence.scenario.schedule.max_batch
    if phase and len(rows) > limit:
        yield _place(rows[limit], f"at most {limit} rows", f"{len(rows)} rows", off_by(limit, len(rows)))


def _live(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that no more requests run at a time than there are request rows."""
    slots = evidence.scenario.memory.request_slots
    for row in evidence.schedule.rows:
        live = len(evidence.schedule.running(row.step))
        if live > slots:
            yield _place(row, f"at most {slots} live requests", f"{live} live requests", off_by(slots, live))


def _admitted(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that no request is admitted while an earlier one, which would have fit in its place, still waits."""
    scenario, spans = evidence.scenario, evidence.schedule.spans
    needs = [pages_needed(scenario, request) for request in scenario.requests]
    order = sorted(range(len(needs)), key=lambda request: (scenario.requests[request].arrival, request))
    for place, later in enumerate(order):
        step = spans[later][0] if later in spans else -1
        beside = [one for one, (first, last) in spans.items() if one != later and first <= step <= last]
        free = scenario.memory.pages - sum(needs[one] for one in beside)
        for earlier in order[:place]:
            if (
                evidence.schedule.waits(earlier, step)
                and later in spans
                and len(beside) < scenario.memory.request_slots
                and needs[earlier] <= free
            ):
                key = Key(later, 0, step=0)
                yield Mismatch("round.rows", key, f"request {earlier} first", f"request {later}", OutOfOrder())


def _waiting(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that no decode batch has a row in place of a request that was admitted earlier and waits.

    A request that was preempted is admitted again.
    """
    schedule, requests = evidence.schedule, evidence.scenario.requests
    spans = schedule.attempt_spans
    order = {one: (first, requests[one[0]].arrival, one[0]) for one, (first, _) in spans.items()}
    prefilled = {(row.request, schedule.attempt(row)): row.step for row in schedule.rows if not row.phase}
    for (step, phase), rows in schedule.batches.items():
        running = {(row.request, schedule.attempt(row)) for row in rows}
        for waits in sorted(order.keys() - running) if phase else ():
            ready = prefilled.get(waits, step) < step < spans[waits][1]
            for row in rows:
                if ready and order[waits] < order[row.request, schedule.attempt(row)]:
                    yield _place(row, f"request {waits[0]} first", f"request {row.request}", OutOfOrder())


def _resting(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that something runs in every step in which a request has arrived and is not done.

    What a preempted request ran before is not reported, if it ran for nothing.
    """
    schedule, requests = evidence.schedule, evidence.scenario.requests
    if any(schedule.attempts.values()):
        return
    # Who looks for the end a step later runs one more round for nothing, and gives the row to others then.
    uncut = evidence.limits.finish == "uncut"
    excused = {end + after for _, end in schedule.spans.values() for after in (1, 2) if uncut}
    never = {one: (abort.step, abort.step - 1) for one, abort in evidence.aborts.items() if one not in schedule.spans}
    for before, step in itertools.pairwise((-1, *sorted({row.step for row in schedule.rows}))):
        for one, (_, last) in sorted({**schedule.spans, **never}.items()):
            rests = max(before + 1, requests[one].arrival)
            if schedule.overlap and schedule.running(rests):
                # Of those overlap.schedule knows whether they rest; others may wait for what they give back.
                continue
            while rests in excused:
                rests += 1
            if rests < step <= last:
                yield Mismatch("round.rows", Key(one, 0, step=0), f"a batch in step {rests}", None, Missing())


def _cached(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a prefix cache serves whole pages of tokens that were run before, and never the last token."""
    size, cached = evidence.page_size, evidence.schedule.cached
    every = range(len(evidence.scenario.requests))
    begun = [request for request in every if request in evidence.schedule.spans or request not in evidence.aborts]
    for place in sorted({*cached, *((request, 0) for request in begun)}):
        most, count = _known_before(evidence, *place) // size * size, cached.get(place)
        key = Key(*place)
        if count is None:
            yield Mismatch("round.cached", key, "tokens", None, Missing())
        elif place[1] and place not in evidence.schedule.resumed:
            yield Mismatch("round.cached", key, None, f"{count} tokens", Surplus())
        elif not 0 <= count <= most or count % size:
            pages = "no tokens" if not most else f"pages of {size} tokens, at most {most} tokens"
            yield Mismatch("round.cached", key, pages, f"{count} tokens", OutOfRange())


def _known_before(evidence: Evidence, request: int, round_: int) -> int:
    """Return how many tokens of a round may come from the cache: tokens that were run before, except the last one.

    Of another request they are those that it committed at most: whoever goes on from its text finds the last token of
    that in no cache, unless it was an accepted draft (S-LIMIT-9, S-LIMIT-19).
    Which requests ran before the round, or beside it, is known from `round.rows`; without that channel any request may
    have.
    """
    if not (evidence.limits.own_prefix_cache or evidence.scenario.schedule.prefix_cache):
        return 0
    texts, script = evidence.subject.texts, evidence.script.requests[request]
    whole = evidence.scenario.requests[request].prompt + texts.get(request, ())
    context = len(evidence.scenario.requests[request].prompt) - 1
    if 0 < round_ <= len(script.rounds) + int(script.aborted):
        context = script.context(round_, len(evidence.scenario.requests[request].prompt))
    if evidence.limits.persistent or round_:
        return context
    spans, shared = evidence.schedule.spans, 0
    held = {key.request: length for key, length in sorted(evidence.reference.typed("commit.length", int).items())}
    for other, of in enumerate(evidence.scenario.requests):
        if other != request and not (spans and spans.get(other, (1,))[0] > spans.get(request, (0,))[0]):
            pairs = zip(whole, of.prompt + texts.get(other, ()), strict=False)
            same = next((at for at, (one, two) in enumerate(pairs) if one != two), context)
            shared = max(shared, min(same, context, held.get(other, context)))
    return shared


def _attempts(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that only a subject that may preempt does so, and that a request's preemption count never falls."""
    preempts = evidence.limits.own_preemption or evidence.scenario.schedule.preemption
    attempts = dict(evidence.schedule.attempts)
    for request, script in enumerate(evidence.script.requests):
        before = 0
        for number in range(script.ended if script.aborted else len(script.rounds) + 1):
            key, count = Key(request, number), attempts.pop((request, number), None)
            if count is None and request not in evidence.ties:
                yield Mismatch("round.attempt", key, f"attempt {before}", None, Missing())
            elif count is not None and (count < before or (count and not preempts)):
                expected = f"attempt {before}" + (" or a later one" if preempts else "")
                yield Mismatch("round.attempt", key, expected, f"attempt {count}", off_by(before, count))
            before = before if count is None else count
    for place, count in attempts.items():
        if place[0] not in evidence.ties:
            yield Mismatch("round.attempt", Key(*place), None, f"attempt {count}", Surplus())


CONTRACTS = (
    listed(
        "schedule.legal",
        _illegal,
        ("round.rows",),
        also=("round.cached", "round.attempt"),
        cites="S-ROUND-8, S-LIMIT-4, S-SCHED-1, S-SCHED-3, S-SCHED-4, S-SCHED-7",
        minimum="scenarios batch_shrinks batch_grows mixed_draft_counts chunked_prefills admitted_before_others",
    ),
    listed(
        "schedule.cached",
        _cached,
        ("round.cached",),
        also=("round.rows", "round.attempt", "accept.emitted"),
        cites="S-SCHED-5",
        minimum="scenarios",
    ),
    listed(
        "schedule.attempts",
        _attempts,
        ("round.attempt",),
        cites="S-SCHED-6",
        minimum="scenarios decode_rounds preemptions",
    ),
)
