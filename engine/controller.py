"""The step-count controllers as the engine drives them: steps before a batch, an update after its verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from draftproof.engine.adaptive import AdaptiveConfig, ControllerState, advance, start
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig, advance_slot, slot_index, start_slots


class Controller(Protocol):
    """What chooses the steps in force."""

    def steps(self, num_rows: int) -> int:
        """Return the most drafts that a row may have in a batch of this many rows."""
        ...

    def update(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> tuple[ControllerState, ControllerState]:
        """Take in the verify of a batch, row by row; return what was in force for it, and what is now."""
        ...


class ListController:
    """One list of candidates for batches of any size. A `Controller`."""

    def __init__(self, config: AdaptiveConfig) -> None:
        self._config, self._state = config, start(config)

    def steps(self, num_rows: int) -> int:
        """Return the steps in force, whatever the batch."""
        return self._state.steps

    def update(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> tuple[ControllerState, ControllerState]:
        """Advance the one state."""
        before = self._state
        self._state = advance(self._config, before, num_drafts, correct_len)
        return before, self._state


class BatchController:
    """A list of candidates for each range of batch sizes. A `Controller`."""

    def __init__(self, config: BatchAdaptiveConfig) -> None:
        self._config, self._states = config, start_slots(config)

    def steps(self, num_rows: int) -> int:
        """Return the steps in force in the slot of the batch."""
        return self._states[slot_index(self._config, num_rows)].steps

    def update(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> tuple[ControllerState, ControllerState]:
        """Advance the state of the slot of the batch."""
        index = slot_index(self._config, len(num_drafts))
        before = self._states[index]
        self._states[index] = advance_slot(self._config, self._config.slots[index], before, num_drafts, correct_len)
        return before, self._states[index]


def controller(config: AdaptiveConfig | BatchAdaptiveConfig) -> Controller:
    """Return the controller of a config."""
    return ListController(config) if isinstance(config, AdaptiveConfig) else BatchController(config)
