"""The settings of both controllers, as SGLang's --speculative-adaptive-config has them.

Source: sgl-project/sglang, adaptive_spec_params.py, up to release 0.5.12 and after it (#24055).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig, SlotConfig
from draftproof.properties.lib.errors import DraftproofError

MAX_STEPS = 64
MAX_HYSTERESIS = 64.0
MAX_CEILING = 64.0


class AdaptiveError(DraftproofError, ValueError):
    """An adaptive config that cannot be used: names the file, the field, its value, and what is expected."""


def read_adaptive_config(path: str | Path, initial: int) -> AdaptiveConfig | BatchAdaptiveConfig:
    """Read a JSON object with any of the fields of `_LIST`, or with slots. Raises AdaptiveError.

    A slot is a field named by the smallest batch of its range ("8"), with an object that has `candidate_steps`. Fields
    beside the slots hold for each slot that does not say otherwise, except `candidate_steps`, which is for releases
    without slots. The sizes that batches are rounded up to are those of the graphs: `rounding` is empty.
    """
    values = _read_object(Path(path))
    entries = {name: value for name, value in values.items() if name.isascii() and name.isdigit()}
    _check_initial(path, initial, 0 if entries else 1)
    if not entries:
        return _one_list(path, initial, _checked(f"{path}: ", values, _LIST))
    shared = {name: value for name, value in values.items() if name not in entries}
    given = _checked(f"{path}: ", shared, _SHARED)
    given.pop("candidates", None)
    slots: dict[int, dict[str, Any]] = {}
    for name, entry in entries.items():
        batch, where = int(name), f"{path}: slot {name}: "
        if batch in slots or batch < 1:
            raise AdaptiveError(f"{path}: invalid slot {name}: expected batch sizes from 1 on, each once")
        if not isinstance(entry, dict) or "candidate_steps" not in entry:
            raise AdaptiveError(f"{where}invalid value {_shown(entry)}: expected an object with candidate_steps")
        slots[batch] = given | _checked(where, entry, _SLOT)
    return _by_batch(path, initial, slots)


def _check_initial(path: str | Path, initial: int, least: int) -> None:
    if not _integer(least, MAX_STEPS)(initial):
        raise AdaptiveError(
            f"{path}: invalid initial step count {initial!r}: expected an integer {least} .. {MAX_STEPS}"
        )


def _one_list(path: str | Path, initial: int, given: dict[str, Any]) -> AdaptiveConfig:
    config = AdaptiveConfig(initial, **given)
    if len(config.steps) < 2:
        raise AdaptiveError(
            f"{path}: invalid candidate_steps {list(config.steps)}: expected a step count beside {initial}"
        )
    return config


def _by_batch(path: str | Path, initial: int, slots: Mapping[int, dict[str, Any]]) -> BatchAdaptiveConfig:
    """Return the settings of all slots; those that the controller has once must be the same in each."""
    once: dict[str, Any] = {}
    for attribute, name in (("alpha", "ema_alpha"), ("interval", "update_interval"), ("warmup", "warmup_batches")):
        found = {slot.pop(attribute, None) for slot in slots.values()}
        if len(found) > 1:
            raise AdaptiveError(f"{path}: invalid {name}: expected one value for all slots")
        value = found.pop()
        if value is not None:
            once[attribute] = value
    return BatchAdaptiveConfig(initial, tuple(SlotConfig(batch, **slots[batch]) for batch in sorted(slots)), **once)


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


def _steps(least: int) -> _Field:
    def fits(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(map(_integer(least, MAX_STEPS), value))

    allowed = f"a list of one or more integers {least} .. {MAX_STEPS}"
    return _Field("candidates", fits, allowed, lambda value: tuple(sorted({*value})))


_HYSTERESIS = _number(lambda value: -MAX_HYSTERESIS <= value <= MAX_HYSTERESIS)
_HYSTERESIS_ALLOWED = f"a number {-MAX_HYSTERESIS} .. {MAX_HYSTERESIS}"
_COMMON = {
    "ema_alpha": _Field("alpha", _number(lambda value: 0 < value <= 1), "a number above 0, at most 1", float),
    "update_interval": _Field("interval", _integer(1), "an integer, 1 or more", int),
    "warmup_batches": _Field("warmup", _integer(0), "an integer, 0 or more", int),
    "down_hysteresis": _Field("down", _HYSTERESIS, _HYSTERESIS_ALLOWED, float),
    "up_hysteresis": _Field("up", _HYSTERESIS, _HYSTERESIS_ALLOWED, float),
}
_CEILING = _Field(
    "ceiling", _number(lambda value: 0 <= value <= MAX_CEILING), f"a number 0 .. {MAX_CEILING} (0: none)", float
)
_STRATEGY = _Field("", lambda value: value == "ema", '"ema"', str)
_LIST = {"candidate_steps": _steps(1), **_COMMON}
_SLOT = {"candidate_steps": _steps(0), **_COMMON, "ceiling_coeff": _CEILING}
_SHARED = {**_SLOT, "strategy": _STRATEGY}


def _checked(where: str, values: Mapping[str, Any], fields: Mapping[str, _Field]) -> dict[str, Any]:
    """Return attributes and values of the fields that are given. Raises AdaptiveError for one that is not allowed."""
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise AdaptiveError(f"{where}invalid field {name} = {_shown(value)}: expected one of {', '.join(fields)}")
        field = fields[name]
        if not field.fits(value):
            raise AdaptiveError(f"{where}invalid {name} {_shown(value)}: expected {field.allowed}")
        if field.attribute:
            given[field.attribute] = field.convert(value)
    return given


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise AdaptiveError(f"invalid {path}: expected a JSON file, but {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise AdaptiveError(f"invalid {path}: expected a JSON object, but {error}") from error
    if not isinstance(value, dict):
        raise AdaptiveError(
            f"invalid {path} {_shown(value)}: expected a JSON object with fields {', '.join(_LIST)}, or with slots"
        )
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
