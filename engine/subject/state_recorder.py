"""The recurrent states of a target with linear layers, after each round.

In a trace a state is the convolution's window, then the matrices of all value heads. `L` linear layers, `R` requests,
`C` conv width, `Q` channels, `U` value heads, `H` key size, `E` value size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from draftproof.engine.stages import Commit, DecodeRow, KeptState
from draftproof.engine.states.base import StateCache
from draftproof.engine.states.checkpoints import LogicalStates
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.subject.observations import ObservationLog, vectors
from draftproof.properties.values.observed import Vector
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
        self._add("commit.state", commits, self._states.logical_states(self._slots(commits)))
        if isinstance(self._states, Replay):
            self._pending("commit.pending", commits, self._states)
            self._add("commit.base", commits, self._states.base(self._slots(commits)))
        completed = tuple(commit for commit in commits if self._interval and commit.seq_len >= self._interval)
        if completed:
            self._add("commit.checkpoint", completed, self._states.checkpoints.of(self._slots(completed)))

    def report_kept(self, kept: tuple[KeptState, ...], step: int) -> None:
        """Report the states that a prefix cache was given in a step."""
        places = self._tensor([one.checkpoint for one in kept])
        for layer, of_layer in self._by_layer(self._states.checkpoints.at(places)):
            for one, state in zip(kept, of_layer, strict=True):
                self._log.add("commit.cached", Key(one.request, 0, step, layer, one.tokens), state)

    def report_installed(self, commit: Commit) -> None:
        """Report the states that were transferred with a request."""
        self._add("disaggregation.state", (commit,), self._states.logical_states(self._slots((commit,))))

    def report_finished(self, commits: tuple[Commit, ...]) -> None:
        """Report the pools of requests that end: the states, once nothing is pending."""
        slots = self._slots(commits)
        if isinstance(self._states, Replay):
            self._add("commit.final", commits, self._states.base(slots))
            self._pending("commit.unfolded", commits, self._states)
        else:
            self._add("commit.final", commits, self._states.logical_states(slots))

    def report_intermediate(self, batch: tuple[DecodeRow, ...]) -> None:
        """Report the states after every row of a verify, where they are kept."""
        if not isinstance(self._states, Snapshot):
            return
        conv, ssm = self._states.intermediate_conv, self._states.intermediate_ssm
        for order, layer in enumerate(self._layers):
            for place, row in enumerate(batch):
                count = row.num_drafts + 1
                for step, state in enumerate(_vectors(conv[order, place, :count], ssm[order, place, :count])):
                    self._log.add("commit.intermediate", Key(row.request.id, row.round, layer=layer, row=step), state)

    def _pending(self, channel: str, commits: tuple[Commit, ...], states: Replay) -> None:
        """Report how many inputs of each request are still to be folded in."""
        for commit, pending in zip(commits, states.cursor[self._slots(commits), 0].tolist(), strict=True):
            self._log.add(channel, Key(commit.request, commit.round), pending)

    def _add(self, channel: str, commits: tuple[Commit, ...], states: LogicalStates) -> None:
        for layer, of_layer in self._by_layer(states):
            for commit, state in zip(commits, of_layer, strict=True):
                self._log.add(channel, Key(commit.request, commit.round, layer=layer), state)

    def _by_layer(self, states: LogicalStates) -> Iterator[tuple[int, list[Vector]]]:
        """Yield each layer with the states of all requests, of conv [L, R, C-1, Q] and ssm [L, R, U, H, E]."""
        return zip(self._layers, map(_vectors, *states), strict=True)

    def _slots(self, commits: tuple[Commit, ...]) -> Tensor:
        return self._tensor([commit.state_slot for commit in commits])

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._states.ssm.device)


def _vectors(conv: Tensor, ssm: Tensor) -> list[Vector]:
    """Return the states of one layer, in the wider dtype of the two."""
    dtype = torch.promote_types(conv.dtype, ssm.dtype)
    return vectors(torch.cat([conv.flatten(1).to(dtype), ssm.flatten(1).to(dtype)], dim=1))
