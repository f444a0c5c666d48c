"""How many drafts a round may have, as a pure function of how many were accepted before.

The controller keeps an exponential moving average of accepted drafts. It leaves q for the next lower candidate p when
the average is at most p - 0.5 + down, and q for the next higher one when the average is above q - 0.5 + up. All
arithmetic is in doubles and in the order written here, so that another implementation of the same definition
(docs/semantics.md, "Adaptive steps") decides the same, bit for bit.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import DraftproofError

MAX_STEPS = 64
MAX_HYSTERESIS = 64.0


class AdaptiveError(DraftproofError, ValueError):
    """An adaptive config that cannot be used: names the file, the field, its value, and what is expected."""


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


@dataclass(frozen=True)
class ControllerState:
    """`steps` are in force; `average` is that of accepted drafts after `count` verified rounds."""

    steps: int
    average: float
    count: int


def effective_max_speculative_num_draft_tokens(steps: Sequence[int]) -> int:
    """Return the largest verify width that may ever run at these step counts; every pool and buffer is sized by it."""
    return max(steps) + 1


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


def read_adaptive_config(path: str | Path, initial: int) -> AdaptiveConfig:
    """Read a JSON object with any of the fields of `_FIELDS`, as SGLang names them. Raises AdaptiveError."""
    if not _integer(1, MAX_STEPS)(initial):
        raise AdaptiveError(f"{path}: invalid initial step count {initial!r}: expected an integer 1 .. {MAX_STEPS}")
    values = _read_object(Path(path))
    for name, value in values.items():
        if name not in _FIELDS:
            raise AdaptiveError(f"{path}: invalid field {name} = {_shown(value)}: expected one of {', '.join(_FIELDS)}")
        field = _FIELDS[name]
        if not field.fits(value):
            raise AdaptiveError(f"{path}: invalid {name} {_shown(value)}: expected {field.allowed}")
    given = {_FIELDS[name].attribute: _FIELDS[name].convert(value) for name, value in values.items()}
    config = AdaptiveConfig(initial, **given)
    if len(config.steps) < 2:
        raise AdaptiveError(
            f"{path}: invalid candidate_steps {list(config.steps)}: expected a step count beside {initial}"
        )
    return config


@dataclass(frozen=True)
class _Field:
    """A field of the file: the attribute it sets, which JSON values fit, and how they are converted."""

    attribute: str
    fits: Callable[[Any], bool]
    allowed: str
    convert: Callable[[Any], Any]


def _integer(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    # A JSON true is an int to Python.
    return lambda value: type(value) is int and low <= value <= high


def _number(fits: Callable[[float], bool]) -> Callable[[Any], bool]:
    # Integers too large for a double, NaN and infinities fail the comparison; none of them reaches float().
    return lambda value: type(value) in (int, float) and fits(value)


def _steps(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_integer(1, MAX_STEPS), value))


_HYSTERESIS = _number(lambda value: -MAX_HYSTERESIS <= value <= MAX_HYSTERESIS)
_HYSTERESIS_ALLOWED = f"a number {-MAX_HYSTERESIS} .. {MAX_HYSTERESIS}"
_FIELDS = {
    "candidate_steps": _Field(
        "candidates", _steps, f"a list of one or more integers 1 .. {MAX_STEPS}", lambda value: tuple(sorted({*value}))
    ),
    "ema_alpha": _Field("alpha", _number(lambda value: 0 < value <= 1), "a number above 0, at most 1", float),
    "update_interval": _Field("interval", _integer(1), "an integer, 1 or more", int),
    "warmup_batches": _Field("warmup", _integer(0), "an integer, 0 or more", int),
    "down_hysteresis": _Field("down", _HYSTERESIS, _HYSTERESIS_ALLOWED, float),
    "up_hysteresis": _Field("up", _HYSTERESIS, _HYSTERESIS_ALLOWED, float),
}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise AdaptiveError(f"invalid {path}: expected a JSON file, but {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise AdaptiveError(f"invalid {path}: expected a JSON object, but {error}") from error
    if not isinstance(value, dict):
        raise AdaptiveError(f"invalid {path} {_shown(value)}: expected a JSON object with fields {', '.join(_FIELDS)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValueError(f"field {name} is given {times} times")
    return dict(pairs)


def _shown(value: Any) -> str:
    """Return the value as JSON, cut to a line."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
