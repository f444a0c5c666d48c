"""The seam for those who watch or steer an engine: everything here does nothing unless it is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from draftproof.engine.adaptive import ControllerState
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, Launch, Proposal, StepPlan


class Taps:
    """Taps that are off: nothing of them is in a graph."""

    def record(self, name: str, tensor: torch.Tensor, step: int = -1) -> None:
        """Called with an intermediate tensor of the launch in hand."""

    def record_margin(self, name: str, logits: torch.Tensor, step: int = -1) -> None:
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

    def buffers(self) -> tuple[torch.Tensor, ...]:
        """Static buffers that captured taps write to."""
        return ()


class Probes:
    """Callbacks at the borders of the stages."""

    def __init__(self, taps: Taps | None = None) -> None:
        self.taps = taps or Taps()

    def planned(self, plan: StepPlan) -> None:
        """Pages are allocated, nothing has run."""

    def before_launch(self, kind: str) -> None:
        """A launch of this kind comes next: of a graph, "capture", or what an eager launch is called in Launch."""

    def routed(self, layer_type: str) -> None:
        """The next layer of the target runs, as a layer of this type (config_fields.FULL or LINEAR)."""

    def launched(self, launch: Launch) -> None: ...

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """The drafts to verify; the proposal itself unless something is forced."""
        return proposal

    def fed(self, hidden: torch.Tensor | None) -> None:
        """What the draft is handed over of the target's hidden states, of a prefill or a verify."""

    def accepted(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None: ...

    def controlled(self, before: ControllerState, after: ControllerState) -> None:
        """The step-count controller has heard of this step's verify."""

    def committed(self, commits: tuple[Commit, ...]) -> None:
        """After the commit, before the draft is extended."""

    def handed_over(self, commits: tuple[Commit, ...]) -> None:
        """The states of requests that end here are plain, and still in their slots."""

    def extended(self, commits: tuple[Commit, ...]) -> None:
        """After the draft's extend over the requests that go on."""

    def released(self, row: int, pages: tuple[int, ...], state: int) -> None:
        """A finished request's row, pages and state slot (0: none) were given back."""

    def stepped(self, plan: StepPlan) -> None: ...
