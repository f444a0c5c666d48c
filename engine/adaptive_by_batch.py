"""How many drafts a round may have, by the size of its batch: the controller of SGLang from release 0.5.13 on.

A table has a slot for every range of batch sizes, with step counts and an average of its own. Zero steps are a choice
like another: batches then run without drafts, and after every interval the smallest number of drafts is tried again.
Arithmetic is in doubles, in the order written here (docs/semantics/adaptive-steps.md, S-ADAPT-7).
Source: sgl-project/sglang, adaptive_spec_params.py (#24055 and later).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from draftproof.engine.adaptive import ControllerState


@dataclass(frozen=True)
class SlotConfig:
    """Step counts for batches of `batch` rows and more. `down` and `up` move thresholds, `ceiling` 0 means none."""

    batch: int
    candidates: tuple[int, ...]
    down: float = -0.25
    up: float = 0.0
    ceiling: float = 0.0

    @property
    def steps(self) -> tuple[int, ...]:
        """The candidates, sorted and unique."""
        return tuple(sorted(set(self.candidates)))


@dataclass(frozen=True)
class BatchAdaptiveConfig:
    """Settings of the controller; slots ascend. Numbers of rows are rounded up to one of `rounding`, if one is enough.

    A slot begins with `initial` where that is one of its step counts, and otherwise with its middle one.
    """

    initial: int
    slots: tuple[SlotConfig, ...]
    alpha: float = 0.2
    interval: int = 5
    warmup: int = 10
    rounding: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step count that may be in force: sorted and unique."""
        return tuple(sorted({steps for slot in self.slots for steps in slot.steps}))


def start_slots(config: BatchAdaptiveConfig) -> list[ControllerState]:
    """Return the state of every slot before the first round."""
    states = []
    for slot in config.slots:
        middle = slot.steps[len(slot.steps) // 2]
        steps = config.initial if config.initial in slot.steps else middle
        states.append(ControllerState(steps, float(steps - 1), 0))
    return states


def slot_index(config: BatchAdaptiveConfig, num_rows: int) -> int:
    """Return the slot of a batch: the highest that starts at or below its rounded size, else the lowest."""
    rounded = next((size for size in config.rounding if size >= num_rows), num_rows)
    return max((i for i, slot in enumerate(config.slots) if slot.batch <= rounded), default=0)


def advance_slot(
    config: BatchAdaptiveConfig,
    slot: SlotConfig,
    state: ControllerState,
    num_drafts: Sequence[int],
    correct_len: Sequence[int],
) -> ControllerState:
    """Return the slot's state after the verify of one of its batches, as `adaptive.advance` for one without slots.

    While zero steps are in force, batches count but say nothing of the draft.
    """
    counted = [correct for count, correct in zip(num_drafts, correct_len, strict=True) if count >= 1]
    if state.steps > 0 and not counted:
        return state
    if state.steps > 0:
        mean = sum(counted) / len(counted)
        state = replace(state, average=(1 - config.alpha) * state.average + config.alpha * mean)
    state = replace(state, count=state.count + 1)
    past = state.count - config.warmup
    if past <= 0 or past % config.interval != 0:
        return state
    return replace(state, steps=_chosen(slot, state)) if state.steps > 0 else _probed(slot, state)


def _probed(slot: SlotConfig, state: ControllerState) -> ControllerState:
    """Return the state with the smallest number of drafts in force, and with its average if there is none yet."""
    steps = slot.steps[min(1, len(slot.steps) - 1)]
    average = float(steps - 1) if steps > 0 and state.average < 0 else state.average
    return replace(state, steps=steps, average=average)


def _chosen(slot: SlotConfig, state: ControllerState) -> int:
    """Return the step count for an average: down as far as it goes, or else up; at most the ceiling unless it rises."""
    steps, average = slot.steps, state.average
    old = i = steps.index(state.steps)
    while i > 0 and average <= _floor(steps[i - 1]) + slot.down:
        i -= 1
    if i == old:
        while i < len(steps) - 1 and average > steps[i] - 0.5 + slot.up:
            i += 1
    ceiling = max(1, math.ceil(average * slot.ceiling))
    if slot.ceiling > 0 and i <= old:
        while i > 0 and steps[i] > ceiling:
            i -= 1
    return steps[i]


def _floor(steps: int) -> float:
    """Return the average at which a step count is enough: a half less, and for none a half."""
    return steps - 0.5 if steps > 0 else 0.5
