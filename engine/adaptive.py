"""How many drafts a round may have, as a pure function of how many were accepted before.

The controller keeps an exponential moving average of accepted drafts. It leaves q for the next lower candidate p when
the average is at most p - 0.5 + down, and q for the next higher one when the average is above q - 0.5 + up. All
arithmetic is in doubles and in the order written here, so that another implementation of the same definition
(docs/semantics/adaptive-steps.md) decides the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct


@dataclass(frozen=True)
class AdaptiveConfig:
    """Settings of the controller.

    `initial` is in force first and is a candidate even if `candidates` lacks it. `alpha` weighs the newest round; a
    change is considered every `interval` rounds after `warmup` rounds; `down` and `up` move the two thresholds.
    """

    initial: int
    candidates: tuple[int, ...] = (1, 3, 7)
    alpha: float = 0.2
    interval: int = 5
    warmup: int = 10
    down: float = -0.25
    up: float = 0.0

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step count that may be in force: sorted, unique, the initial one among them."""
        return tuple(sorted({self.initial, *self.candidates}))


class ControllerState(Struct, frozen=True):
    """`steps` are in force; `average` is the mean of accepted drafts after `count` verified rounds."""

    steps: int
    average: float
    count: int


def start(config: AdaptiveConfig) -> ControllerState:
    """Return the state before the first round: as if one draft of each round had been wrong."""
    return ControllerState(config.initial, float(config.initial - 1), 0)


def advance(
    config: AdaptiveConfig, state: ControllerState, num_drafts: Sequence[int], correct_len: Sequence[int]
) -> ControllerState:
    """Return the state after one verify: row r had num_drafts[r] drafts, and correct_len[r] of them were right.

    Rows without drafts do not count; a round of only such rows changes nothing.
    """
    counted = [correct for count, correct in zip(num_drafts, correct_len, strict=True) if count >= 1]
    if not counted:
        return state
    mean = sum(counted) / len(counted)
    average = (1 - config.alpha) * state.average + config.alpha * mean
    count = state.count + 1
    due = count > config.warmup and (count - config.warmup) % config.interval == 0
    return ControllerState(_chosen(config, state.steps, average) if due else state.steps, average, count)


def _chosen(config: AdaptiveConfig, current: int, average: float) -> int:
    """Return the step count for an average: down as far as it goes, then up as far as it goes."""
    steps = config.steps
    i = steps.index(current)
    while i > 0 and average <= steps[i - 1] - 0.5 + config.down:
        i -= 1
    while i < len(steps) - 1 and average > steps[i] - 0.5 + config.up:
        i += 1
    return steps[i]
