"""The requests of one run as SGLang serves them, and each of its launches with what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftproof.properties.values.scenario import Request, Scenario
from draftproof.properties.values.script import RequestScript, Script, forced
from draftproof.subjects.sglang.live.taps import TappedForward


@dataclass
class ServedRequest:
    """One request. `round` is the last that was launched (-1: prefill goes on), `emitted` how many tokens it has.

    `table` are the slots that its prompt's tokens were written to, as far as they ran.
    """

    index: int
    request: Request
    script: RequestScript
    budget: int
    round: int = -1
    chunks: int = 0
    emitted: int = 0
    done: bool = False
    table: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def name(self) -> str:
        """What SGLang calls it."""
        return str(self.index)

    def forced(self, context: int, steps: int) -> tuple[int, ...] | None:
        """Return what the round that was launched last is to verify, of a request with so long a context."""
        return forced(self.script, self.round, context + 1 - len(self.request.prompt), steps)


def served(scenario: Scenario, script: Script) -> list[ServedRequest]:
    """Return every request of a scenario, before it is served (S-LIMIT-2, S-LIMIT-3)."""
    both = zip(scenario.requests, script.requests, strict=True)
    most = scenario.memory.max_len
    return [
        ServedRequest(index, request, of, min(request.budget, most - len(request.prompt)))
        for index, (request, of) in enumerate(both)
    ]


@dataclass(eq=False)
class BatchedRow:
    """One request in a launch: `count` tokens of its prompt from position `first` on, or the rows of a round.

    `is_last` is false for chunks before the prompt's last. `accepted` is what acceptance found, uncut; `slots` are the
    request's, by position, `kept` how many of the positions from `first` on were committed, `length` the context length
    that SGLang has behind the launch, where this release tells it. `proposed` are the draft's own tokens. `table` are
    the slots that were written to; of a prompt they are `taken` at each launch, on the device.
    """

    one: ServedRequest
    round: int
    chunk: int
    first: int
    count: int
    is_last: bool
    req_pool_idx: int
    was_over: bool = False
    ended: bool = False
    length: int | None = None
    proposed: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    emitted: tuple[int, ...] = ()
    slots: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    taken: Any = None

    @property
    def is_prefill(self) -> bool:
        return self.round == 0

    @property
    def kept(self) -> int:
        return self.count if self.is_prefill else len(self.accepted)


@dataclass(eq=False)
class RanBatch:
    """A batch that SGLang ran: its rows in their order, in which step of the loop, and the forwards that it took.

    Of a hybrid's linear layers `states` [B, N] were committed by it, by layer; `intermediate` [B, W, N] are those after
    each verify row, of which `step_indices` [B] says the ones to commit.
    """

    rows: list[BatchedRow]
    step: int
    is_prefill: bool
    forwards: list[TappedForward] = field(default_factory=list)
    states: dict[int, np.ndarray] = field(default_factory=dict)
    intermediate: dict[int, np.ndarray] = field(default_factory=dict)
    step_indices: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def forward(self, *, is_draft: bool, mode: str) -> TappedForward | None:
        """Return the first forward of this kind, in a mode whose name begins so."""
        return next((one for one in self.forwards if one.is_draft == is_draft and one.mode.startswith(mode)), None)
