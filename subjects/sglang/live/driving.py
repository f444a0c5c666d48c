"""One scenario on a running engine: requests come at their step, and every launch is observed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Observation
from draftproof.subjects.sglang.live import engine, observing
from draftproof.subjects.sglang.live.pools import EntryPool, StatePool
from draftproof.subjects.sglang.live.serving import BatchedRow, RanBatch, ServedRequest, served
from draftproof.subjects.sglang.live.taps import GraphTaps, array

_MOST_IDLE = 256


class NothingRunsError(DraftproofError, RuntimeError):
    """SGLang runs nothing although requests wait; the message says for how many steps."""


class SglangDriver:
    """An engine with its hooks, through which scenarios are run one after another."""

    def __init__(self, spec: engine.SglangSpec) -> None:
        self._spec, self._taps = spec, GraphTaps()
        self._taps.install()
        self._scheduler = engine.start(spec)
        scheduler = self._scheduler
        self._target = EntryPool(scheduler.tp_worker.model_runner)
        drafter, runner = _drafter(scheduler.draft_worker)
        self._draft = EntryPool(runner)
        ids = getattr(drafter, "hot_token_id", None)
        self._draft_ids = None if ids is None else array(ids)
        requests = scheduler.req_to_token_pool
        self._states = StatePool(requests) if hasattr(requests, "mamba_pool") else None
        if self._states is not None:
            self._watch_commits(scheduler.tp_worker.model_runner.attn_backend)
        self._propose, drafter.draft = drafter.draft, self._proposing
        self._run_batch, self._process = scheduler.run_batch, scheduler.process_batch_result
        scheduler.run_batch, scheduler.process_batch_result = self._running, self._processing

    def run(self, scenario: Scenario, script: Script) -> list[Observation]:
        """Serve every request; return what was observed."""
        self._scenario = scenario
        self._requests = served(scenario, script)
        self._by_name = {one.name: one for one in self._requests}
        self._waiting = sorted(self._requests, key=lambda one: (one.request.arrival, one.index))
        self._launches: list[RanBatch] = []
        self._observations: list[Observation] = []
        self._step, self._idle, self._ran = -1, 0, True
        self._taps.take()
        self._taps.is_on = True
        try:
            engine.serve(self._scheduler, self._receive)
        finally:
            self._taps.is_on = False
        return self._observations

    def _begin(self, scenario: Scenario) -> None:
        """Empty the engine, and have it take no more than the scenario asks for. SGLang's loop must be running."""
        from sglang.srt.server_args import get_global_server_args

        scheduler, page = self._scheduler, self._spec.page_size
        # A graph may read memory that is given back here: docs/sglang.md.
        scheduler.flush_cache(empty_cache=False)
        rows = min(scenario.schedule.max_batch, scenario.memory.request_slots, engine.MAX_ROWS)
        get_global_server_args().pp_max_micro_batch_size = rows
        scheduler.chunked_prefill_size = -(-scenario.schedule.chunk // page) * page
        _fit_ring(scheduler)
        for pool in (self._target, self._draft, self._states):
            if pool is not None:
                pool.poison()

    def _receive(self) -> list[Any]:
        """Return the requests of the next step, as SGLang asks for them. Raises LoopLeftError when all have ended."""
        if self._step < 0:
            self._begin(self._scenario)
        if all(one.done for one in self._requests) and not self._launches and self._scheduler.last_batch is None:
            raise engine.LoopLeftError
        self._idle = 0 if self._ran else self._idle + 1
        if self._idle > _MOST_IDLE:
            raise NothingRunsError(f"no batch ran in {self._idle} steps, although requests wait")
        self._step, self._ran = self._step + 1, False
        arrived = []
        while self._waiting and self._waiting[0].request.arrival <= self._step:
            one = self._waiting.pop(0)
            arrived.append(engine.request_of(one.name, one.request.prompt, one.budget, one.script.stop))
        return arrived

    def _running(self, batch: Any, *given: Any, **named: Any) -> Any:
        is_prefill = batch.forward_mode.is_extend()
        rows = [self._row(batch, place, is_prefill) for place in range(len(batch.reqs))]
        launch = RanBatch(rows, self._step, is_prefill)
        self._ran, self._rows = True, rows
        result = self._run_batch(batch, *given, **named)
        launch.forwards = self._taps.take()
        if self._states is not None:
            self._read_states(self._states, batch, launch)
        # Older releases keep lengths with what the next step begins from, which loses rows before results are there.
        lengths = getattr(result, "new_seq_lens", None)
        if lengths is None:
            lengths = getattr(result.next_draft_input, "new_seq_lens", None)
        for row, length in zip(rows, () if lengths is None or is_prefill else array(lengths), strict=False):
            row.length = int(length)
        self._launches.append(launch)
        return result

    def _watch_commits(self, backend: Any) -> None:
        """Keep the step indices [B] that a verify commits the states of."""
        commit = backend.update_mamba_state_after_mtp_verify

        def committing(*given: Any, **named: Any) -> Any:
            steps = next(iter((*given, *named.values())))
            self._step_indices = array(steps)
            return commit(*given, **named)

        backend.update_mamba_state_after_mtp_verify = committing

    def _read_states(self, states: StatePool, batch: Any, launch: RanBatch) -> None:
        """Read what a launch committed, behind it on its own stream: the next launch writes to the same slots."""
        with self._scheduler.forward_stream_ctx if self._spec.overlap else nullcontext():
            committed = array(states.committed(states.slots(batch.req_pool_indices)))
            launch.states = dict(zip(states.layers, committed, strict=True))
            if not launch.is_prefill:
                rows = array(states.intermediate(len(launch.rows)))
                launch.intermediate = dict(zip(states.layers, rows, strict=True))
                launch.step_indices = self._step_indices

    def _proposing(self, batch: Any) -> Any:
        """Have the draft propose, and put forced drafts in the place of its own."""
        verified = self._propose(batch)
        if batch.forward_mode.is_idle():
            return verified
        drafts = verified.draft_token.view(len(self._rows), -1)
        own, contexts = drafts[:, 1:].tolist(), batch.seq_lens.tolist()
        for place, (row, context) in enumerate(zip(self._rows, contexts, strict=True)):
            row.proposed = tuple(own[place])
            chain = row.one.forced(context, self._spec.steps)
            if chain is not None:
                drafts[place, 1:] = drafts.new_tensor(chain)
        return verified

    def _row(self, batch: Any, place: int, is_prefill: bool) -> BatchedRow:
        req = batch.reqs[place]
        one: ServedRequest = self._by_name[req.rid]
        if not is_prefill:
            one.round += 1
            return BatchedRow(one, one.round, 0, -1, 0, is_last=True, req_pool_idx=int(req.req_pool_idx))
        first, count = int(batch.prefix_lens[place]), int(batch.extend_lens[place])
        is_last = first + count == len(one.request.prompt)
        row = BatchedRow(one, 0, one.chunks, first, count, is_last=is_last, req_pool_idx=int(req.req_pool_idx))
        # Behind a chunk a radix cache puts another request's entries in the place of those that it just wrote.
        row.taken = self._scheduler.req_to_token_pool.req_to_token[row.req_pool_idx, : first + count].clone()
        one.chunks += 1
        if is_last:
            one.round = 0
        return row

    def _processing(self, batch: Any, result: Any, *given: Any, **named: Any) -> Any:
        launch = self._launches.pop(0)
        table = self._scheduler.req_to_token_pool.req_to_token
        if result.copy_done is not None:
            result.copy_done.synchronize()
        for row in launch.rows:
            row.was_over = row.one.done
            if not row.was_over:
                self._committed(row, launch, result, len(row.one.request.prompt) + row.one.emitted - 1)
                row.slots = row.table = array(table[row.req_pool_idx, : row.first + max(row.kept, row.count)])
                if row.is_prefill:
                    before = row.one.table[: row.first]
                    row.table = row.one.table = np.concatenate([before, array(row.taken)[len(before) :]])
        entries = observing.read_entries(launch, self._target, self._draft)
        returned = self._process(batch, result, *given, **named)
        for row, req in zip(launch.rows, batch.reqs, strict=True):
            if not row.was_over:
                self._account(row, req)
        self._observations += observing.of_launch(
            launch, self._spec.steps, self._spec.page_size, entries, self._draft_ids
        )
        return returned

    def _committed(self, row: BatchedRow, launch: RanBatch, result: Any, context: int) -> None:
        """Read what acceptance found, before anything is cut at an end."""
        if row.is_prefill:
            row.length = row.first + row.count
            return
        place, width = launch.rows.index(row), self._spec.steps + 1
        row.first, row.count = context, width
        count = int(result.accept_lens[place])
        tokens = result.next_token_ids[place * width : place * width + count]
        row.accepted = tuple(int(token) for token in tokens)

    def _account(self, row: BatchedRow, req: Any) -> None:
        one = row.one
        tokens = [int(token) for token in req.output_ids]
        if req.finished() and req.finished_len is not None:
            tokens = tokens[: req.finished_len]
        row.emitted = tuple(tokens[one.emitted :])
        row.ended = one.done = bool(req.finished())
        one.emitted = len(tokens)


def _fit_ring(scheduler: Any) -> None:
    """Make the ring of results anew that 0.5.11 and 0.5.12 have: its length is that for the chunks of the start."""
    ring: Any = getattr(scheduler, "future_map", None)
    if hasattr(ring, "future_limit"):
        scheduler.future_map = type(ring)(
            scheduler.max_running_requests,
            scheduler.chunked_prefill_size,
            scheduler.model_config.context_len,
            scheduler.device,
            scheduler.spec_algorithm,
        )


def _drafter(worker: Any) -> tuple[Any, Any]:
    """Return what proposes drafts, with a method `draft`, and the model runner of its model."""
    if not hasattr(worker, "draft_worker"):
        raise engine.SglangStartError(
            "this release drafts in its worker v1 where overlap scheduling is off, which is not driven: expected"
            " --set overlap=yes, or 0.5.13 or later"
        )
    drafter = worker.draft_worker
    runner = getattr(drafter, "draft_runner", None) or drafter.draft_model_runner
    return drafter, runner
