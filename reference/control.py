"""The step-count controller by definition: a pure function of what was accepted (docs/semantics.md, S-ADAPT-1).

A row of a batch is (K, correct_len): the drafts that it verified and how many were right, uncut by any limit.
Everything is IEEE double in just this order of operations, so that an engine can be held to the last bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from draftproof.properties.values.observed import StepsInForce
from draftproof.properties.values.scenario import Adaptive, Scenario
from draftproof.properties.values.trace import Key, Observation

Row = tuple[int, int]


class Control(NamedTuple):
    """The steps in force, how many verifies with drafts they follow, and the average of accepted drafts."""

    steps: int
    verifies: int
    average: float


def start(adaptive: Adaptive) -> Control:
    """Before anything was verified: as if all drafts but one were accepted."""
    return Control(adaptive.initial, 0, float(adaptive.initial - 1))


def update(adaptive: Adaptive, control: Control, batch: Iterable[Row]) -> Control:
    """After the verify of a batch. One without any draft changes nothing."""
    accepted = [correct for drafts, correct in batch if drafts >= 1]
    if not accepted:
        return control
    average = (1 - adaptive.alpha) * control.average + adaptive.alpha * (sum(accepted) / len(accepted))
    verifies = control.verifies + 1
    due = verifies > adaptive.warmup and (verifies - adaptive.warmup) % adaptive.interval == 0
    return Control(_moved(adaptive, control.steps, average) if due else control.steps, verifies, average)


def _moved(adaptive: Adaptive, steps: int, average: float) -> int:
    """First down as far as the average asks for, then up again as far as it allows."""
    candidates = adaptive.steps
    place = candidates.index(steps)
    while place > 0 and average <= candidates[place - 1] - 0.5 + adaptive.down:
        place -= 1
    while place < len(candidates) - 1 and average > candidates[place] - 0.5 + adaptive.up:
        place += 1
    return candidates[place]


def steps_in_force(scenario: Scenario, batches: Iterable[Sequence[Row]]) -> list[Control]:
    """For each decode batch of a run, in order: the steps in force and the verifies before it, the average after it.

    Without a controller the scenario's steps are in force throughout.
    """
    if scenario.adaptive is None:
        return [Control(scenario.steps, 0, float(scenario.steps - 1)) for _ in batches]
    told, control = [], start(scenario.adaptive)
    for batch in batches:
        after = update(scenario.adaptive, control, batch)
        told.append(Control(control.steps, control.verifies, after.average))
        control = after
    return told


def observations(
    scenario: Scenario, rows: Mapping[tuple[int, int], tuple[int, int]], correct: Mapping[tuple[int, int], int]
) -> Iterator[Observation]:
    """What a trace of the scenario must say of the controller, by (request, round) of decode: `rows` has the engine
    step and K, `correct` has correct_len. Nothing without a controller."""
    if scenario.adaptive is None:
        return
    batches: dict[int, list[Row]] = {}
    for place, (step, drafts) in rows.items():
        batches.setdefault(step, []).append((drafts, correct.get(place, 0)))
    steps = sorted(batches)
    for step, control in zip(steps, steps_in_force(scenario, [batches[step] for step in steps]), strict=True):
        yield Observation("control.steps", Key(-1, step), StepsInForce(control.steps, control.verifies))
        yield Observation("control.average", Key(-1, step), struct.pack("<d", control.average))
