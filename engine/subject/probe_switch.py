"""What an engine is given in place of its observer, so that another one can come in the middle of its life."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from draftproof.engine.adaptive import ControllerState
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import Issued
from draftproof.engine.stages import (
    Acceptance,
    BufferUse,
    Commit,
    DecodeRow,
    KeptState,
    Launch,
    PrefillRow,
    Proposal,
    StepPlan,
)


class ProbeSwitch(Probes):
    """Passes every call on to an observer. The first observer's taps stay, because graphs have captured them."""

    def __init__(self, observer: Probes) -> None:
        super().__init__(observer.taps)
        self._observer = observer

    def turn_to(self, observer: Probes) -> None:
        """Pass calls on to another observer from now on."""
        self._observer = observer

    def on_plan(self, plan: StepPlan) -> None:
        self._observer.on_plan(plan)

    def on_run(self, plan: StepPlan) -> None:
        self._observer.on_run(plan)

    def on_known(self, batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor]) -> None:
        self._observer.on_known(batch, inputs)

    def on_round(self, batch: tuple[DecodeRow, ...], outputs: Mapping[str, Tensor]) -> None:
        self._observer.on_round(batch, outputs)

    def on_round_extended(self) -> None:
        self._observer.on_round_extended()

    def on_discard(self, row: DecodeRow, context: int, num_drafts: int, committed: int) -> None:
        self._observer.on_discard(row, context, num_drafts, committed)

    def on_buffer(self, use: BufferUse) -> None:
        self._observer.on_buffer(use)

    def before_launch(self, kind: str) -> None:
        self._observer.before_launch(kind)

    def on_layer(self, layer_type: str, index: int) -> None:
        self._observer.on_layer(layer_type, index)

    def on_launch(self, launch: Launch) -> None:
        self._observer.on_launch(launch)

    def on_collective(self, entered: Issued) -> None:
        self._observer.on_collective(entered)

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        return self._observer.steer(batch, proposal)

    def on_target_hidden_states(self, hidden_states: Tensor | None) -> None:
        self._observer.on_target_hidden_states(hidden_states)

    def on_accept(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        self._observer.on_accept(batch, acceptance)

    def on_control(self, before: ControllerState, after: ControllerState) -> None:
        self._observer.on_control(before, after)

    def on_commit_states(self, batch: tuple[DecodeRow, ...], steps: Tensor) -> None:
        self._observer.on_commit_states(batch, steps)

    def on_commit(self, commits: tuple[Commit, ...]) -> None:
        self._observer.on_commit(commits)

    def on_finish(self, commits: tuple[Commit, ...]) -> None:
        self._observer.on_finish(commits)

    def on_extend(self, commits: tuple[Commit, ...]) -> None:
        self._observer.on_extend(commits)

    def on_release(self, req_row: int, pages: tuple[int, ...], state_slot: int) -> None:
        self._observer.on_release(req_row, pages, state_slot)

    def on_evict(self, pages: tuple[int, ...], checkpoints: tuple[int, ...]) -> None:
        self._observer.on_evict(pages, checkpoints)

    def on_install(self, rows: tuple[PrefillRow, ...]) -> None:
        self._observer.on_install(rows)

    def on_keep(self, kept: tuple[KeptState, ...]) -> None:
        self._observer.on_keep(kept)

    def on_drop(self, pages: tuple[int, ...]) -> None:
        self._observer.on_drop(pages)

    def on_step(self, plan: StepPlan) -> None:
        self._observer.on_step(plan)
