"""Read the samples of decode batches and decode rounds from the evidence of a run.

What a round was is read from the script; batches, captured sizes, pages and slots are read from the subject. `P` page
size, `K` drafts of a round, a of them accepted, n the context length before it, `M` the checkpoint interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from draftproof.properties.coverage.read_requests import read_requests
from draftproof.properties.coverage.read_run import read_run
from draftproof.properties.coverage.read_trees import accept_of, asked_of_tree, levels_of, read_tree
from draftproof.properties.coverage.samples import BatchSample, RequestSample, RoundSample, RunSample, Samples
from draftproof.properties.evidence.ends import ended_by
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.drafts import Eagle3
from draftproof.properties.values.observed import LaunchKind
from draftproof.properties.values.scenario import ProbeModel, Request, delta_of, round_plan
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.trace import Key
from draftproof.properties.weights.probe import draft_vocabulary


def read_samples(evidence: Evidence) -> Samples:
    """Return everything that is measured of one run."""
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
    steps, requests = evidence.plans.steps_in_force(step), [evidence.scenario.requests[row.request] for row in rows]
    return BatchSample(
        run=run,
        rows=_filled(evidence, rows, replayed),
        size=size,
        num_rows=len(rows),
        drafts=tuple(row.count for row in rows),
        is_beside_prefill=(step, 0) in evidence.schedule.batches,
        is_too_large_for_drafts=0 < evidence.scenario.schedule.draft_batch < len(rows),
        is_unfound_beside_found=bool(drafting)
        and any(not row.count and evidence.plans.drafts_wanted(row) for row in rows),
        is_uneven=len({evidence.contexts.get((row.request, row.round)) for row in rows}) > 1,
        is_half_sampled=len({one.sampling is None for one in requests}) > 1,
        has_deltas=len({delta_of(len(one.prompt), one.images) for one in requests}) > 1,
        steps=steps,
        steps_change=steps - evidence.plans.steps_in_force(before[0].step) if before else 0,
        has_fewer_rows=len(rows) < len(before),
        has_more_rows=len(rows) > len(before) > 0,
        is_below_captured_size=len(rows) < min(len(before), size),
        drafts_again=not any(row.count for row in before) and bool({row.request for row in before} & drafting),
    )


def _rounds(
    evidence: Evidence, requests: tuple[RequestSample, ...], batches: Mapping[int, BatchSample]
) -> Iterator[RoundSample]:
    """Yield a sample of every decode round that is reported, by request."""
    rows = {(row.request, row.round): row for row in evidence.schedule.rows if row.phase}
    shown = "accept.correct_len" if "accept.correct_len" in evidence.subject.channels else "round.drafts"
    reported = evidence.subject.channel(shown)
    for index, request in enumerate(requests):
        before, rounds = "first round", evidence.script.requests[index].rounds
        for number, solved in enumerate(rounds, start=1):
            levels = levels_of(solved) if evidence.scenario.tree else solved.num_verified
            accept = accept_of(levels, solved.correct_len)
            if Key(index, number) in reported:
                row = rows.get((index, number))
                batch = None if row is None else batches[row.step]
                stage = _stage(number, len(rounds))
                yield _round(evidence, Key(index, number), solved, row, request, batch, (accept, before, stage))
            before = accept


def _round(
    evidence: Evidence,
    key: Key,
    solved: RoundScript,
    row: Row | None,
    request: RequestSample,
    batch: BatchSample | None,
    place: tuple[str, str, str],
) -> RoundSample:
    """Return the sample of a round; `place` is what came of its drafts and of those before, and which round it is."""
    scenario, tree, plan = evidence.scenario, evidence.scenario.tree, request.request
    accept, before, stage = place
    n, drafts = solved.context, solved.num_verified
    levels = levels_of(solved) if tree else drafts
    allowed = 0 if row is None else evidence.plans.drafts_allowed(row, n)
    found = evidence.plans.num_found(key.request, key.round, n)
    has_drawn_drafts = plan.sampling is not None and plan.sampling.draft == "sampled"
    return RoundSample(
        request=request,
        batch=batch,
        accept=accept,
        before=before,
        asked=asked_of_tree(scenario, key.request, key.round, allowed, levels)
        if tree
        else _asked(plan, key.round, drafts),
        stage=stage,
        page=_page(n, evidence.page_size),
        pages_crossed=(n + drafts) // evidence.page_size - n // evidence.page_size,
        proposals="none" if not drafts else "own" if solved.forced is None else "forced",
        limit="none" if row is None else _limit(evidence, row, n, allowed if tree else solved.drafts, allowed),
        surplus="none" if row is None else _surplus(evidence, row, n, drafts),
        checkpoint=_checkpoint(evidence, n, len(solved.emitted)),
        wrong=_wrong(plan, key.round, solved, levels),
        block="none" if row is None else _block(evidence, row, drafts),
        is_cut_by_max_len=_is_cut_by_max_len(evidence, key.request, solved),
        drafts=drafts,
        levels=levels,
        depth=allowed if tree else drafts,
        correct_len=solved.correct_len,
        found=found,
        is_fewer_found=row is not None and found is not None and found < allowed,
        pending=evidence.subject.typed("commit.pending", int).get(Key(key.request, key.round - 1), 0),
        lacks=_lacks(evidence, solved),
        is_drawn=drafts > 0 and solved.forced is None and has_drawn_drafts,
        window=_window(getattr(scenario.model, "window", 0), n, drafts),
        beyond_draft_window=0 < getattr(scenario.draft, "window", 0) <= n,
        notes=_notes(evidence, key, solved, allowed),
    )


def _notes(evidence: Evidence, key: Key, solved: RoundScript, allowed: int) -> Mapping[str, int]:
    """Return what only the reference can tell, of penalties, grammars and minima, and what readers of trees say."""
    told = evidence.reference.told.get((key.request, key.round), frozenset())
    if not evidence.scenario.tree:
        return dict.fromkeys(told, 1)
    walk = evidence.reference.typed("accept.index", tuple)[key][1:]
    return dict.fromkeys((*told, *read_tree(evidence, key.request, solved, allowed, walk)), 1)


def _window(size: int, n: int, drafts: int) -> str:
    """Return which rows of a round see the first entry of their request: all, some or none."""
    return "inside" if not size or n + drafts < size else "beyond" if n >= size else "left"


def _asked(request: Request, number: int, drafts: int) -> str:
    """Return the outcome that a round's plan asks for, by S-PLAN-3 alone and not by the script or the reference.

    It is "drawn" for forced drafts of a sampled request, because the coins decide (S-SAMPLE-7).
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


def _checkpoint(evidence: Evidence, n: int, committed: int) -> str:
    every = evidence.scenario.states.checkpoint
    if not evidence.hybrid or not every:
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


def _surplus(evidence: Evidence, row: Row, n: int, drafts: int) -> str:
    """Return where the rows are that a launch has behind a request's own."""
    last = n + evidence.plans.width(row.step) - 1
    if last == n + drafts:
        return "none"
    is_beyond = not evidence.scenario.tree and last >= evidence.scenario.memory.max_len
    return "beyond max_len" if is_beyond else "inside"


def _block(evidence: Evidence, row: Row, drafts: int) -> str:
    if evidence.form.proposes != "block" or not drafts:
        return "none"
    return "cut" if drafts < evidence.plans.drafts_wanted(row) else "whole"


def _limit(evidence: Evidence, row: Row, n: int, drafts: int, allowed: int) -> str:
    """Return what kept a round from having all the drafts of its plan: the tightest limit, in the order of docs."""
    scenario, request = evidence.scenario, evidence.scenario.requests[row.request]
    planned = request.rounds[(row.round - 1) % len(request.rounds)].num_drafts
    if drafts < allowed:
        return "found"
    if drafts == planned:
        return "none"
    if drafts < evidence.plans.drafts_fitting(row, n) and evidence.scenario.schedule.token_budget:
        return "tokens"
    if drafts == evidence.plans.drafts_wanted(row):
        return "steps"
    left = request.budget - (n + 1 - len(request.prompt)) - 1
    return "budget" if left <= scenario.memory.max_len - 1 - n else "max_len"


def _filled(evidence: Evidence, rows: tuple[Row, ...], replayed: bool) -> str:
    """Return how the rows filled a captured size; "" if a graph should have run and did not."""
    graphs, size = evidence.scenario.graphs, rows[0].size
    if not graphs.sizes:
        return "eager"
    if len(rows) > max(graphs.sizes):
        return "oversized"
    if not (graphs.capture and replayed):
        return ""
    return "padded" if size > len(rows) else "exact"


def _is_cut_by_max_len(evidence: Evidence, request: int, solved: RoundScript) -> bool:
    """Return whether a run of accepted drafts fills the last place that its request may have."""
    if len(solved.emitted) > solved.correct_len:
        return False
    return ended_by(evidence.scenario, request, evidence.script.requests[request]) == "max_len"
