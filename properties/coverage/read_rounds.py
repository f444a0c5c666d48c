"""Read a run's samples off its evidence: here those of decode batches and decode rounds.

The script says what a round was; the subject what only it can: batches, captured sizes, pages and slots.
`P` page size, `K` drafts of a round, a of them accepted, n the context length before it, `M` the checkpoint interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from draftproof.properties.coverage.read_choices import read_choices
from draftproof.properties.coverage.read_requests import read_requests, read_run
from draftproof.properties.coverage.read_trees import accept_of, asked_of_tree, levels_of, read_tree, tree_values
from draftproof.properties.coverage.samples import BatchSample, RequestSample, RoundSample, RunSample, Samples
from draftproof.properties.evidence.ends import STOPS, ended_by
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.delays import delay_of
from draftproof.properties.values.drafts import Eagle3
from draftproof.properties.values.observed import LaunchKind
from draftproof.properties.values.probe import draft_vocabulary
from draftproof.properties.values.scenario import ProbeModel, Request, delta_of, round_plan
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.trace import Key


def read_samples(evidence: Evidence) -> Samples:
    """Return everything that coverage measures of one run."""
    run = read_run(evidence)
    requests, batches = read_requests(evidence, run), _batches(evidence, run)
    rounds = tuple(_rounds(evidence, requests, batches))
    return Samples(run, requests, tuple(batches.values()), evidence.schedule.launches, rounds)


def _batches(evidence: Evidence, run: RunSample) -> Mapping[int, BatchSample]:
    """Return engine step -> the sample of its decode batch."""
    replayed = {
        launch.step for launch in evidence.schedule.launches if launch.kind == LaunchKind.VERIFY and launch.replays
    }
    decode = [rows for (_, phase), rows in sorted(evidence.schedule.batches.items()) if phase]
    return {
        rows[0].step: _batch(evidence, run, before, rows, rows[0].step in replayed)
        for before, rows in itertools.pairwise(((), *decode))
    }


def _batch(
    evidence: Evidence, run: RunSample, before: tuple[Row, ...], rows: tuple[Row, ...], replayed: bool
) -> BatchSample:
    step, size = rows[0].step, rows[0].size
    drafting = {row.request for row in rows if row.count}
    steps = evidence.plans.steps_in_force(step)
    return BatchSample(
        rows=_rows(evidence, rows, replayed),
        bucket=_bucket(before, rows),
        captured="none" if not size else "to 6" if size < 7 else "to 15" if size < 16 else "16 and more",
        batch=str(len(rows)) if len(rows) < 4 else "4 and 5" if len(rows) < 6 else "6 and more",
        mix=_mix(rows),
        switch=_switch(evidence, before, rows),
        beside="prefill" if (step, 0) in evidence.schedule.batches else "nothing",
        launch="packed" if _is_packed(evidence, step) else "own",
        delay=_delay(evidence, step),
        run=run,
        has_drafts=bool(drafting),
        is_too_large_for_drafts=_is_too_large(evidence, rows),
        is_unfound_beside_found=bool(drafting)
        and any(not row.count and evidence.plans.drafts_wanted(row) for row in rows),
        has_fewer_rows=len(rows) < len(before),
        has_more_rows=len(rows) > len(before) > 0,
        is_below_captured_size=len(rows) < min(len(before), size),
        steps=steps,
        steps_change=steps - evidence.plans.steps_in_force(before[0].step) if before else 0,
        drafts_again=not any(row.count for row in before) and bool({row.request for row in before} & drafting),
        is_uneven=len({evidence.contexts.get((row.request, row.round)) for row in rows}) > 1,
        is_half_sampled=len({evidence.scenario.requests[row.request].sampling is None for row in rows}) > 1,
        has_deltas=len({delta_of(len(one.prompt), one.images) for one in _requests_of(evidence, rows)}) > 1,
    )


def _is_packed(evidence: Evidence, step: int) -> bool:
    """Return whether the rows of an engine step shared a launch with chunks of prompts."""
    if not evidence.scenario.schedule.mixed:
        return False
    return any(launch.step == step and launch.kind == LaunchKind.MIXED for launch in evidence.schedule.launches)


def _delay(evidence: Evidence, step: int) -> str:
    """Return when an engine step ran that was planned while the one before did (S-OVERLAP-1)."""
    delays = evidence.scenario.schedule.overlap
    if not delays:
        return "no"
    delay = delay_of(delays, step)
    return "waited for" if delay == "none" else delay


def _requests_of(evidence: Evidence, rows: tuple[Row, ...]) -> list[Request]:
    return [evidence.scenario.requests[row.request] for row in rows]


def _rounds(
    evidence: Evidence, requests: tuple[RequestSample, ...], batches: Mapping[int, BatchSample]
) -> Iterator[RoundSample]:
    """Yield a sample of every decode round, by request."""
    rows = {(row.request, row.round): row for row in evidence.schedule.rows if row.phase}
    ties = {key[:2] for key, (_, margin) in evidence.reference.choices("verify.choice").items() if not margin}
    shown = "accept.correct_len" if "accept.correct_len" in evidence.subject.channels else "round.drafts"
    reported = evidence.subject.channel(shown)
    unfolded = evidence.subject.typed("commit.pending", int)
    walks = evidence.reference.typed("accept.index", tuple)
    for index, request in enumerate(requests):
        before, rounds = "first round", evidence.script.requests[index].rounds
        sampling = evidence.scenario.requests[index].sampling
        is_sampled, has_drawn_drafts = sampling is not None, sampling is not None and sampling.draft == "sampled"
        for number, solved in enumerate(rounds, start=1):
            key, row, n, drafts = Key(index, number), rows.get((index, number)), solved.context, solved.num_verified
            allowed = 0 if row is None else evidence.plans.drafts_allowed(row, n)
            found = evidence.plans.num_found(index, number, n)
            pending = unfolded.get(Key(index, number - 1), 0)
            crossed = (n + drafts) // evidence.page_size - n // evidence.page_size
            tree = evidence.scenario.tree
            levels = levels_of(solved) if tree else drafts
            accept = accept_of(levels, solved.correct_len)
            batch = None if row is None else batches[row.step]
            told = evidence.reference.told.get((index, number), frozenset())
            choices = read_choices(
                evidence.scenario.requests[index],
                told,
                drafts=drafts > 0,
                own=solved.forced is None,
                beside=batch is not None and batch.is_half_sampled,
            )
            of_tree = tree_values(evidence.scenario, solved, n, allowed, walks[key][1:], evidence.page_size)
            yield RoundSample(
                request=request,
                batch=batch,
                accept=accept,
                before=before,
                K=str(levels) if levels < 6 else "6 and 7" if levels < 8 else "8 and more",
                stage=_stage(number, len(rounds)),
                page=_page(n, evidence.page_size),
                crossing=("none", "one", "more")[min(crossed, 2)],
                proposals="none" if not drafts else "own" if solved.forced is None else "forced",
                limit=None if row is None else _limit(evidence, row, n, allowed if tree else solved.drafts, allowed),
                cut=_cut(evidence, index, solved),
                tie="yes" if (index, number) in ties else "no",
                checkpoint=_checkpoint(evidence, n, len(solved.emitted)),
                wrong=_wrong(evidence.scenario.requests[index], number, solved, levels),
                surplus=_surplus(evidence, row, n, drafts),
                block=_block(evidence, row, drafts),
                match=None if row is None or evidence.form.proposes != "lookup" else _match(solved, found, allowed),
                attempt=_attempt(evidence, index, number),
                **of_tree._asdict(),
                **choices._asdict(),
                is_reported=key in reported,
                drafts=drafts,
                correct_len=solved.correct_len,
                found=found,
                is_fewer_found=row is not None and found is not None and found < allowed,
                pending=pending,
                lacks=_lacks(evidence, solved),
                asked=asked_of_tree(evidence.scenario, index, number, allowed, levels)
                if tree
                else _asked(evidence.scenario.requests[index], number, drafts),
                is_sampled=is_sampled,
                is_constrained=evidence.scenario.requests[index].grammar is not None,
                has_logprobs=evidence.scenario.requests[index].logprobs is not None,
                is_drawn=drafts > 0 and solved.forced is None and has_drawn_drafts,
                depth=allowed if tree else drafts,
                window=_window(getattr(evidence.scenario.model, "window", 0), n, drafts),
                beyond_draft_window=0 < getattr(evidence.scenario.draft, "window", 0) <= n,
                tree=read_tree(evidence.scenario, solved, allowed, walks[key][1:], is_sampled=is_sampled)
                if tree
                else frozenset(),
                told=told,
            )
            before = accept


def _window(size: int, n: int, drafts: int) -> str | None:
    """Return which rows of a round with windows see the first entry of their request: all, some or none."""
    if not size:
        return None
    return "inside" if n + drafts < size else "beyond" if n >= size else "left"


def _attempt(evidence: Evidence, request: int, number: int) -> str | None:
    """Return whether a round ran with the memory that its request got first, or after it had given that back."""
    if not evidence.scenario.schedule.preemption:
        return None
    return "again" if evidence.schedule.attempts.get((request, number)) else "first"


def _asked(request: Request, number: int, drafts: int) -> str:
    """Return what the plan of a round asks for, by S-PLAN-3; not by what script and reference make of it.

    Of a sampled request's forced drafts nobody can say so before coins are drawn (S-SAMPLE-7).
    """
    right = request.rounds[(number - 1) % len(request.rounds)].num_correct
    if request.sampling and right >= 0:
        return "drawn"
    return "own" if drafts and right < 0 else accept_of(drafts, min(right, drafts))


def _lacks(evidence: Evidence, solved: RoundScript) -> bool:
    draft, model = evidence.scenario.draft, evidence.scenario.model
    if not isinstance(draft, Eagle3) or not isinstance(model, ProbeModel) or not solved.num_verified:
        return False
    return solved.emitted[0] not in draft_vocabulary(draft, model)


def _stage(number: int, last: int) -> str:
    if last == 1:
        return "only"
    return "first" if number == 1 else "last" if number == last else "middle"


def _page(n: int, size: int) -> str:
    if size == 1:
        return "every"
    offset = n % size
    return {0: "at", size - 1: "before"}.get(offset, "after" if offset == 1 else "inside")


def _cut(evidence: Evidence, request: int, solved: RoundScript) -> str:
    """Return what cut the emitted tokens of the round that ends a request, if anything did."""
    if len(solved.emitted) > solved.correct_len:
        return "whole"
    script = evidence.script.requests[request]
    return "stop" if ended_by(evidence.scenario, request, script) in STOPS else "max_len"


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


def _wrong(request: Request, number: int, solved: RoundScript, levels: int) -> str | None:
    """Return how the first draft that is not right is wrong; None if all are right, or what is verified is its own.

    None, too, of a sampled request, where coins make a draft wrong.
    """
    if request.sampling or solved.forced is None or solved.correct_len == levels:
        return None
    return round_plan(request, number).wrong


def _surplus(evidence: Evidence, row: Row | None, n: int, drafts: int) -> str | None:
    """Return where the rows are that a launch has behind a request's own."""
    if row is None:
        return None
    last = n + evidence.plans.width(row.step) - 1
    if evidence.scenario.tree:
        return "none" if last == n + drafts else "inside"
    if last == n + drafts:
        return "none"
    return "beyond max_len" if last >= evidence.scenario.memory.max_len else "inside"


def _block(evidence: Evidence, row: Row | None, drafts: int) -> str | None:
    if row is None or evidence.form.proposes != "block":
        return None
    return "none" if not drafts else "cut" if drafts < evidence.plans.drafts_wanted(row) else "whole"


def _limit(evidence: Evidence, row: Row, n: int, drafts: int, allowed: int) -> str:
    """Return what kept a round from having all the drafts of its plan: the tightest limit, in the order of docs."""
    scenario, request = evidence.scenario, evidence.scenario.requests[row.request]
    planned = request.rounds[(row.round - 1) % len(request.rounds)].num_drafts
    if drafts < allowed:
        return "found"
    if drafts == planned:
        return "none"
    if drafts < evidence.plans.drafts_fitting(row, n) and evidence.scenario.schedule.step_tokens:
        return "tokens"
    if drafts == evidence.plans.drafts_wanted(row):
        return "batch" if _is_too_large(evidence, evidence.schedule.batches[row.step, 1]) else "steps"
    left = request.budget - (n + 1 - len(request.prompt)) - 1
    return "budget" if left <= scenario.memory.max_len - 1 - n else "max_len"


def _match(solved: RoundScript, found: int | None, allowed: int) -> str | None:
    if not allowed:
        return None
    if solved.forced is not None:
        return "unused"
    if found is None:
        return None
    return "nothing" if not found else "fewer" if found < allowed else "full"


def _is_too_large(evidence: Evidence, rows: tuple[Row, ...]) -> bool:
    """Return whether a decode batch has more rows than may have drafts."""
    return 0 < evidence.scenario.schedule.draft_batch < len(rows)


def _rows(evidence: Evidence, rows: tuple[Row, ...], replayed: bool) -> str | None:
    """Return how the rows filled a captured size; None if a graph should have run and did not."""
    graphs, size = evidence.scenario.graphs, rows[0].size
    if not graphs.sizes:
        return "eager"
    if len(rows) > max(graphs.sizes):
        return "oversized"
    if not (graphs.capture and replayed):
        return None
    return "padded" if size > len(rows) else "exact"


def _bucket(before: tuple[Row, ...], rows: tuple[Row, ...]) -> str:
    """Compare the size of a launch, and the rows in it, with those of the decode batch before."""
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
    """Compare the verify width with that of the decode batch before."""
    if not before:
        return "first"
    now, last = evidence.plans.width(rows[0].step), evidence.plans.width(before[0].step)
    if now == 1 or last == 1:
        return "still none" if now == last else "to none" if now == 1 else "from none"
    return "same" if now == last else "up" if now > last else "down"
