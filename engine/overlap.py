"""An engine whose host plans a step while the one before runs, and processes its results a step late.

The device alone knows lengths and pending tokens in time (future_map.py); the host plans by bounds on them
(scheduler.py). Sources: docs/semantics/overlap.md, S-OVERLAP.

`R` rows of a batch, `W` verify width.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Accepted, DraftModel, PromptChunks
from draftproof.engine.engine import Engine
from draftproof.engine.future_map import FutureMap
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.logprobs import WEIGHTS, logprobs, prompt_logprobs
from draftproof.engine.models.base import Target
from draftproof.engine.parts import OWN, EngineParts
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.runner import Outputs
from draftproof.engine.stages import Commit, DecodeRow, StepPlan, relayed
from draftproof.engine.staging import Staging
from draftproof.engine.step import ChunkOutputs, Rounds, Step
from draftproof.engine.streams import stream_of
from draftproof.engine.upload import uploaded

_INPUTS = ("req_rows", "state_slots", "wanted", "last_contexts")
"""What the host tells the device of each row of a round."""
RESULTS = ("num_drafts", "correct_len", "bonus")
"""What the device tells the host of each row, before its target tokens [W]."""


class OverlapEngine(Engine):
    """An engine with at most one step in flight while the host plans the next."""

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
        super().__init__(target, draft, config, device, probes, parts, group)
        self._stream = stream_of(device)
        self._relay = FutureMap(config.num_rows, config.max_len, device)
        self._in_flight = deque[Step]()
        rows, results = config.max_batch, len(RESULTS) + config.most_width
        sizes = {"inputs": len(_INPUTS) * rows, "rounds": results * rows, "prompts": config.request_slots}
        self._staging = {kind: Staging(kind, size, self._stream, device, self.probes) for kind, size in sizes.items()}

    def step_with_transfers(self) -> tuple[tuple[Commit, ...], tuple[KvTransfer, ...]]:
        """Plan and launch one step, then process the results of the step before, or of both."""
        plan = self._plan_step()
        self.scheduler.launched(plan)
        delay = self.config.overlap[plan.step % len(self.config.overlap)]
        waits = self.scheduler.waits_for(plan)
        step, most = self._agree_on_sizes(plan, int(waits)), 0
        if step.num_tokens or step.num_rows:
            self._in_flight.append(self._launch(step, late=delay == "late" and not step.waits))
            most = int(delay != "none" and not waits)
        commits: tuple[Commit, ...] = ()
        while len(self._in_flight) > most:
            commits += self._process(self._in_flight.popleft())
        self._retire(self.scheduler.retire())
        return commits + self._end(plan), ()

    def _launch(self, step: Step, *, late: bool) -> Step:
        """Give a step to the device."""
        plan, work, buffers = step.plan, self._stream.given + 1, dict[str, Tensor]()
        if plan.decode:
            self._fill(self._staging["inputs"].of_host(work), plan.decode)
            buffers = {name: self._staging[name].of_device(work) for name in ("inputs", "rounds")}
        if plan.prefill:
            buffers["prompts"] = self._staging["prompts"].of_device(work)
        step = replace(step, work=work, buffers=buffers)
        self._stream.run(partial(self._run_launched, step), late=late)
        return step

    def _fill(self, inputs: Tensor, batch: tuple[DecodeRow, ...]) -> None:
        """Write what the host tells of a round, one input after another."""
        values = [
            (row.req_row, row.state_slot, row.num_drafts, self.scheduler.last_context(row.request.id)) for row in batch
        ]
        inputs.view(len(_INPUTS), -1)[:, : len(batch)] = torch.tensor(values, dtype=torch.int64).t()

    def _run_launched(self, step: Step) -> None:
        """Run a step on the device."""
        self.probes.on_run(step.plan)
        self._run(step)

    def _end_chunks(self, step: Step, ran: ChunkOutputs) -> tuple[Commit, ...]:
        """Begin rounds after the last chunks, and make the draft's entries; the host hears of it later."""
        batch, step.weights["prompts"] = step.plan.prefill, ran.weights
        ends = [place for place, row in enumerate(batch) if row.tail < 0]
        last = [batch[place] for place in ends]
        lengths = self._tensor([row.end for row in last])
        req_rows, first_tokens = self._tensor([row.req_row for row in last]), ran.target_tokens[self._tensor(ends)]
        self._relay.begin(req_rows, lengths, first_tokens)
        if self._penalties:
            self._penalties.advance_by(req_rows, first_tokens[:, None], torch.zeros_like(req_rows))
        if batch:
            step.buffers["prompts"][: len(batch)].copy_(ran.target_tokens, non_blocking=True)
        # The draft's entries are made of the first token, and its input is put together on the host.
        next_tokens = ran.target_tokens.tolist()
        commits = tuple(Commit.of(batch[place], 0, (next_tokens[place],), batch[place].end) for place in ends)
        self.probes.on_commit(commits)
        self.probes.on_target_hidden_states(ran.hidden_states)
        with self.group.padded_to(step.num_entries):
            self.draft.prefill(PromptChunks(batch, ran.metadata, ran.hidden_states, next_tokens))
        self.probes.on_extend(commits)
        return ()

    def _start_rounds(self, step: Step) -> Rounds:
        """Begin a round of each row from what the device knows, of requests that may have ended, too: it proposes."""
        if not step.num_rows:
            return super()._start_rounds(step)
        runtime, batch, num_rows = self._runtimes[self.config.num_drafts(step.steps)], step.plan.decode, step.num_rows
        count = len(batch)
        staged = step.buffers["inputs"] if batch else self._tensor([])
        device_inputs = staged.to(self.device, non_blocking=True).view(len(_INPUTS), -1)
        req_rows, state_slots, wanted, last_contexts = device_inputs[:, :count]
        # Whatever is wanted, a launch has no more columns than its runtime.
        known = self._relay.inputs(req_rows, wanted.clamp(max=runtime.steps), last_contexts)
        choosing = uploaded(self._choosing(batch), self.device)
        inputs = {"req_rows": req_rows, "state_slots": state_slots, **known, **choosing}
        self.probes.on_known(batch, inputs)
        found = None
        if self.draft.looks_up:
            # Who waits for the tokens of the round before knows how many there are.
            found = self.draft.look_up(tuple(map(DecodeRow.having, batch, inputs["num_drafts"].tolist())))
        if found:
            told = uploaded({**found.columns(runtime.width - 1), "num_drafts": found.num_drafts}, self.device)
            inputs |= {"num_drafts": torch.where(inputs["num_drafts"] < 0, -1, told.pop("num_drafts"))}
            inputs |= {name: column.view(count, runtime.width - 1) for name, column in told.items()}
        runtime.begin_from(inputs, count, num_rows)
        counts = runtime.inputs(count, num_rows)["num_drafts"]
        counts = self.config.tree.counts(counts) if self.config.tree and not found else counts
        proposal = replace(runtime.propose(batch, num_rows, found), counts=counts)
        if found:
            proposal = replace(proposal, num_drafts=tuple(counts.tolist()))
        proposal = self._masked(batch, self.probes.steer(batch, proposal), runtime.width)
        if proposal.counts is None:
            proposal = replace(proposal, counts=self._tensor(proposal.num_drafts))
        inputs = inputs | {"num_drafts": proposal.counts}
        if self._packed_target and step.num_tokens:
            # Packed rows are laid out by the tokens that each turns out to have.
            batch = relayed(batch, inputs)
            proposal = replace(proposal, num_drafts=tuple(row.num_drafts for row in batch))
        return Rounds(runtime, batch, inputs, proposal)

    def _end_rounds(self, step: Step, rounds: Rounds, out: Outputs) -> tuple[Commit, ...]:
        """Commit what rounds accepted, and extend the draft by it; the host hears of it later."""
        batch, inputs, correct_len = rounds.batch, rounds.inputs, out["correct_len"]
        req_rows, seq_lens = inputs["req_rows"], inputs["positions"]
        self._relay.advance(req_rows, correct_len, out["bonus"])
        if self._penalties:
            self._penalties.advance_by(req_rows, out["target_tokens"], correct_len)
        self.probes.on_target_hidden_states(out.get("hidden_states"))
        self._commit_states(batch, inputs, correct_len, out.get("steps"))
        self.probes.on_round(batch, out)
        rounds.runtime.extend(
            Accepted(
                requests=tuple(row.request.id for row in batch),
                req_rows=req_rows,
                seq_lens=seq_lens,
                correct_len=correct_len,
                ids=out["ids"],
                target_tokens=out["target_tokens"],
                hidden_states=out.get("hidden_states"),
                tokens=(),
            ),
            step.num_rows,
        )
        self.probes.on_round_extended()
        by_row = torch.zeros((len(RESULTS), self.config.max_batch), dtype=torch.int64, device=self.device)
        by_row[:, : len(batch)] = torch.stack([inputs["num_drafts"], correct_len, out["bonus"]])
        told = torch.cat([by_row.flatten(), out["target_tokens"].flatten()])
        if batch:
            step.buffers["rounds"][: len(told)].copy_(told, non_blocking=True)
        step.weights["rounds"] = {name: out[name] for name in (*WEIGHTS, "accept_index") if WEIGHTS[0] in out}
        return ()

    def _process(self, step: Step) -> tuple[Commit, ...]:
        """Process the results of a step: each request's commit, which requests ended, and what a controller learns."""
        self._stream.wait(step.work)
        self.probes.on_run(step.plan)
        commits = self._process_chunks(step) + self._process_rounds(step)
        if self.grammars:
            self.grammars.advance(commits)
        return commits

    def _process_chunks(self, step: Step) -> tuple[Commit, ...]:
        batch = step.plan.prefill
        if not batch:
            return ()
        tokens, weights = (
            self._staging["prompts"].of_host(step.work)[: len(batch)].tolist(),
            step.weights.get("prompts", {}),
        )
        of_prompts = prompt_logprobs({name: one for name, one in weights.items() if name not in WEIGHTS}, batch)
        of_ends = {name: weights[name][:, None] for name in WEIGHTS if name in weights}
        told = logprobs(of_ends, [(0,)] * len(batch), [row.request.logprobs for row in batch])
        commits = [
            self.scheduler.receive_prompt(row, token, told)
            for row, token, told in zip(batch, tokens, of_prompts, strict=True)
        ]
        return tuple(replace(one, logprobs=of) for one, of in zip(commits, told, strict=True) if one is not None)

    def _process_rounds(self, step: Step) -> tuple[Commit, ...]:
        """Unpack the rounds of a step by its own width; rounds of requests that had ended are discarded."""
        batch = step.plan.decode
        if not batch:
            return ()
        rows, width = len(batch), self._runtimes[self.config.num_drafts(step.steps)].width
        results = self._staging["rounds"].of_host(step.work)
        by_row, tokens = results.tensor_split([len(RESULTS) * self.config.max_batch])
        num_drafts, correct_len, bonus = by_row.view(len(RESULTS), -1)[:, :rows].tolist()
        target_tokens = tokens[: rows * width].view(rows, width).tolist()
        weights = step.weights.get("rounds", {})
        walked = [[at for at in row if at >= 0] for row in weights["accept_index"].tolist()] if weights else []
        told = logprobs(weights, walked, [row.request.logprobs for row in batch])
        commits, counted = list[Commit](), list[tuple[int, int]]()
        for place, row in enumerate(batch):
            context, right = self.scheduler.known_length(row.request.id), correct_len[place]
            commit = self.scheduler.receive_round(row, (*target_tokens[place][:right], bonus[place]))
            if commit is None:
                self.probes.on_discard(row, context, num_drafts[place], right + 1)
                counted.append((0, 0))
            else:
                commits.append(replace(commit, logprobs=told[place][: len(commit.emitted)]))
                counted.append((num_drafts[place], right))
        self._decide(step.plan, counted)
        return tuple(commits)

    def _decide(self, plan: StepPlan, counted: list[tuple[int, int]]) -> None:
        """Count drafts; advance the step-count controller by a verify: it holds from the step planned next."""
        num_drafts, correct_len = zip(*counted, strict=True)
        self.draft_counters.count(num_drafts, correct_len)
        if self._controller:
            before, after = self._controller.update(num_drafts, correct_len)
            self.probes.on_control(replace(before, steps=plan.steps), after)
