"""The engine: plan -> propose -> verify -> commit -> extend, over paged memory and captured graphs.

`R` rows of a batch, `W` verify width, `T` packed prompt tokens, `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.engine.arena import Arena
from draftproof.engine.cache import PagedCache, pool_shapes
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.eagle import Eagle
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.models.base import Head, Target, Where
from draftproof.engine.pages import PagePool, RequestTable
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Buffers, GraphRunner
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import (
    Acceptance,
    Commit,
    DecodeRow,
    GenerationRequest,
    Launch,
    PrefillRow,
    Proposal,
)
from draftproof.engine.verify import Verifier


class Engine:
    """Serves requests with a target and an EAGLE head on one device. `capture` before the first step, if at all."""

    def __init__(
        self,
        target: Target,
        head: Head,
        config: EngineConfig,
        device: torch.device,
        probes: Probes | None = None,
    ) -> None:
        self.config, self.device, self.probes = config, device, probes or Probes()
        slots = (config.pages + 1) * config.page_size
        table = ((config.request_slots + 1, config.pages_per_row), torch.int64)
        state = ((config.request_slots + 1, target.width), target.hidden_dtype)
        self.arena = Arena(
            {
                **pool_shapes("target", target.cache_shape, slots),
                **pool_shapes("draft", head.cache_shape, slots),
                "table": table,
                "first": ((config.request_slots + 1,), torch.int64),
                "state": state,
            },
            device,
        )
        order = config.page_order or tuple(range(1, config.pages + 1))
        self.scheduler = Scheduler(config, PagePool(order), RequestTable(self.arena["table"]))
        self.verifier = Verifier(target, self._cache("target", target.cache_shape.layers), config, self.probes)
        self.draft = Eagle(head, self._cache("draft", head.cache_shape.layers), config, self.probes)
        self._step = 0
        self._build_runners()

    def _cache(self, name: str, layers: int) -> PagedCache:
        keys = tuple(self.arena[f"{name}.k.{layer}"] for layer in range(layers))
        values = tuple(self.arena[f"{name}.v.{layer}"] for layer in range(layers))
        return PagedCache(keys, values, self.arena["table"], self.config.page_size)

    def _build_runners(self) -> None:
        config, width = self.config, self.verifier.target.width
        largest = max(config.max_batch, *config.sizes) if config.sizes else config.max_batch
        ints = {name: self._zeros(largest) for name in ("rows", "positions", "counts", "pending", "first")}
        hidden = torch.zeros((largest, width), dtype=self.verifier.target.hidden_dtype, device=self.device)
        drafts = {"drafts": self._zeros(largest, config.steps), "hidden": hidden}
        padding = {"rows": 0, "positions": 0, "counts": -1, "pending": 0, "first": 0, "drafts": 0, "hidden": 0}
        self._round = Buffers({**ints, **drafts}, padding)
        accepted = {name: self._zeros(largest) for name in ("rows", "positions", "correct")}
        states = torch.zeros((largest, config.width, width), dtype=hidden.dtype, device=self.device)
        wide = {"tokens": self._zeros(largest, config.width), "hidden": states}
        self._accepted = Buffers(
            {**accepted, **wide}, {"rows": 0, "positions": 0, "correct": -1, "tokens": 0, "hidden": 0}
        )
        self._propose = GraphRunner("draft", self.draft.propose, self._round, config.sizes, self.probes)
        self._verify = GraphRunner("verify", self.verifier.verify, self._round, config.sizes, self.probes)
        self._extend = GraphRunner("extend", self.draft.extend, self._accepted, config.sizes, self.probes)

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def _tensor(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def capture(self, backend: Backend) -> None:
        """Run as graphs from now on, each captured when its size is first needed (`warm_up` captures all at once).

        Warm-up and capture touch slot 0 and static buffers only.
        """
        declared = (self.arena.memory, *self.verifier.target.weights(), *self.draft.head.weights())
        for runner in (self._propose, self._verify, self._extend):
            runner.capture_with(backend, declared)

    def warm_up(self) -> None:
        """Capture every size now, the largest first."""
        for size in sorted(self.config.sizes, reverse=True):
            for runner in (self._propose, self._verify, self._extend):
                runner.prepare(size)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Requests are admitted in the order they are added, not before their arrival step."""
        self.scheduler.add(request)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle

    def step(self) -> tuple[Commit, ...]:
        """Run one step; what each request gained in it."""
        plan = self.scheduler.plan(self._step)
        self._step += 1
        self.probes.planned(plan)
        commits: tuple[Commit, ...] = ()
        if plan.prefill:
            commits += self._prefill(plan.prefill)
        if plan.decode:
            commits += self._decode(plan.decode)
        for row, pages in self.scheduler.retire(commits):
            self.probes.released(row, pages)
        self.probes.stepped(plan)
        return commits

    def _prefill(self, batch: tuple[PrefillRow, ...]) -> tuple[Commit, ...]:
        """One chunk of each prompt, eagerly: the target over all of them, then the head's entries."""
        where = self._packed(batch)
        ends = self._tensor([sum(row.end - row.start for row in batch[: i + 1]) - 1 for i in range(len(batch))])
        ids = self._tensor([token for row in batch for token in row.ids])
        self.probes.before_launch()
        hidden, choice = self.verifier.prefill(ids, where, ends)
        self.probes.launched(Launch("prefill", 0, len(batch), 0))
        chosen = choice.tolist()
        done = [
            self.scheduler.commit_prefill(row, token if row.tail < 0 else None)
            for row, token in zip(batch, chosen, strict=True)
        ]
        commits = tuple(commit for commit in done if commit is not None)
        self.probes.committed(commits)
        self._extend_prompt(batch, where, hidden, ends, chosen)
        self.probes.extended(tuple(commit for commit in commits if not commit.finished))
        return commits

    def _packed(self, batch: tuple[PrefillRow, ...]) -> Where:
        rows = self._tensor([row.row for row in batch for _ in row.ids])
        lengths = self._tensor([position for row in batch for position in range(row.start, row.end)])
        return self.draft.place(rows, lengths, torch.zeros_like(rows))

    def _extend_prompt(
        self, batch: tuple[PrefillRow, ...], where: Where, hidden: torch.Tensor, ends: torch.Tensor, chosen: list[int]
    ) -> None:
        tails = [row.tail if row.tail >= 0 else token for row, token in zip(batch, chosen, strict=True)]
        shifted = [(*row.ids[1:], tail) for row, tail in zip(batch, tails, strict=True)]
        self.probes.before_launch()
        first, state = self.draft.extend_prompt(self._tensor([t for ids in shifted for t in ids]), hidden, where, ends)
        self.probes.launched(Launch("extend_prompt", 0, len(batch), 0))
        self._keep(self._tensor([row.row for row in batch]), first, state)

    def _keep(self, rows: torch.Tensor, first: torch.Tensor, state: torch.Tensor) -> None:
        """Remember each request's first draft and handed-on state for its next round."""
        self.arena["first"][rows] = first
        self.arena["state"][rows] = state

    def _decode(self, batch: tuple[DecodeRow, ...]) -> tuple[Commit, ...]:
        rows = self._tensor([row.row for row in batch])
        proposal = self.probes.steer(batch, self._run_propose(batch, rows))
        acceptance = self._run_verify(batch, proposal)
        self.probes.accepted(batch, acceptance)
        commits = tuple(self.scheduler.commit(row, acceptance.tokens[i]) for i, row in enumerate(batch))
        self.probes.committed(commits)
        going_on = [i for i, commit in enumerate(commits) if not commit.finished]
        if going_on:
            self._run_extend(batch, acceptance, rows, going_on)
            self.probes.extended(tuple(commits[i] for i in going_on))
        return commits

    def _run_propose(self, batch: tuple[DecodeRow, ...], rows: torch.Tensor) -> Proposal:
        """Fill the buffers of the round and let the draft propose into them."""
        count = len(batch)
        self._propose.prepare(count)
        self._verify.prepare(count)
        values = {
            "rows": rows,
            "positions": self._tensor([row.context for row in batch]),
            "counts": self._tensor([row.drafts for row in batch]),
            "pending": self._tensor([row.pending for row in batch]),
            "first": self.arena["first"][rows],
            "hidden": self.arena["state"][rows],
            "drafts": torch.zeros((count, self.config.steps), dtype=torch.int64, device=self.device),
        }
        self._round.fill(values, count, self._verify.size_for(count))
        if any(row.drafts for row in batch):
            return Proposal(self._propose.launch(count)["drafts"])
        return Proposal(values["drafts"])

    def _run_verify(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Acceptance:
        count = len(batch)
        self._round.fill({"drafts": proposal.drafts}, count, count)
        out = self._verify.launch(count)
        correct, choice = out["correct"].tolist(), out["choice"].tolist()
        tokens = tuple((*row[:a], bonus) for row, a, bonus in zip(choice, correct, out["bonus"].tolist(), strict=True))
        return Acceptance(out["hidden"], out["choice"], out["correct"], tuple(correct), tokens)

    def _run_extend(
        self, batch: tuple[DecodeRow, ...], acceptance: Acceptance, rows: torch.Tensor, going_on: list[int]
    ) -> None:
        kept, count = self._tensor(going_on), len(going_on)
        values = {
            "rows": rows[kept],
            "positions": self._tensor([batch[i].context for i in going_on]),
            "correct": acceptance.correct[kept],
            "tokens": acceptance.choice[kept],
            "hidden": acceptance.hidden[kept],
        }
        self._extend.prepare(count)
        self._accepted.fill(values, count, self._extend.size_for(count))
        out = self._extend.launch(count)
        self._keep(values["rows"], out["first"], out["state"])
