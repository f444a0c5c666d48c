"""The seam for those who watch or steer an engine: everything here does nothing unless it is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from draftproof.engine.adaptive import ControllerState
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, Launch, Proposal, StepPlan


class Taps:
    """Taps that are off: nothing of them is in a graph."""

    def record(self, name: str, tensor: Tensor, step: int = -1) -> None:
        """Called with an intermediate tensor of the launch in hand."""

    def record_margin(self, name: str, logits: Tensor, step: int = -1) -> None:
        """Called with logits [.., V]; what is recorded is the margin of the highest to the second."""

    @contextmanager
    def warmup(self, kind: str, size: int) -> Iterator[None]:
        """Around the warm-up run of a graph."""
        yield

    @contextmanager
    def capture(self, kind: str, size: int) -> Iterator[None]:
        """Around the capture of a graph."""
        yield

    def replayed(self, kind: str, size: int) -> None:
        """After a replay."""

    def buffers(self) -> tuple[Tensor, ...]:
        """Static buffers that captured taps write to."""
        return ()


class Probes:
    """Callbacks at the borders of the stages."""

    def __init__(self, taps: Taps | None = None) -> None:
        self.taps = taps or Taps()

    def on_plan(self, plan: StepPlan) -> None:
        """Pages are allocated, nothing has run."""

    def before_launch(self, kind: str) -> None:
        """A launch of this kind comes next: of a graph, "capture", or what an eager launch is called in Launch."""

    def on_layer(self, layer_type: str) -> None:
        """The next layer of the target runs, as a layer of this type (config_fields.FULL or LINEAR)."""

    def on_launch(self, launch: Launch) -> None: ...

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """The drafts to verify; the proposal itself unless something is forced."""
        return proposal

    def on_target_hidden_states(self, hidden_states: Tensor | None) -> None:
        """What the draft is handed over of the target's hidden states, of a prefill or a verify."""

    def on_accept(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None: ...

    def on_control(self, before: ControllerState, after: ControllerState) -> None:
        """The step-count controller has heard of this step's verify."""

    def on_commit(self, commits: tuple[Commit, ...]) -> None:
        """After the commit, before the draft is extended."""

    def on_finish(self, commits: tuple[Commit, ...]) -> None:
        """The states of requests that end here are plain, and still in their slots."""

    def on_extend(self, commits: tuple[Commit, ...]) -> None:
        """After the draft's extend over the requests that go on."""

    def on_release(self, req_row: int, pages: tuple[int, ...], state_slot: int) -> None:
        """A finished request's row, pages and state slot (0: none) were given back."""

    def on_step(self, plan: StepPlan) -> None: ...
