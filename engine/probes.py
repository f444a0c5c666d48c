"""Callbacks of an engine for observers and for steering; by default all of them do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from draftproof.engine.adaptive import ControllerState
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


class Taps:
    """Taps that are off: graphs contain nothing of them."""

    def record(self, name: str, tensor: Tensor, step: int = -1) -> None:
        """Record an intermediate tensor of the launch in hand."""

    def record_margin(self, name: str, logits: Tensor, step: int = -1) -> None:
        """Record the margin of the highest to the second of logits [.., V]."""

    @contextmanager
    def warmup(self, kind: str, size: int) -> Iterator[None]:
        """Wrap the warm-up run of a graph."""
        yield

    @contextmanager
    def capture(self, kind: str, size: int) -> Iterator[None]:
        """Wrap the capture of a graph."""
        yield

    def replayed(self, kind: str, size: int) -> None:
        """Note a replay."""

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the static buffers that captured taps write to."""
        return ()


class Probes:
    """Callbacks at the borders of the stages."""

    def __init__(self, taps: Taps | None = None) -> None:
        self.taps = taps or Taps()

    def on_plan(self, plan: StepPlan) -> None:
        """Handle a plan: pages are allocated, nothing has run."""

    def on_run(self, plan: StepPlan) -> None:
        """Handle the moment in which a device begins a step, or a host its results, that was planned before."""

    def on_known(self, batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor]) -> None:
        """Handle what only the device knows of the rows of a round: an observer may wait for it."""

    def on_round(self, batch: tuple[DecodeRow, ...], outputs: Mapping[str, Tensor]) -> None:
        """Handle a round that a device has committed, and its host has not seen."""

    def on_round_extended(self) -> None:
        """Handle the draft's extend over all rows of that round."""

    def on_discard(self, row: DecodeRow, context: int, num_drafts: int, committed: int) -> None:
        """Handle a round that a request ran after its end: `num_drafts` drafts, `committed` tokens on the device."""

    def on_buffer(self, use: BufferUse) -> None:
        """Handle the use of a buffer that host and device share."""

    def before_launch(self, kind: str) -> None:
        """Handle the start of a launch of this kind: "capture", or as in Launch."""

    def on_layer(self, layer_type: str, index: int) -> None:
        """Handle the start of a layer of the target: number `index` of those that attend, or of those that do not.

        Its type is config_fields.FULL or SLIDING, or LINEAR.
        """

    def on_launch(self, launch: Launch) -> None: ...

    def on_collective(self, entered: Issued) -> None:
        """Handle a collective that this rank is about to enter with the others of its world."""

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """Return the drafts to verify: the proposal itself unless something is forced."""
        return proposal

    def on_target_hidden_states(self, hidden_states: Tensor | None) -> None:
        """Handle the hidden states of a prefill or a verify that the draft gets."""

    def on_accept(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None: ...

    def on_control(self, before: ControllerState, after: ControllerState) -> None:
        """Handle an update of the step-count controller by this step's verify."""

    def on_commit_states(self, batch: tuple[DecodeRow, ...], steps: Tensor) -> None:
        """Handle the commit of recurrent states: each is that after row steps [R] of the verify, as states know it."""

    def on_commit(self, commits: tuple[Commit, ...]) -> None:
        """Handle commits, before the draft is extended."""

    def on_finish(self, commits: tuple[Commit, ...]) -> None:
        """Handle requests that end here: their states are plain, and still in their slots."""

    def on_extend(self, commits: tuple[Commit, ...]) -> None:
        """Handle the draft's extend over unfinished requests."""

    def on_release(self, req_row: int, pages: tuple[int, ...], state_slot: int) -> None:
        """Handle the release of a finished request's row, pages and state slot (0: none)."""

    def on_evict(self, pages: tuple[int, ...], checkpoints: tuple[int, ...]) -> None:
        """Handle pages that were evicted, and slots of the checkpoints that they had."""

    def on_install(self, rows: tuple[PrefillRow, ...]) -> None:
        """Handle transferred requests, once everything that they need is in place."""

    def on_keep(self, kept: tuple[KeptState, ...]) -> None:
        """Handle states that were copied for other requests."""

    def on_drop(self, pages: tuple[int, ...]) -> None:
        """Handle pages that requests gave back which go on."""

    def on_step(self, plan: StepPlan) -> None: ...
