"""What the probes see of an engine that is a step ahead of its host: the usual, and what only the device knows.

An observer may wait for the device; the host of the engine does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.ranks import Issued, RankOp
from draftproof.engine.runtime import downloaded_acceptance
from draftproof.engine.stages import BufferUse, Commit, DecodeRow, Proposal, StepPlan, relayed
from draftproof.engine.subject.recorder import TraceRecorder
from draftproof.properties.values.observed import BufferKind, DiscardedRound, SharedUse
from draftproof.properties.values.trace import Key

_OF_PLANS = frozenset({"round.rows", "round.table", "round.state"})
"""What a discarded round reports like any other: where and when it ran."""


class OverlapRecorder(TraceRecorder):
    """A recorder of an `OverlapEngine`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ran: tuple[Commit, ...] = ()
        self._step, self._uses = -1, 0

    def on_plan(self, plan: StepPlan) -> None:
        super().on_plan(plan)
        self._step, self._uses = plan.step, 0

    def on_run(self, plan: StepPlan) -> None:
        self._plan = plan

    def before_launch(self, kind: str) -> None:
        if kind == "keep":
            # The host has this done at the end of its own step.
            self._plan = replace(self._plan, step=self._step)
        super().before_launch(kind)

    def on_collective(self, entered: Issued) -> None:
        ran = self._plan
        # Hosts agree in a step of their own, whatever their devices run meanwhile.
        self._plan = replace(ran, step=self._step) if entered.op == RankOp.AGREE else ran
        super().on_collective(entered)
        self._plan = ran

    def on_known(self, batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor]) -> None:
        """Keep the rows as the device has them, which a script is followed by, and which are reported."""
        self._plan = replace(self._plan, decode=relayed(batch, inputs))

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        if proposal.counts is None:
            return super().steer(self._plan.decode, proposal)
        exact = replace(proposal, num_drafts=tuple(proposal.counts.tolist()))
        steered = super().steer(self._plan.decode, exact)
        if proposal.num_drafts == exact.num_drafts:
            return steered
        # The host knows bounds alone, as without an observer.
        counts = torch.tensor(steered.num_drafts, dtype=torch.int64, device=proposal.counts.device)
        return replace(steered, num_drafts=proposal.num_drafts, counts=counts)

    def on_round(self, batch: tuple[DecodeRow, ...], outputs: Mapping[str, Tensor]) -> None:
        verified, batch = downloaded_acceptance(outputs), self._plan.decode
        self.on_accept(batch, verified)
        gained = [tokens if row.num_drafts >= 0 else () for row, tokens in zip(batch, verified.tokens, strict=True)]
        self._ran = tuple(
            Commit.of(row, row.seq_len, tokens, row.seq_len + len(tokens))
            for row, tokens in zip(batch, gained, strict=True)
        )
        self.on_commit(self._ran)

    def _report_grammars(self, commits: tuple[Commit, ...]) -> None:
        """Wait with this until the host has followed its grammars."""

    def report_returned(self, step: int, commits: tuple[Commit, ...]) -> None:
        super().report_returned(step, commits)
        super()._report_grammars(commits)

    def on_round_extended(self) -> None:
        self.on_extend(self._ran)

    def on_discard(self, row: DecodeRow, context: int, num_drafts: int, committed: int) -> None:
        key = Key(row.request.id, row.round)
        self._log.drop(row.request.id, row.round, but=_OF_PLANS)
        self._log.add("overlap.discarded", key, DiscardedRound(context, num_drafts, committed))

    def on_buffer(self, use: BufferUse) -> None:
        kind, key = BufferKind[use.kind.upper()], Key(-1, self._step, step=self._uses)
        self._log.add("overlap.buffers", key, SharedUse(kind, use.place, int(use.by_device), use.work, use.waited))
        self._uses += 1
