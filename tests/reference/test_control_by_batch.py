"""The controller by batch size: beside the engine's, beside exact fractions, and by hand."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import msgspec
import pytest

from draftproof.engine.controller import BatchController
from draftproof.engine.subject.build import config
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch, AdaptiveSlot
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.adaptive_steps import (
    Control,
    Row,
    after,
    begin,
    slot_of,
    start_slot,
    steps_in_force,
    update_slot,
)
from tests.reference.scenarios import request, scenario

CLOSE = Fraction(1, 10**9)
HALF = Fraction(1, 2)


def adapted(adaptive: AdaptiveByBatch) -> Scenario:
    return msgspec.structs.replace(scenario(request()), adaptive_steps=adaptive, steps=max(adaptive.steps))


def controller(rng: random.Random) -> AdaptiveByBatch:
    slots = tuple(
        AdaptiveSlot(
            batch=batch,
            candidates=tuple(rng.sample(range(8), rng.randint(1, 4))),
            down=rng.choice((-0.25, 0.0, 0.5, -1.0)),
            up=rng.choice((0.0, -0.25, 0.5, -1.5)),
            ceiling=rng.choice((0.0, 0.0, 0.5, 1.0, 1.5)),
        )
        for batch in sorted(rng.sample((1, 2, 3, 5), rng.randint(1, 3)))
    )
    rounding = rng.choice(((), (2,), (1, 4)))
    gains = {"alpha": rng.choice((0.5, 0.2, 1.0)), "interval": rng.randint(1, 3), "warmup": rng.randint(0, 3)}
    return AdaptiveByBatch(initial=rng.randint(1, 7), slots=slots, rounding=rounding, **gains)


def batches(rng: random.Random, steps_of: Callable[[int], int], see: Callable[[list[Row]], None], count: int) -> None:
    """Batches of one to six rows at the steps in force, in runs that accept alike; some rows have fewer drafts."""
    for _ in range(count):
        share, rows = rng.choice((0.0, 0.5, 1.0)), rng.randint(1, 6)
        for _ in range(rng.randint(1, 6)):
            drafts = [rng.choice((0, 1, steps_of(rows), steps_of(rows))) for _ in range(rows)]
            drafts = [min(count, steps_of(rows)) for count in drafts]
            see([(count, round(count * share)) for count in drafts])


def decision(slot: AdaptiveSlot, steps: int, average: Fraction) -> int:
    """Down to the nearest candidate whose lower neighbour does not call; else up to the nearest that holds."""
    candidates = sorted(set(slot.candidates))
    kept = {c for below, c in itertools.pairwise(candidates) if average > floor(below, slot)}
    new = max(c for c in kept | {candidates[0]} if c <= steps)
    if new == steps:
        held = {c for c in candidates if average <= c - HALF + Fraction(slot.up)}
        new = min(c for c in held | {candidates[-1]} if c >= steps)
    cap = max(1, math.ceil(average * Fraction(slot.ceiling)))
    if slot.ceiling and new <= steps:
        new = max([c for c in candidates if c <= min(new, cap)] or candidates[:1])
    return new


def floor(below: int, slot: AdaptiveSlot) -> Fraction:
    return (below - HALF if below else HALF) + Fraction(slot.down)


def close(slot: AdaptiveSlot, average: Fraction) -> bool:
    """Whether a rounding could turn any comparison."""
    edges = [floor(c, slot) for c in slot.candidates] + [c - HALF + Fraction(slot.up) for c in slot.candidates]
    capped = average * Fraction(slot.ceiling)
    return any(abs(average - edge) < CLOSE for edge in edges) or 0 < abs(capped - round(capped)) < CLOSE


class Compared:
    """One controller: the reference beside the engine, and beside averages in exact fractions."""

    def __init__(self, adaptive: AdaptiveByBatch, found: Counter[str]) -> None:
        self.adaptive_steps, self.controls, self.found = adaptive, begin(adaptive), found
        self.engine = BatchController(config(adapted(adaptive)).adaptive_steps)  # type: ignore[arg-type]
        self.exact = [Fraction(control.average) for control in self.controls]

    def steps(self, rows: int) -> int:
        steps = self.controls[slot_of(self.adaptive_steps, rows)].steps
        assert self.engine.steps(rows) == steps
        return steps

    def see(self, batch: list[Row]) -> None:
        own = slot_of(self.adaptive_steps, len(batch))
        before = self.controls[own]
        self.controls = after(self.adaptive_steps, self.controls, batch)
        old, new = self.engine.update([drafts for drafts, _ in batch], [right for _, right in batch])
        assert (old.steps, old.count, old.average) == before
        assert (new.steps, new.count, new.average) == self.controls[own]
        means = [right for drafts, right in batch if drafts]
        if before.steps and not means:
            assert self.controls[own] == before
            self.found["nothing drafted"] += 1
            return
        if before.steps:
            alpha = Fraction(self.adaptive_steps.alpha)
            self.exact[own] = (1 - alpha) * self.exact[own] + alpha * Fraction(sum(means), len(means))
        self.compare(own, before)

    def compare(self, own: int, before: Control) -> None:
        slot, now, past = (
            self.adaptive_steps.slots[own],
            self.controls[own],
            before.verifies + 1 - self.adaptive_steps.warmup,
        )
        wanted = before.steps
        if past > 0 and not past % self.adaptive_steps.interval:
            if before.steps and close(slot, self.exact[own]):
                self.found["too close to call"] += 1
                self.exact[own] = Fraction(now.average)
                return
            wanted = decision(slot, before.steps, self.exact[own]) if before.steps else self.probed(own)
        assert (now.steps, now.verifies) == (wanted, before.verifies + 1)
        assert abs(Fraction(now.average) - self.exact[own]) < Fraction(1, 10**12)
        self.found["up"] += 0 < before.steps < wanted
        self.found["down"] += wanted < before.steps
        self.found["to none"] += 0 == wanted < before.steps
        self.found["later slot"] += own > 0

    def probed(self, own: int) -> int:
        wanted = min([count for count in self.adaptive_steps.slots[own].candidates if count] or [0])
        self.found["probe"] += wanted > 0
        if wanted and self.exact[own] < 0:
            self.exact[own] = Fraction(wanted - 1)
            self.found["first probe"] += 1
        return wanted


def test_equals_exact_fractions_and_the_engine() -> None:
    found: Counter[str] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        compared = Compared(controller(rng), found)
        batches(rng, compared.steps, compared.see, 12)
    assert min(found.values()) >= 20, found


SLOT = AdaptiveSlot(batch=1, candidates=(0, 1, 3, 7), down=-0.25, up=0.0)
ONE = AdaptiveByBatch(initial=3, slots=(SLOT,), alpha=1.0, interval=1, warmup=0)


@pytest.mark.parametrize(
    ("steps", "right", "after_", "ceiling"),
    [
        (3, 0.25, 0, 0.0),  # at 1 - 0.5 - 0.25, and at 0.5 - 0.25 of none as well
        (3, 0.26, 3, 0.0),
        (1, 0.25, 0, 0.0),
        (1, 0.5, 1, 0.0),
        (1, 0.51, 3, 0.0),
        (1, 2.6, 7, 0.0),  # two at once
        (7, 2.25, 3, 0.0),
        (7, 2.26, 7, 0.0),
        (7, 2.26, 3, 1.0),  # the ceiling is 3
        (7, 3.1, 3, 1.0),  # ... is 4: of the candidates 3
        (3, 2.6, 7, 1.0),  # what rises is not held back
        (7, 2.6, 1, 0.5),  # ... is 2: of the candidates 1
        (3, 0.3, 1, 0.5),  # ... is 1, never less
    ],
)
def test_thresholds(steps: int, right: float, after_: int, ceiling: float) -> None:
    """With alpha = 1 the average is the last batch's mean; a hundred rows give it two digits."""
    slot = msgspec.structs.replace(SLOT, ceiling=ceiling)
    batch = [(100, round(right * 100))] + [(1, 0)] * 99
    assert update_slot(ONE, slot, Control(steps, 0, 0.0), batch) == Control(after_, 1, right)


def test_down_is_not_followed_by_up() -> None:
    """Where the thresholds cross, one update goes down only; that of one list would go up again."""
    slot = msgspec.structs.replace(SLOT, candidates=(1, 3, 7), down=1.0, up=-1.0)
    assert update_slot(ONE, slot, Control(3, 0, 0.0), [(3, 1)]).steps == 1


def test_none_is_probed_after_every_interval_and_its_average_stays() -> None:
    adaptive = msgspec.structs.replace(ONE, interval=2, slots=(msgspec.structs.replace(SLOT, candidates=(0, 2)),))
    told = steps_in_force(adapted(adaptive), [[(2, 0)], [(2, 0)], [(0, 0)], [(0, 0)], [(2, 2)], [(2, 2)], [(2, 2)]])
    assert [control.steps for control in told] == [2, 2, 0, 0, 2, 2, 2]
    assert [control.verifies for control in told] == list(range(7))
    assert [control.average for control in told] == [0, 0, 0, 0, 2, 2, 2]


def test_a_slot_that_begins_without_drafts_is_probed_from_a_neutral_average() -> None:
    slot = msgspec.structs.replace(SLOT, candidates=(0,))
    assert start_slot(ONE, slot) == Control(0, 0, -1.0)
    assert update_slot(ONE, slot, Control(0, 0, -1.0), [(0, 0)]) == Control(0, 1, -1.0)
    slot = msgspec.structs.replace(SLOT, candidates=(0, 4))
    assert update_slot(ONE, slot, Control(0, 0, -1.0), [(0, 0)]) == Control(4, 1, 3.0)


@pytest.mark.parametrize(("candidates", "steps"), [((1, 3), 3), ((1, 2, 7), 2), ((1, 7), 7), ((5,), 5), ((7, 0, 2), 2)])
def test_a_slot_begins_with_the_initial_steps_or_its_middle_candidate(candidates: tuple[int, ...], steps: int) -> None:
    assert start_slot(ONE, msgspec.structs.replace(SLOT, candidates=candidates)).steps == steps


def test_slots_by_rounded_numbers_of_rows() -> None:
    slots = tuple(msgspec.structs.replace(SLOT, batch=batch) for batch in (2, 4, 8))
    adaptive = msgspec.structs.replace(ONE, slots=slots)
    assert [slot_of(adaptive, rows) for rows in (1, 2, 3, 4, 7, 8, 9)] == [0, 0, 0, 1, 1, 2, 2]
    adaptive = msgspec.structs.replace(adaptive, rounding=(1, 4, 8))
    assert [slot_of(adaptive, rows) for rows in (1, 2, 3, 4, 7, 8, 9)] == [0, 1, 1, 1, 2, 2, 2]


def test_what_cannot_be_chosen_from_is_refused() -> None:
    made = scenario(request())
    several = r"invalid adaptive_steps\.candidates \[4\]: expected two step counts or more"
    with pytest.raises(InvalidScenarioError, match=several):
        validate(msgspec.structs.replace(made, steps=4, adaptive_steps=Adaptive(initial=4, candidates=(4,))))
    lone = msgspec.structs.replace(ONE, slots=(msgspec.structs.replace(SLOT, candidates=(4,)),))
    assert is_valid(msgspec.structs.replace(made, steps=4, adaptive_steps=lone))
    twice = msgspec.structs.replace(lone, slots=lone.slots * 2)
    with pytest.raises(InvalidScenarioError, match=r"invalid adaptive_steps\.slots\.batch \[1, 1\]: expected distinct"):
        validate(msgspec.structs.replace(made, steps=4, adaptive_steps=twice))
