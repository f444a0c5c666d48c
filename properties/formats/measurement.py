"""What one run of a benchmark measured, a line of a history file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from draftproof.properties.lib.base import Value, explain
from draftproof.properties.lib.errors import DraftproofError

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Measurement(Value, frozen=True, kw_only=True):
    """Seconds that each measure of one run took.

    `label` says what was measured, a commit unless it was given; `at` is the time in UTC. Runs with the same
    `benchmark`, `options`, `device` and `machine` can be compared.
    """

    benchmark: str
    label: str
    at: str
    device: str
    machine: str
    versions: dict[str, str]
    options: tuple[str, ...] = ()
    seconds: dict[str, Seconds]


class MeasurementError(DraftproofError, ValueError):
    """A line of a history file is no measurement; the message names field, value and what is expected."""


def append(path: Path, one: Measurement) -> None:
    """Add a line to a history file, which is made if it is missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        # One write: two benchmarks at a time do not mix their lines.
        file.write(msgspec.json.encode(one) + b"\n")


def history(path: Path) -> list[Measurement]:
    """Return the measurements of a history file, oldest first. Raises OSError and MeasurementError."""
    return list(_measurements(path.read_bytes().splitlines()))


def _measurements(lines: list[bytes]) -> Iterator[Measurement]:
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=Measurement)
        except msgspec.ValidationError as error:
            field, value, expected = explain(str(error), msgspec.json.decode(line))
            raise MeasurementError(f"line {number}: {field or 'the line'} is {value!r}, expected {expected}") from None
        except msgspec.DecodeError as error:
            raise MeasurementError(f"line {number} is no JSON ({error}), expected a measurement") from None
