"""The recurrent states of a target with linear layers, after each round."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from draftproof.engine.stages import Commit, DecodeRow, KeptState
from draftproof.engine.states.base import StateCache
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.subject.observations import ObservationLog
from draftproof.engine.subject.states import after_rows, base, checkpoints, copies, logical, pending_inputs, stored
from draftproof.properties.values.trace import Key


class StateRecorder:
    """Reports commit.state and its parts; `layers` are the linear ones, `interval` the tokens between checkpoints."""

    def __init__(self, log: ObservationLog, states: StateCache, layers: Sequence[int], interval: int) -> None:
        self._log, self._states, self._layers, self._interval = log, states, layers, interval

    def report_step_indices(self, batch: tuple[DecodeRow, ...], steps: Tensor) -> None:
        """Report after which row of a verify each state was kept."""
        for row, step in zip(batch, steps.tolist(), strict=True):
            self._log.add("commit.step_index", Key(row.request.id, row.round), step)

    def report_committed(self, commits: tuple[Commit, ...]) -> None:
        """Report the logical states after a round, what they are made of, and the checkpoints."""
        self._log.add_states("commit.state", commits, self._layers, logical(self._states, commits))
        if isinstance(self._states, Replay):
            self._pending("commit.pending", commits)
            self._log.add_states("commit.base", commits, self._layers, base(self._states, commits))
        completed = tuple(commit for commit in commits if self._interval and commit.seq_len >= self._interval)
        if completed:
            self._log.add_states("commit.checkpoint", completed, self._layers, checkpoints(self._states, completed))

    def report_kept(self, kept: tuple[KeptState, ...], step: int) -> None:
        """Report the states that a prefix cache was given in a step."""
        for layer, of_layer in zip(self._layers, copies(self._states, kept), strict=True):
            for one, state in zip(kept, of_layer, strict=True):
                self._log.add("commit.cached", Key(one.request, 0, step, layer, one.tokens), state)

    def report_installed(self, commit: Commit) -> None:
        """Report the states that were transferred with a request."""
        self._log.add_states("disaggregation.state", (commit,), self._layers, logical(self._states, (commit,)))

    def report_finished(self, commits: tuple[Commit, ...]) -> None:
        """Report the states of requests that end."""
        self._log.add_states("commit.final", commits, self._layers, stored(self._states, commits))
        self._pending("commit.unfolded", commits)

    def report_intermediate(self, batch: tuple[DecodeRow, ...]) -> None:
        """Report the states after every row of a verify, where they are kept."""
        if not isinstance(self._states, Snapshot):
            return
        for order, layer in enumerate(self._layers):
            for place, row in enumerate(batch):
                for step, state in enumerate(after_rows(self._states, order, place, row.num_drafts + 1)):
                    self._log.add("commit.intermediate", Key(row.request.id, row.round, layer=layer, row=step), state)

    def _pending(self, channel: str, commits: tuple[Commit, ...]) -> None:
        if isinstance(self._states, Replay):
            for commit, pending in zip(commits, pending_inputs(self._states, commits), strict=True):
                self._log.add(channel, Key(commit.request, commit.round), pending)
