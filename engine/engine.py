"""The engine: plan -> propose -> verify -> commit -> extend, over paged memory, states and captured graphs.

`R` rows of a batch, `W` verify width, `T` packed prompt tokens, `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from draftproof import kernels
from draftproof.engine.adaptive import advance, start
from draftproof.engine.arena import Arena
from draftproof.engine.cache import PagedCache, TargetCache, pool_shapes
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts import algorithm
from draftproof.engine.drafts.base import Accepted, DraftModel, Lent, Shapes, place
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.graphs.capturing import capturing
from draftproof.engine.models.base import CacheShape, Chunks, Target, Where
from draftproof.engine.pages import PagePool, RequestTable
from draftproof.engine.probes import Probes
from draftproof.engine.runtime import Runtime
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, GenerationRequest, Launch, PrefillRow, Proposal
from draftproof.engine.states.base import StateCache
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.slots import StateSlots
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.verify import Verifier

COMMITS: dict[str, type[Snapshot] | type[Replay]] = {"snapshot": Snapshot, "replay": Replay}


class Engine:
    """Serves requests with a target and a draft on one device. `capture` before the first step, if at all."""

    def __init__(
        self,
        target: Target,
        draft: DraftModel,
        config: EngineConfig,
        device: torch.device,
        probes: Probes | None = None,
    ) -> None:
        self.config, self.device, self.probes = config, device, probes or Probes()
        kind = algorithm(draft.kind)
        slots, rows = (config.pages + 1) * config.page_size, config.request_slots + 1
        entries = kind.entries(draft.model)
        shapes: Shapes = {
            **pool_shapes("target", target.cache_shape, slots),
            **(pool_shapes("draft", entries, slots) if entries else {}),
            "table": ((rows, config.pages_per_row), torch.int64),
            **kind.memory(draft.model, target, rows),
        }
        commit = COMMITS[config.commit]
        if target.state_shape:
            shapes |= commit.shapes(target.state_shape, rows, config.most_rows, config.most_width)
        self.arena = Arena(shapes, device)
        self.states: StateCache | None = commit(self.arena) if target.state_shape else None
        order = config.page_order or tuple(range(1, config.pages + 1))
        owned = StateSlots(config.state_order or tuple(range(1, rows))) if self.states else None
        self.scheduler = Scheduler(config, PagePool(order), RequestTable(self.arena["table"]), owned)
        table, page = self.arena["table"], config.page_size
        cache = TargetCache(*self._pools("target", target.cache_shape), table, page, self.states, self.probes)
        own = PagedCache(*self._pools("draft", entries), table, page) if entries else None
        self._lent = Lent(self.arena, own, table, config, self.probes, target)
        self.draft = kind(draft.model, self._lent)
        self.verifier = Verifier(target, cache, config, self.probes, self.draft.needs)
        self._step = 0
        self._controller = start(config.adaptive) if config.adaptive else None
        counts = (0, *config.candidates)
        self._runtimes = {steps: Runtime(steps, config, self.verifier, self.draft, self.probes) for steps in counts}

    def _pools(self, name: str, shape: CacheShape) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        keys = tuple(self.arena[f"{name}.k.{layer}"] for layer in range(shape.layers))
        return keys, tuple(self.arena[f"{name}.v.{layer}"] for layer in range(shape.layers))

    def _tensor(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    @capturing()
    def capture(self, backend: Backend) -> None:
        """Run as graphs from now on, each captured when its size is first needed (`warm_up` captures all at once).

        Warm-up and capture touch slot 0 and static buffers only.
        """
        declared = (self.arena.memory, *self.verifier.target.weights(), *self.draft.weights())
        for runtime in self._runtimes.values():
            runtime.capture_with(backend, declared)

    def warm_up(self) -> None:
        """Capture every size of every runtime now, the largest first."""
        for size in sorted(self.config.sizes, reverse=True):
            for runtime in self._runtimes.values():
                runtime.warm_up(size)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Requests are admitted in the order they are added, not before their arrival step."""
        self.scheduler.add(request)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle

    def step(self) -> tuple[Commit, ...]:
        """Run one step; what each request gained in it."""
        plan = self.scheduler.plan(self._step, self._controller.steps if self._controller else self.config.steps)
        self._step += 1
        self.probes.planned(plan)
        commits: tuple[Commit, ...] = ()
        if plan.prefill:
            commits += self._prefill(plan.prefill)
        if plan.decode:
            commits += self._decode(plan.decode, plan.steps)
        for commit in commits:
            if commit.finished:
                self.draft.released(commit.request)
        for row, pages, state in self.scheduler.retire(commits):
            self.probes.released(row, pages, state)
        self.probes.stepped(plan)
        return commits

    def _prefill(self, batch: tuple[PrefillRow, ...]) -> tuple[Commit, ...]:
        """One chunk of each prompt, eagerly: the target over all of them, then the head's entries."""
        where = self._packed(batch)
        ends = self._tensor([sum(row.end - row.start for row in batch[: i + 1]) - 1 for i in range(len(batch))])
        ids = self._tensor([token for row in batch for token in row.ids])
        self.probes.before_launch("prefill")
        if self.states and isinstance(where.states, Chunks):
            self.states.begin(where.states)
        hidden, choice = self.verifier.prefill(ids, where, ends)
        self.probes.launched(Launch("prefill", 0, len(batch), 0))
        chosen = choice.tolist()
        done = [
            self.scheduler.commit_prefill(row, token if row.tail < 0 else None)
            for row, token in zip(batch, chosen, strict=True)
        ]
        commits = tuple(commit for commit in done if commit is not None)
        self.probes.committed(commits)
        self._hand_over(commits)
        self.probes.fed(hidden)
        self.draft.prompt(batch, where, hidden, chosen)
        self.probes.extended(tuple(commit for commit in commits if not commit.finished))
        return commits

    def _packed(self, batch: tuple[PrefillRow, ...]) -> Where:
        rows = self._tensor([row.row for row in batch for _ in row.ids])
        lengths = self._tensor([position for row in batch for position in range(row.start, row.end)])
        where = place(self._lent, rows, lengths, torch.zeros_like(rows))
        return Where(where.rows, where.positions, where.slots, self._chunks(batch) if self.states else None)

    def _chunks(self, batch: tuple[PrefillRow, ...]) -> Chunks:
        lengths = [row.end - row.start for row in batch]
        slots = self._tensor([row.state for row in batch])
        return Chunks(
            slots=slots,
            starts=self._tensor([sum(lengths[:i]) for i in range(len(batch) + 1)]),
            fresh=self._tensor([row.state for row in batch if not row.start]),
            keep_slots=slots,
            keep_steps=self._checkpoints([row.start for row in batch], lengths),
        )

    def _checkpoints(self, lengths: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        """The step of each row after which a checkpoint is kept, -1 for none: `counts` tokens after `lengths`."""
        if not self.config.checkpoint:
            return torch.full((len(lengths),), -1, dtype=torch.int64, device=self.device)
        steps = torch.empty(len(lengths), dtype=torch.int64, device=self.device)
        kernels.checkpoint_steps(steps, self._tensor(lengths), self._tensor(counts), self.config.checkpoint)
        return steps

    def _decode(self, batch: tuple[DecodeRow, ...], steps: int) -> tuple[Commit, ...]:
        """One round of each row, in the runtime of the step count in force, or in that without drafts."""
        runtime = self._runtimes[steps if any(row.drafts for row in batch) else 0]
        inputs = self._inputs(batch)
        runtime.begin(inputs, len(batch))
        proposal = self.probes.steer(batch, runtime.propose(batch))
        if runtime.steps and not any(proposal.counts):
            runtime = self._runtimes[0]
            runtime.begin(inputs, len(batch))
            proposal = Proposal(proposal.drafts[:, :0], proposal.counts)
        batch = tuple(replace(row, drafts=count) for row, count in zip(batch, proposal.counts, strict=True))
        acceptance = runtime.verify(proposal, len(batch))
        self.probes.fed(acceptance.hidden)
        self.probes.accepted(batch, acceptance)
        self._control(batch, acceptance)
        commits = tuple(self.scheduler.commit(row, acceptance.tokens[i]) for i, row in enumerate(batch))
        self._commit_states(commits)
        self.probes.committed(commits)
        self._hand_over(commits)
        going_on = [i for i, commit in enumerate(commits) if not commit.finished]
        if going_on:
            runtime.extend(self._accepted(batch, acceptance, commits, going_on))
            self.probes.extended(tuple(commits[i] for i in going_on))
        return commits

    def _inputs(self, batch: tuple[DecodeRow, ...]) -> dict[str, torch.Tensor]:
        return {
            "rows": self._tensor([row.row for row in batch]),
            "states": self._tensor([row.state for row in batch]),
            "positions": self._tensor([row.context for row in batch]),
            "counts": self._tensor([row.drafts for row in batch]),
            "pending": self._tensor([row.pending for row in batch]),
        }

    def _control(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        """Let the step-count controller hear of a verify; what it chooses holds from the next step on."""
        if self.config.adaptive and self._controller:
            before = self._controller
            drafts = [row.drafts for row in batch]
            self._controller = advance(self.config.adaptive, before, drafts, acceptance.correct_len)
            self.probes.controlled(before, self._controller)

    def _commit_states(self, commits: tuple[Commit, ...]) -> None:
        """The recurrent states after each request's last committed row become its own, with a checkpoint where due."""
        if self.states is None:
            return
        slots = self._tensor([commit.state for commit in commits])
        self.probes.before_launch("commit")
        self.states.commit(
            slots=slots,
            last_correct_step_indices=self._tensor([commit.last_correct_step_index for commit in commits]),
        )
        if self.config.checkpoint:
            before, counts = ([commit.before for commit in commits], [len(commit.emitted) for commit in commits])
            self.states.checkpoint(slots, self._checkpoints(before, counts))
        self.probes.launched(Launch("commit", 0, len(commits), 0))

    def _hand_over(self, commits: tuple[Commit, ...]) -> None:
        """The states of requests that end, in plain form, for whoever wants to go on from them."""
        ended = tuple(commit for commit in commits if commit.finished)
        if self.states is None or not ended:
            return
        self.probes.before_launch("finish")
        self.states.flush(self._tensor([commit.state for commit in ended]))
        self.probes.launched(Launch("finish", 0, len(ended), 0))
        self.probes.handed_over(ended)

    def _accepted(
        self,
        batch: tuple[DecodeRow, ...],
        acceptance: Acceptance,
        commits: tuple[Commit, ...],
        going_on: list[int],
    ) -> Accepted:
        """What the draft hears of the rows that go on."""
        kept = self._tensor(going_on)
        return Accepted(
            requests=tuple(batch[i].request for i in going_on),
            rows=self._tensor([batch[i].row for i in going_on]),
            positions=self._tensor([batch[i].context for i in going_on]),
            correct=acceptance.correct[kept],
            ids=acceptance.ids[kept],
            choice=acceptance.choice[kept],
            hidden=None if acceptance.hidden is None else acceptance.hidden[kept],
            tokens=tuple(commits[i].emitted for i in going_on),
        )
