"""The engine: plan -> propose -> verify -> commit -> extend, over paged memory, states and captured graphs.

`R` rows of a batch, `W` verify width, `T` packed prompt tokens, `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof import kernels
from draftproof.engine import stopping
from draftproof.engine.arena import Arena
from draftproof.engine.cache import PagedCache, TargetCache, layout_of, pools_of
from draftproof.engine.config import EngineConfig
from draftproof.engine.controller import controller
from draftproof.engine.draft_counters import DraftCounters
from draftproof.engine.drafts import algorithm
from draftproof.engine.drafts.base import DraftContext, DraftModel, PromptChunks, metadata_of_rows
from draftproof.engine.exchange import Exchange
from draftproof.engine.grammar import GrammarStates
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.graphs.capturing import capturing
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.logprobs import WEIGHTS, logprobs, prompt_logprobs
from draftproof.engine.memory import memory_shapes
from draftproof.engine.models.base import AttentionMetadata, PrefillStates, Target
from draftproof.engine.packed import PackedTarget, packing
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.parts import OWN, EngineParts
from draftproof.engine.penalties import PenaltyTables
from draftproof.engine.penalty_params import penalty_columns
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.rope import RopeTable
from draftproof.engine.runner import Outputs
from draftproof.engine.runtime import DRAFT_BUFFERS, Runtime, accepted, downloaded_acceptance, last_committed
from draftproof.engine.sampling import sampling_columns
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import (
    Acceptance,
    Commit,
    DecodeRow,
    GenerationRequest,
    Launch,
    PrefillRow,
    Proposal,
    Released,
    Retired,
    StepPlan,
)
from draftproof.engine.states.base import StateCache, restore
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.slots import StateSlots
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.step import ChunkOutputs, Rounds, Step
from draftproof.engine.tree import along
from draftproof.engine.upload import Columns, uploaded
from draftproof.engine.verify import Verifier
from draftproof.engine.verify_tree import TreeVerifier


class Engine:
    """Serves requests with a target and a draft on one device. `capture` before the first step, if at all."""

    def __init__(
        self,
        target: Target,
        draft: DraftModel,
        config: EngineConfig,
        device: torch.device,
        probes: Probes | None = None,
        parts: EngineParts = OWN,
        group: Solo = SOLO,
    ) -> None:
        self.config, self.device, self.probes, self.group = config, device, probes or Probes(), group
        kind = parts.draft or algorithm(f"{draft.kind}_tree" if config.tree else draft.kind)
        entries = kind.entries(draft.model)
        commit = Replay if config.commit == "replay" else parts.snapshot or Snapshot
        self.arena = Arena(memory_shapes(target, draft.model, kind, config, commit), device)
        self.states: StateCache | None = commit(self.arena, config.checkpoint_turns) if target.state_shape else None
        order = config.page_order or tuple(range(1, config.pages + 1))
        owned = StateSlots(config.state_order or tuple(range(1, config.num_rows))) if self.states else None
        page_table, page = self.arena["page_table"], config.page_size
        copies = StateSlots(config.checkpoint_range) if self.states else None
        prefixes = PrefixCache(page, kind.lookahead(draft.model), keeps=config.prefix_cache, checkpoints=copies)
        shape, of_target = target.cache_shape, pools_of(self.arena, "target", target.cache_shape)
        layout = layout_of(self.arena, "target", shape, config.mrope)
        cache = TargetCache(*of_target, page_table, page, self.states, self.probes, **layout)
        own = None
        if entries:
            layout = layout_of(self.arena, "draft", entries, config.mrope)
            own = PagedCache(*pools_of(self.arena, "draft", entries), page_table, page, **layout)
        self._context = DraftContext(self.arena, own, page_table, config, self.probes, target)
        self._rope = RopeTable(self.arena["mrope_positions"]) if config.mrope else None
        self._penalties = PenaltyTables(self.arena, target.logit_units) if config.penalized else None
        self.grammars = GrammarStates(target.vocab, device) if config.constrained else None
        self.draft = kind(draft.model, self._context)
        # 0: some layer sees all positions, so that no page may be dropped.
        window = shape.widest
        if entries:
            window = max(window, entries.widest + self.draft.lookback) if window and entries.widest else 0
        self.scheduler = Scheduler(config, PagePool(order), PageTable(page_table), prefixes, owned, window)
        needs, verifier = self.draft.needs, TreeVerifier if config.tree else Verifier
        self.verifier = verifier(target, cache, config, self.probes, needs, self._penalties)
        self._packed_target = PackedTarget(self.verifier, needs, config, self.probes, group) if config.mixed else None
        # Until ranks have agreed for the first time, each takes the others for busy.
        self._step, self._any_busy = 0, int(group.size > 1)
        self.exchange = Exchange(cache, self.draft, self.states, self.scheduler, config, self.probes, device)
        self._controller = (parts.controller or controller)(config.adaptive_steps) if config.adaptive_steps else None
        runtime, of_all = parts.runtime or Runtime, (config, self.verifier, self.draft, self.probes, group)
        self._runtimes = {config.num_drafts(steps): runtime(steps, *of_all) for steps in config.runtimes}
        self.draft_counters = DraftCounters(config.most_steps)

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        """Return the dtype of everything that stays between launches, by name: memory, and buffers of every runtime."""
        memory = tuple((region.name, self.arena[region.name].dtype) for region in self.arena.regions)
        packed = self._packed_target.dtypes() if self._packed_target else ()
        return (*memory, *(one for runtime in self._runtimes.values() for one in runtime.dtypes()), *packed)

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    @capturing()
    def capture(self, backend: Backend) -> None:
        """Run as graphs from now on, each captured when its size is first needed (`warm_up` captures all at once).

        Warm-up and capture touch slot 0 and static buffers only.
        """
        declared = (self.arena.memory, *self.verifier.target.weights(), *self.draft.weights())
        for runtime in self._runtimes.values():
            runtime.capture_with(backend, declared)
        if self._packed_target:
            self._packed_target.capture_with(backend, declared)

    def warm_up(self) -> None:
        """Capture every size of every runtime now, the largest first."""
        if self._packed_target:
            self._packed_target.warm_up()
        for size in sorted(self.config.sizes, reverse=True):
            for runtime in self._runtimes.values():
                runtime.warm_up(size)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Requests are admitted in the order they are added, not before their arrival step."""
        self.scheduler.add(request, self.verifier.target.vocab)

    @property
    def idle(self) -> bool:
        """True when no rank has a request left."""
        return self.scheduler.idle and not self._any_busy

    def step(self) -> tuple[Commit, ...]:
        """Run one step; return what each request gained in it."""
        return self.step_with_transfers()[0]

    def step_with_transfers(self) -> tuple[tuple[Commit, ...], tuple[KvTransfer, ...]]:
        """Run one step; return each request's commit, and the requests that a prefill-only engine transfers.

        In its order: release who is aborted and plan; install requests that a prefill engine transferred; agree with
        other ranks on sizes; run chunks, then rounds, or both packed; keep what is final and release who has ended;
        refuse what can never run. With an overlap a step goes otherwise (overlap.py).
        """
        plan = self._plan_step()
        if plan.installed:
            self._begin(plan.installed)
            self.exchange.install(plan.installed)
        step = self._agree_on_sizes(plan)
        self.scheduler.launched(plan)
        commits = self._run(step)
        leaving = [commit for commit in commits if self.config.prefill_only and not commit.finished]
        transfers = self.exchange.pack(leaving, self._step) if leaving else ()
        self._retire(self.scheduler.retire())
        return commits + self._end(plan), transfers

    def _end(self, plan: StepPlan) -> tuple[Commit, ...]:
        """End a step; return the requests that it refuses."""
        refused = self.scheduler.refuse(plan.step)
        (self._any_busy,) = self.group.agree(int(not self.scheduler.idle))
        self.probes.on_step(plan)
        return refused

    def _plan_step(self) -> StepPlan:
        """Release aborted requests, plan the next step, and copy kept states to the requests that begin from them."""
        # Both engines of PD disaggregation may share one group: whoever steps has its collectives reported.
        self.group.watch(self.probes.on_collective)
        for released in self.scheduler.abort(self._step):
            self._release(released)
        plan = self.scheduler.plan(self._step, self._most_steps_for)
        self._step += 1
        for released in plan.preempted:
            self._release(released)
        if plan.evicted:
            self.probes.on_evict(plan.evicted, plan.evicted_checkpoints)
        self.probes.on_plan(plan)
        served = {row.state_slot: row.checkpoint for row in plan.prefill if row.checkpoint}
        if self.states and served:
            self.probes.before_launch("restore")
            restore(self.states, served)
            self.probes.on_launch(Launch("restore", 0, len(served), 0))
        return plan

    def _retire(self, retired: Retired) -> None:
        """Keep for others what is final, and forget the requests that have ended."""
        if self.states and retired.kept:
            # Copied from state slots, before these are released below.
            self.probes.before_launch("keep")
            self.states.checkpoints.keep({one.checkpoint: one.place for one in retired.kept})
            self.probes.on_launch(Launch("keep", 0, len(retired.kept), 0))
            self.probes.on_keep(retired.kept)
        for released in retired.released:
            self._release(released)
        if retired.dropped:
            self.probes.on_drop(retired.dropped)

    def _agree_on_sizes(self, plan: StepPlan, *own: int) -> Step:
        """Agree with all ranks on the sizes of a step: an idle rank runs what others run, with no row of its own.

        `own` is what an engine agrees on beside them: with an overlap whether some host must wait for the results.
        """
        tokens, entries = sum(len(row.ids) for row in plan.prefill), self.draft.prompt_entries(plan.prefill)
        steps = plan.steps if any(row.num_drafts for row in plan.decode) else 0
        tokens, entries, rows, steps, *waits = self.group.agree(tokens, entries, len(plan.decode), steps, *own)
        return Step(plan, tokens, entries, rows, steps, waits=any(waits))

    def _run(self, step: Step) -> tuple[Commit, ...]:
        """Run chunks and rounds: the chunks first, or packed beside each other.

        A step without chunks uses the decode graphs, however few tokens a packed graph would hold.
        """
        if self._packed_target and step.num_tokens:
            return self._run_packed(self._packed_target, step)
        commits: tuple[Commit, ...] = ()
        if step.num_tokens:
            commits = self._end_chunks(step, self._run_chunks(step))
        if step.num_rows:
            rounds = self._start_rounds(step)
            out = rounds.runtime.verify(rounds.proposal, len(rounds.batch), step.num_rows)
            commits += self._end_rounds(step, rounds, out)
        return commits

    def _run_packed(self, target: PackedTarget, step: Step) -> tuple[Commit, ...]:
        """Run chunks, and rounds if there are any, in one launch; what follows for each is as if it had been alone."""
        chunks = step.plan.prefill
        self._begin([row for row in chunks if not row.chunk])
        rounds = self._start_rounds(step)
        packed = packing(chunks, rounds.batch, rounds.proposal, self.config.row_seed)
        (num_packed,) = self.group.agree(packed.total)
        kind, width = ("mixed", rounds.runtime.width) if step.num_rows else ("prefill", 0)
        target.fill(packed, num_packed)
        prefill = self._prefill_states(self.states, chunks) if self.states else None
        self.probes.before_launch(kind)
        states = target.states(packed, prefill, rounds.proposal, rounds.inputs) if prefill else None
        with self.group.padded_to(num_packed):
            out, launch = target.launch(kind, packed, num_packed, width, states)
        ran = target.after_chunks(out, packed, self._choosing_first(chunks))
        verified = target.after_rounds(out, packed, rounds.proposal, rounds.inputs) if width else {}
        self.probes.on_launch(launch)
        commits = self._end_chunks(step, ran)
        return commits + (self._end_rounds(step, rounds, verified) if width else ())

    def _release(self, released: Released) -> None:
        self.draft.release(released.request)
        if self.grammars:
            self.grammars.release(released.request)
        self.probes.on_release(released.req_row, released.pages, released.state_slot)

    def _most_steps_for(self, num_rows: int) -> int:
        """Return the most drafts that a row may have in a decode batch of this many rows."""
        return self._controller.steps(num_rows) if self._controller else self.config.steps

    def _run_chunks(self, step: Step) -> ChunkOutputs:
        """Run the target over one chunk of each prompt, eagerly."""
        batch = step.plan.prefill
        metadata = self._chunk_metadata(batch)
        self._begin([row for row in batch if not row.chunk])
        ends = self._tensor([sum(row.end - row.start for row in batch[: i + 1]) - 1 for i in range(len(batch))])
        ids = self._tensor([token for row in batch for token in row.ids])
        self.probes.before_launch("prefill")
        choosing = self._choosing_first(batch)
        with self.group.padded_to(step.num_tokens):
            out = self.verifier.prefill(ids, metadata, ends, choosing)
        self.probes.on_launch(Launch("prefill", 0, len(batch), 0))
        return ChunkOutputs(metadata, *out)

    def _begin(self, rows: Sequence[PrefillRow]) -> None:
        """Begin what is kept for requests beside their KV entries; `rows` are their first rows."""
        if self._penalties:
            self._penalties.begin(rows)
        if self.grammars:
            self.grammars.begin(rows)
        if self._rope:
            self._rope.begin(rows)

    def _choosing_first(self, batch: tuple[PrefillRow, ...]) -> dict[str, Tensor]:
        """Return how the token after each chunk is sampled and, for prompt logprobs, what follows each token."""
        choosing = uploaded(self._choosing(batch), self.device)
        if self.grammars:
            choosing["excluded"] = stopping.prompt_masks(batch, self.grammars.prompt_masks(batch))
        if self.config.most_prompt_logprobs is not None:
            behind = [(*row.ids[1:], max(row.tail, 0)) for row in batch]
            choosing["next_ids"] = self._tensor([token for tokens in behind for token in tokens])
        return choosing

    def _end_chunks(self, step: Step, ran: ChunkOutputs) -> tuple[Commit, ...]:
        """Commit chunks that the target has run, and compute the draft's entries for them."""
        batch, next_tokens = step.plan.prefill, ran.target_tokens.tolist()  # the host waits for the chunks
        of_prompts = prompt_logprobs({name: one for name, one in ran.weights.items() if name not in WEIGHTS}, batch)
        done = [
            self.scheduler.receive_prompt(row, token, told)
            for row, token, told in zip(batch, next_tokens, of_prompts, strict=True)
        ]
        commits = tuple(commit for commit in done if commit is not None)
        self._advance(commits)
        self.probes.on_commit(commits)
        self._finish(commits)
        self.probes.on_target_hidden_states(ran.hidden_states)
        with self.group.padded_to(step.num_entries):
            self.draft.prefill(PromptChunks(batch, ran.metadata, ran.hidden_states, next_tokens))
        self.probes.on_extend(tuple(commit for commit in commits if not commit.finished))
        ending = [place for place, commit in enumerate(done) if commit]
        of_ends = {name: ran.weights[name][ending][:, None] for name in WEIGHTS if name in ran.weights}
        told = logprobs(of_ends, [(0,)] * len(ending), [batch[place].request.logprobs for place in ending])
        return tuple(replace(one, logprobs=of) for one, of in zip(commits, told, strict=True))

    def _chunk_metadata(self, batch: tuple[PrefillRow, ...]) -> AttentionMetadata:
        req_rows = self._tensor([row.req_row for row in batch for _ in row.ids])
        positions = self._tensor([position for row in batch for position in range(row.start, row.end)])
        metadata = metadata_of_rows(self._context, req_rows, positions, torch.zeros_like(req_rows))
        return replace(metadata, states=self._prefill_states(self.states, batch) if self.states else None)

    def _prefill_states(self, states: StateCache, batch: tuple[PrefillRow, ...]) -> PrefillStates:
        """Return where the chunks of a batch advance states and leave checkpoints; who is new begins before that."""
        lengths = [row.end - row.start for row in batch]
        state_slots = self._tensor([row.state_slot for row in batch])
        new_slots = self._tensor([row.state_slot for row in batch if not (row.chunk or row.checkpoint)])
        steps = self._steps_to_keep(self._tensor([row.start for row in batch]), self._tensor(lengths))
        states.begin(new_slots)
        return PrefillStates(
            state_slots=state_slots,
            cu_seqlens=self._tensor([sum(lengths[:i]) for i in range(len(batch) + 1)]),
            new_slots=new_slots,
            checkpoint_slots=states.checkpoints.advance(state_slots, steps),
            checkpoint_steps=steps,
        )

    def _steps_to_keep(self, seq_lens: Tensor, num_tokens: Tensor) -> Tensor:
        """Return which of the next `num_tokens` tokens of each row ends a checkpoint interval; -1: none."""
        if not self.config.checkpoint:
            return torch.full_like(seq_lens, -1)
        steps = torch.empty_like(seq_lens)
        kernels.checkpoint_steps(steps, seq_lens, num_tokens, self.config.checkpoint)
        return steps

    def _start_rounds(self, step: Step) -> Rounds:
        """Choose the runtime (without drafts if no row may have any), fill its buffers and propose.

        If no rank has a draft then, go on in the runtime without drafts. Of ranks the one with the most steps decides,
        and launches hold the rows of the one with the most.
        """
        runtime, num_rows = self._runtimes[self.config.num_drafts(step.steps)], step.num_rows
        batch, inputs = step.plan.decode, runtime.inputs(len(step.plan.decode), num_rows)
        if not num_rows:
            return Rounds(runtime, batch, inputs, Proposal(self._tensor([]).view(0, 0), ()))
        found = self.draft.look_up(batch)
        known = found.num_drafts if found else tuple(row.num_drafts for row in batch)
        runtime.begin(self._columns(batch, known) | (found.columns(runtime.width - 1) if found else {}), num_rows)
        # A harness may force drafts: they take the place of the proposals.
        proposal = self.probes.steer(batch, runtime.propose(batch, num_rows, found))
        if runtime.steps and not any(self.group.agree(int(any(proposal.num_drafts)))):
            runtime = self._runtimes[0]
            filled = {name: inputs[name] for name in inputs if name not in DRAFT_BUFFERS}
            runtime.begin_from(filled, len(batch), num_rows)
            inputs = runtime.inputs(len(batch), num_rows)
            proposal = Proposal(inputs["draft_tokens"], proposal.num_drafts, inputs.get("parents"))
        if proposal.num_drafts == known:
            proposal = replace(proposal, counts=inputs["num_drafts"])
        batch = tuple(map(DecodeRow.having, batch, proposal.num_drafts))
        return Rounds(runtime, batch, inputs, self._masked(batch, proposal, runtime.width))

    def _masked(self, batch: tuple[DecodeRow, ...], proposal: Proposal, width: int) -> Proposal:
        """Return a proposal with what grammars and minimum lengths exclude behind each of its rows."""
        if not self.grammars:
            return proposal
        masks = self.grammars.masks(batch, proposal, width)
        return replace(proposal, excluded=stopping.masks(batch, proposal, masks))

    def _end_rounds(self, step: Step, rounds: Rounds, out: Outputs) -> tuple[Commit, ...]:
        """Commit what the target accepted, and extend the draft by it."""
        batch, inputs = rounds.batch, rounds.inputs
        acceptance = downloaded_acceptance(out)  # the host waits for the verify
        self.probes.on_target_hidden_states(acceptance.hidden_states)
        self.probes.on_accept(batch, acceptance)
        self._control(batch, acceptance)
        commits = tuple(filter(None, map(self.scheduler.receive_round, batch, acceptance.tokens)))
        self._commit_states(batch, inputs, last_committed(acceptance, commits), acceptance.steps)
        self._advance(commits)
        self.probes.on_commit(commits)
        self._finish(commits)
        unfinished = [i for i, commit in enumerate(commits) if not commit.finished]
        (num_extended,) = self.group.agree(len(unfinished))
        if num_extended:
            rounds.runtime.extend(accepted(batch, inputs, acceptance, commits, unfinished), num_extended)
            self.probes.on_extend(tuple(commits[i] for i in unfinished))
        self.draft_counters.count(rounds.proposal.num_drafts, acceptance.correct_len_cpu)
        if not acceptance.weights:
            return commits
        told = logprobs(acceptance.weights, acceptance.accept_index, [row.request.logprobs for row in batch])
        return tuple(replace(one, logprobs=of[: len(one.emitted)]) for one, of in zip(commits, told, strict=True))

    def _columns(self, batch: tuple[DecodeRow, ...], num_drafts: Sequence[int]) -> dict[str, Sequence[float]]:
        """Return what a round starts from, and how its rows draw tokens."""
        return {
            "req_rows": [row.req_row for row in batch],
            "state_slots": [row.state_slot for row in batch],
            "positions": [row.seq_len for row in batch],
            "num_drafts": num_drafts,
            "pending_tokens": [row.pending_token for row in batch],
            **self._choosing(batch),
        }

    def _choosing(self, batch: Sequence[PrefillRow | DecodeRow]) -> Columns:
        """Return how each row draws its tokens and is penalised, if any request does or is."""
        sampling = sampling_columns([row.request.sampling for row in batch]) if self.config.sampled else {}
        penalties = penalty_columns([row.request.penalties for row in batch]) if self.config.penalized else {}
        return {**sampling, **penalties}

    def _advance(self, commits: tuple[Commit, ...]) -> None:
        """Update penalty counts and grammar states by the new tokens."""
        if self._penalties:
            self._penalties.advance(commits)
        if self.grammars:
            self.grammars.advance(commits)

    def _control(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        """Advance the step-count controller by a verify; what it chooses holds from the next step on."""
        if self._controller and batch:
            num_drafts = [row.num_drafts for row in batch]
            self.probes.on_control(*self._controller.update(num_drafts, acceptance.correct_len_cpu))

    def _commit_states(
        self, batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor], last: Tensor, steps: Tensor | None
    ) -> None:
        """Commit the recurrent state behind the last accepted token of each row (`last`), and a checkpoint where due.

        For a tree, `steps` maps accepted places to the numbers by which states know the rows.
        """
        if self.states is None or not batch:
            return
        kept = along(steps, last)
        self.probes.before_launch("commit")
        self.states.commit(state_slots=inputs["state_slots"], last_correct_step_indices=kept)
        if self.config.checkpoint:
            places = self._steps_to_keep(inputs["positions"], last + 1)
            self.states.checkpoint(inputs["state_slots"], along(steps, places))
        self.probes.on_launch(Launch("commit", 0, len(batch), 0))
        self.probes.on_commit_states(batch, kept)

    def _finish(self, commits: tuple[Commit, ...]) -> None:
        """Flush the states of finished requests: what each leaves is plain (S-STATE-9)."""
        ended = tuple(commit for commit in commits if commit.finished)
        if self.states is None or not ended:
            return
        self.probes.before_launch("finish")
        self.states.flush(self._tensor([commit.state_slot for commit in ended]))
        self.probes.on_launch(Launch("finish", 0, len(ended), 0))
        self.probes.on_finish(ended)
