"""The step-count controllers by definition: pure functions of what was accepted (S-ADAPT-1, -7).

A row of a batch is (K, correct_len): the drafts that it verified and how many were right, uncut by any limit.
Everything is IEEE double in just this order of operations, so that an engine can be held to the last bit.
"""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch, AdaptiveSlot
from draftproof.properties.values.delays import lag
from draftproof.properties.values.observed import StepsInForce
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation

Row = tuple[int, int]
Controller = Adaptive | AdaptiveByBatch


class Control(NamedTuple):
    """The steps in force, how many verifies they follow, and the average of accepted drafts; of a slot its own."""

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


def start_slot(adaptive: AdaptiveByBatch, slot: AdaptiveSlot) -> Control:
    """Before anything was verified in a slot: the initial steps if they are a candidate, or else the middle one."""
    candidates = sorted(set(slot.candidates))
    steps = adaptive.initial if adaptive.initial in candidates else candidates[len(candidates) // 2]
    return Control(steps, 0, float(steps - 1))


def update_slot(adaptive: AdaptiveByBatch, slot: AdaptiveSlot, control: Control, batch: Iterable[Row]) -> Control:
    """After the verify of a batch of the slot. Without steps in force it counts, so that they are tried again."""
    accepted = [correct for drafts, correct in batch if drafts >= 1]
    average = control.average
    if control.steps:
        if not accepted:
            return control
        average = (1 - adaptive.alpha) * average + adaptive.alpha * (sum(accepted) / len(accepted))
    verifies = control.verifies + 1
    if verifies <= adaptive.warmup or (verifies - adaptive.warmup) % adaptive.interval:
        return Control(control.steps, verifies, average)
    if control.steps:
        return Control(_moved_in_slot(slot, control.steps, average), verifies, average)
    probed = min((count for count in slot.candidates if count > 0), default=0)
    return Control(probed, verifies, float(probed - 1) if probed and average < 0 else average)


def _moved_in_slot(slot: AdaptiveSlot, steps: int, average: float) -> int:
    """Down as far as the average asks for; only where it asks for nothing, up; and no higher than the ceiling.

    The ceiling holds back nothing that goes up.
    """
    candidates = sorted(set(slot.candidates))
    place = start = candidates.index(steps)
    while place > 0 and average <= (candidates[place - 1] - 0.5 if candidates[place - 1] else 0.5) + slot.down:
        place -= 1
    while start <= place < len(candidates) - 1 and average > candidates[place] - 0.5 + slot.up:
        place += 1
    if slot.ceiling > 0 and place <= start:
        ceiling = max(1, math.ceil(average * slot.ceiling))
        while place > 0 and candidates[place] > ceiling:
            place -= 1
    return candidates[place]


def slot_of(adaptive: Controller, rows: int) -> int:
    """Return the slot for a batch of this many rows: the last one that begins at or below it, or else the first one."""
    if isinstance(adaptive, Adaptive):
        return 0
    rows = min((size for size in adaptive.rounding if size >= rows), default=rows)
    return max(0, bisect.bisect_right([slot.batch for slot in adaptive.slots], rows) - 1)


def begin(adaptive: Controller) -> tuple[Control, ...]:
    """Every slot before anything was verified; a controller of one list is a single slot."""
    if isinstance(adaptive, Adaptive):
        return (start(adaptive),)
    return tuple(start_slot(adaptive, slot) for slot in adaptive.slots)


def after(adaptive: Controller, controls: tuple[Control, ...], batch: Sequence[Row]) -> tuple[Control, ...]:
    """Every slot after the verify of a batch, which changes its own."""
    if isinstance(adaptive, Adaptive):
        return (update(adaptive, controls[0], batch),)
    own = slot_of(adaptive, len(batch))
    new = update_slot(adaptive, adaptive.slots[own], controls[own], batch)
    return (*controls[:own], new, *controls[own + 1 :])


def steps_in_force(
    scenario: Scenario,
    batches: Iterable[Sequence[Row]],
    at: Sequence[int] | None = None,
    waited: Collection[int] = (),
) -> list[Control]:
    """For each decode batch of a run, in order: its steps in force and the verifies before it, the average after it.

    Without a controller the scenario's steps are in force throughout. `at` are the engine steps of the batches, without
    gaps if it is missing: with an overlap the verify of a step may be unknown yet when the next one is planned
    (S-OVERLAP-6), but not of steps that are `waited` for (S-OVERLAP-10).
    """
    batches = list(batches)
    if scenario.adaptive_steps is None:
        return [Control(scenario.steps, 0, float(scenario.steps - 1)) for _ in batches]
    at = range(len(batches)) if at is None else at
    told, controls = [], [begin(scenario.adaptive_steps)]
    for number, (step, batch) in enumerate(zip(at, batches, strict=True)):
        own, before = slot_of(scenario.adaptive_steps, len(batch)), controls[-1]
        # The batch before, if there was one in the step before, and its results came a step late.
        last = at[number - 1] if number else -1
        delay = 0 if last in waited else lag(scenario.schedule.overlap, last)
        unknown = int(number > 0 and last + delay >= step)
        controls.append(after(scenario.adaptive_steps, before, batch))
        planned = controls[number - unknown]
        told.append(Control(planned[own].steps, before[own].verifies, controls[-1][own].average))
    return told


def observations(
    scenario: Scenario,
    rows: Mapping[tuple[int, int], tuple[int, int]],
    correct: Mapping[tuple[int, int], int],
    waited: Collection[int] = (),
) -> Iterator[Observation]:
    """Yield the controller's observations of a trace of the scenario; none without a controller.

    `rows` and `correct` go by (request, round) of decode: `rows` has the engine step and K, `correct` has correct_len.
    """
    if scenario.adaptive_steps is None:
        return
    batches: dict[int, list[Row]] = {}
    for place, (step, drafts) in rows.items():
        # A round that is discarded counts as one without drafts.
        is_discarded = bool(scenario.schedule.overlap) and place not in correct
        batches.setdefault(step, []).append((0 if is_discarded else drafts, correct.get(place, 0)))
    steps = sorted(batches)
    controls = steps_in_force(scenario, [batches[step] for step in steps], steps, waited)
    for step, control in zip(steps, controls, strict=True):
        yield Observation("adaptive_steps.steps", Key(-1, step), StepsInForce(control.steps, control.verifies))
        yield Observation("adaptive_steps.average", Key(-1, step), struct.pack("<d", control.average))
