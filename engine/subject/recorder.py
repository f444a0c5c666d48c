"""Turn what the probes see into observations; the plan says which request a row belongs to, never a value."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.adaptive import ControllerState
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.capturing import is_capturing
from draftproof.engine.models.config_fields import LINEAR_ATTENTION
from draftproof.engine.prefill_decode import PrefillDecode
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import Issued
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, KeptState, Launch, PrefillRow, Proposal, StepPlan
from draftproof.engine.subject.config_recorder import ConfigRecorder
from draftproof.engine.subject.memory import MemoryWatch
from draftproof.engine.subject.observations import ObservationLog, vectors
from draftproof.engine.subject.paged_recorder import EntrySpan, PagedRecorder
from draftproof.engine.subject.probe_switch import ProbeSwitch
from draftproof.engine.subject.reachable import footprint, judged_otherwise, kept, nodes_beyond
from draftproof.engine.subject.state_recorder import StateRecorder
from draftproof.engine.subject.steering import SilentRecorder, Steering
from draftproof.engine.subject.tap_recorder import TapRecorder
from draftproof.engine.subject.taps import RecordingTaps
from draftproof.engine.subject.work import WorkMeter
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import (
    KEPT_EVERY,
    BatchRow,
    Collective,
    LaunchKind,
    LaunchRecord,
    Returned,
    StepsInForce,
    TokenIds,
)
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation


class TraceRecorder(Probes):
    """Collects the trace of one run and steers it by the script; an engine is given its `probes`."""

    def __init__(
        self,
        scenario: Scenario,
        script: Script,
        taps: RecordingTaps | None,
        announce: Callable[[int, str], None],
        log: ObservationLog | None = None,
    ) -> None:
        super().__init__(taps)
        self._announce, self._scenario, self._steering = announce, scenario, Steering(scenario, script)
        self.probes = ProbeSwitch(self)
        self._recording, self._log = taps, log or ObservationLog()
        self._prefill: TraceRecorder | None = None
        self._plan, self._launches, self._collectives = StepPlan(-1, 0, (), ()), Counter[int](), Counter[Key]()
        self._attempts, self._launching, self._going = Counter[int](), "", 0
        self.config = ConfigRecorder(self._log)
        self._work = WorkMeter()
        self._engine: Engine
        self._memory: MemoryWatch
        self.paged: PagedRecorder
        self._tapped: TapRecorder
        self._states: StateRecorder | None = None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Everything recorded so far."""
        return tuple(self._log.observations)

    @property
    def log(self) -> ObservationLog:
        """Where everything is recorded."""
        return self._log

    @property
    def dtypes(self) -> frozenset[tuple[str, torch.dtype]]:
        """Return the dtypes that taps recorded, by name, a prefill engine's included."""
        own = frozenset(self._recording.dtypes if self._recording else ())
        return own | self._prefill.dtypes if self._prefill else own

    def follow(self, prefill: TraceRecorder) -> None:
        """Continue the counts of attempts, launches and work of a prefill engine, which steps first."""
        self._prefill, self._attempts, self._work = prefill, prefill._attempts, prefill._work
        self._launches, self._collectives = prefill._launches, prefill._collectives
        self.config = prefill.config

    def attach(self, engine: Engine, memory: MemoryWatch) -> None:
        """Begin to watch an engine that has not run yet."""
        self._engine, self._memory = engine, memory
        layers = tuple(enumerate(engine.verifier.target.layer_types))
        self._attending_layers = tuple(layer for layer, kind in layers if kind != LINEAR_ATTENTION)
        self._linear_layers = tuple(layer for layer, kind in layers if kind == LINEAR_ATTENTION)
        self.paged = PagedRecorder(self._log, engine, self._prefill._engine if self._prefill else None)
        self._tapped = TapRecorder(self._log, engine.draft.lookback, self._scenario.tree)
        if engine.states:
            self._states = StateRecorder(
                self._log, engine.states, self._linear_layers, self._scenario.states.checkpoint
            )

    def stop_recording(self) -> None:
        """Let a recorder that does no more than steer go on from here."""
        if self._prefill:
            self._prefill.stop_recording()
        self.probes.turn_to(SilentRecorder(self._steering))

    def on_layer(self, layer_type: str, index: int) -> None:
        # Of an idle rank there is no plan; of graphs layers run when they are captured, packed launches before others.
        if self._plan.prefill or self._launching == "prefill" or self._scenario.schedule.mixed:
            own = self._linear_layers if layer_type == LINEAR_ATTENTION else self._attending_layers
            self.config.report_layer(own[index], layer_type)

    def on_plan(self, plan: StepPlan) -> None:
        self._plan = plan
        self._announce(plan.step, "plan")
        self.paged.report_tables(plan)

    def on_collective(self, entered: Issued) -> None:
        # What a capture and its warm-up issue counts apart.
        place = Key(-1, self._plan.step, layer=int(is_capturing()))
        key = place._replace(step=self._collectives[place])
        self._log.add("rank.collectives", key, Collective(*map(int, entered)))
        self._collectives[place] += 1

    def before_launch(self, kind: str) -> None:
        self._launching = kind
        self._announce(self._plan.step, kind)
        self._memory.before()

    def on_launch(self, launch: Launch) -> None:
        key, kind = Key(-1, self._plan.step, step=self._launches[self._plan.step]), LaunchKind[launch.kind.upper()]
        record = LaunchRecord(kind, launch.size, launch.rows, launch.replays, launch.width, launch.layer, launch.tokens)
        self._log.add("graph.replay", key, record)
        self._log.add("commit.written", key, self._memory.changed(launch.rows))
        work = self._work.take()
        if kind != LaunchKind.CAPTURE:
            self._log.add("graph.work", key, work)
        self._launches[self._plan.step] += 1
        tapped = self._recording.take() if self._recording else {}
        if kind == LaunchKind.PREFILL:
            self.config.end_layers()
            self._prefill_rows(self._plan.prefill)
            self._tapped.report_prefill(self._plan.prefill, tapped)
            self._tapped.report_packed(key, launch, tapped)
        elif kind == LaunchKind.MIXED:
            self.config.end_layers()
            self._prefill_rows(self._plan.prefill)
            self._tapped.report_prefill(self._plan.prefill, tapped)
            self._decode_rows(self._plan.decode, 0)
            self._tapped.report_verify(key, self._plan.decode, tapped, launch.width)
            self._tapped.report_packed(key, launch, tapped)
            if self._states:
                self._states.report_intermediate(self._plan.decode)
        elif kind == LaunchKind.EXTEND_PROMPT:
            self._tapped.report_prompt(self._plan.prefill, tapped)
        elif kind == LaunchKind.DRAFT:
            self._tapped.report_draft(key, self._plan.decode, tapped, launch.width)
        elif kind == LaunchKind.VERIFY:
            self._decode_rows(self._plan.decode, launch.size)
            self._tapped.report_verify(key, self._plan.decode, tapped, launch.width)
            if self._states:
                self._states.report_intermediate(self._plan.decode)
        elif kind == LaunchKind.EXTEND:
            self._tapped.hold_extend(key, tapped, launch.width, launch.layer)

    def _prefill_rows(self, batch: tuple[PrefillRow, ...]) -> None:
        for place, row in enumerate(batch):
            if not row.chunk:
                self._attempts[row.request.id] += 1
                self._log.add("round.cached", Key(row.request.id, row.round), row.start)
            chunk = BatchRow(place, row.end - row.start, 0, 0, self._plan.step)
            self._log.add("round.rows", Key(row.request.id, row.round, step=row.chunk), chunk)

    def _decode_rows(self, batch: tuple[DecodeRow, ...], size: int) -> None:
        for place, row in enumerate(batch):
            decoded = BatchRow(place, row.num_drafts, 1, size, self._plan.step)
            self._log.add("round.rows", Key(row.request.id, row.round, step=0), decoded)

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """Return the script's drafts in place of the proposals, which are reported as they were."""
        steered = self._steering.steered(batch, proposal)
        pairs = zip(batch, steered.num_drafts, strict=True)
        self._plan = replace(self._plan, decode=tuple(replace(row, num_drafts=count) for row, count in pairs))
        proposed, verified = (_rows(one.draft_tokens, one.num_drafts) for one in (proposal, steered))
        for index, row in enumerate(batch):
            key = Key(row.request.id, row.round)
            self._log.add("propose.tokens", key, proposed[index])
            for name, values in self._engine.draft.origin(row.request.id).items():
                self._log.add(f"propose.{name}", key, msgspec.convert(values, CHANNELS[f"propose.{name}"].value))
            if proposal.weights is not None and row.request.sampling and row.request.sampling.draft == "sampled":
                drawn_by = proposal.weights[index, : proposal.num_drafts[index]].tolist()
                for place, weights in enumerate(map(tuple, drawn_by), start=1):
                    self._log.add("propose.weights", key._replace(row=place), weights)
            self._log.add("round.drafts", key, verified[index])
        if proposal.parents is not None and steered.parents is not None:
            shapes = _rows(proposal.parents, proposal.num_drafts), _rows(steered.parents, steered.num_drafts)
            for row, shape, verified_shape in zip(batch, *shapes, strict=True):
                self._log.add("propose.parents", Key(row.request.id, row.round), shape)
                self._log.add("round.parents", Key(row.request.id, row.round), verified_shape)
        return steered

    def on_target_hidden_states(self, hidden_states: Tensor | None) -> None:
        self.config.hidden_sizes.add(0 if hidden_states is None else hidden_states.shape[-1])

    def on_accept(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        told = (acceptance.correct_len_cpu, acceptance.accept_index, acceptance.tokens)
        for row, correct, index, tokens in zip(batch, *told, strict=True):
            key = Key(row.request.id, row.round)
            self._log.add("accept.correct_len", key, correct)
            self._log.add("accept.index", key, index)
            self._log.add("accept.bonus", key, tokens[-1])

    def on_control(self, before: ControllerState, after: ControllerState) -> None:
        key = Key(-1, self._plan.step)
        self._log.add("adaptive_steps.steps", key, StepsInForce(before.steps, before.count))
        self._log.add("adaptive_steps.average", key, struct.pack("<d", after.average))

    def on_commit_states(self, batch: tuple[DecodeRow, ...], steps: Tensor) -> None:
        if self._states:
            self._states.report_step_indices(batch, steps)

    def on_commit(self, commits: tuple[Commit, ...]) -> None:
        for commit in commits:
            if commit.round and not commit.seq_len_before:
                self._without_drafts(commit)
        spans = [EntrySpan(commit, commit.seq_len_before, commit.seq_len) for commit in commits]
        self.paged.report_entries("commit.kv", self._engine.verifier.cache, self._attending_layers, spans)
        self._report_grammars(commits)
        if self._states and commits:
            with self._work.aside():
                self._states.report_committed(commits)

    def _report_grammars(self, commits: tuple[Commit, ...]) -> None:
        grammars = self._engine.grammars
        for commit in commits:
            if grammars and commit.request in grammars and not commit.finished:
                self._log.add("commit.allowed", Key(commit.request, commit.round), grammars.allowed(commit.request))

    def _without_drafts(self, commit: Commit) -> None:
        """Report a round that ran the whole text again, and emits the token that its last row chose (S-SCHED-6)."""
        key = Key(commit.request, commit.round)
        self._log.add("propose.tokens", key, ())
        self._log.add("round.drafts", key, ())
        self._log.add("accept.correct_len", key, 0)
        self._log.add("accept.index", key, (0,))
        self._log.add("accept.bonus", key, commit.emitted[-1])

    def report_returned(self, step: int, commits: tuple[Commit, ...]) -> None:
        """Report what a step returns: that, and not what a probe was told, is what a server passes on."""
        for commit in commits:
            key = Key(commit.request, commit.round)
            self._log.add("accept.returned", key, Returned(step, commit.finished, commit.error))
            if commit.error:
                continue
            self._log.add("round.attempt", key, self._attempts[commit.request] - 1)
            self._log.add("accept.emitted", key, commit.emitted)
            for place, logprob in enumerate(commit.logprobs):
                self._log.add("accept.logprobs", key._replace(row=place), logprob)
            for position, logprob in commit.prompt_logprobs:
                self._log.add("accept.prompt_logprobs", key._replace(row=position), logprob)
            self._log.add("commit.length", key, commit.seq_len)

    def report_totals(self) -> None:
        """Report the counters of the engine."""
        totals = self._engine.draft_counters
        self._log.add("total.rounds", Key(-1, 0), totals.rounds)
        self._log.add("total.drafts", Key(-1, 0), totals.drafts)
        self._log.add("total.accepted", Key(-1, 0), totals.accepted)
        self._log.add("total.accepted_at", Key(-1, 0), totals.accepted_at)

    @property
    def _recorders(self) -> tuple[TraceRecorder, ...]:
        return (self, self._prefill) if self._prefill else (self,)

    @property
    def _observers(self) -> tuple[object, ...]:
        return tuple(observer for one in self._recorders for observer in (one, one.probes, one.taps))

    def report_pools(self, step: int) -> None:
        """Report the pools after an engine step, and if one is due then, what is kept of which requests."""
        self.paged.report_pools(step)
        going = sum(one._engine.scheduler.unfinished for one in self._recorders)
        if not going or going < self._going or not step % KEPT_EVERY:
            self.report_kept(step)
        self._going = going

    def report_kept(self, step: int) -> None:
        """Report what is kept of which requests after an engine step, or before the first one (-1)."""
        self._log.add("pool.kept", Key(-1, step), kept([one._engine for one in self._recorders], self._observers))

    def report_reachable(self, served: Engine | PrefillDecode, step: int, service: int) -> None:
        """Report what can be reached from an idle engine, or an idle pair of engines, except the observers."""
        found = footprint(served, self._observers, judged_otherwise(self._scenario))
        beyond = sum(nodes_beyond(one._engine.scheduler.cache) for one in self._recorders)
        found = msgspec.structs.replace(found, objects=found.objects + beyond)
        self._log.add("pool.reachable", Key(-1, step, step=service), found)

    def on_finish(self, commits: tuple[Commit, ...]) -> None:
        if self._states and commits:
            with self._work.aside():
                self._states.report_finished(commits)

    def on_extend(self, commits: tuple[Commit, ...]) -> None:
        draft = self._engine.draft
        if not self._recording:
            return
        if not commits:
            # Of an idle rank.
            self._tapped.report_extend(commits)
            return
        if draft.cache:
            firsts = [max(0, commit.seq_len_before - draft.lookback) for commit in commits]
            spans = [EntrySpan(commit, first, commit.seq_len) for commit, first in zip(commits, firsts, strict=True)]
            self.paged.report_entries("extend.kv", draft.cache, range(len(draft.cache.keys)), spans)
        if commits[0].seq_len_before:
            self._tapped.report_extend(commits)

    def on_release(self, req_row: int, pages: tuple[int, ...], state_slot: int) -> None:
        self._memory.poison_pages(pages)
        self._memory.poison_row(req_row)
        if state_slot:
            self._memory.poison_states((state_slot,))

    def on_install(self, rows: tuple[PrefillRow, ...]) -> None:
        with self._work.aside():
            for row in rows:
                self._report_installed(row)

    def _report_installed(self, row: PrefillRow) -> None:
        """Report what a transferred request has before its first round."""
        draft, sequence = self._engine.draft, self._engine.scheduler.find(row.request.id)
        length, key = sequence.seq_len, Key(row.request.id, sequence.rounds + 1)
        self._log.add("disaggregation.length", key, length)
        self._log.add("disaggregation.token", key, sequence.emitted[-1])
        whole = Commit(row.request.id, row.req_row, row.state_slot, key.round, 0, (), length, finished=False)
        first = self._engine.scheduler.columns_behind(length) * self._scenario.memory.page_size
        cache, spans = self._engine.verifier.cache, [EntrySpan(whole, first, length)]
        self.paged.report_entries("disaggregation.kv", cache, self._attending_layers, spans)
        if draft.cache:
            self.paged.report_entries("disaggregation.draft_kv", draft.cache, range(len(draft.cache.keys)), spans)
        if self._states:
            self._states.report_installed(whole)
        hidden_states = draft.next_hidden_states(row.req_row, length)
        if hidden_states is not None:
            for place, vector in enumerate(vectors(hidden_states), start=length - len(hidden_states)):
                self._log.add("disaggregation.hidden", key._replace(row=place), vector)

    def on_evict(self, pages: tuple[int, ...], checkpoints: tuple[int, ...]) -> None:
        self._memory.poison_pages(pages)
        self._memory.poison_checkpoints(checkpoints)

    def on_keep(self, kept: tuple[KeptState, ...]) -> None:
        if self._states:
            self._states.report_kept(kept, self._plan.step)

    def on_drop(self, pages: tuple[int, ...]) -> None:
        self._memory.poison_pages(pages)

    def on_step(self, plan: StepPlan) -> None:
        self.report_pools(plan.step)


def _rows(tensor: Tensor, counts: Sequence[int]) -> list[TokenIds]:
    """Return the first `counts` entries of each row."""
    return [tuple(row[:count]) for row, count in zip(tensor.tolist(), counts, strict=False)]
