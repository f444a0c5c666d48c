"""The step-count controller beside its definition in exact fractions, bit for bit."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from draftproof.engine.adaptive import AdaptiveConfig, ControllerState, advance, start
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig, SlotConfig
from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.reference import adaptive_steps as control

Advance = Callable[[AdaptiveConfig, ControllerState, Sequence[int], Sequence[int]], ControllerState]
HALF = Fraction(1, 2)


def to_double(value: Fraction) -> Fraction:
    """What a double makes of an exact result: the rounding of one operation."""
    return Fraction(float(value))


class Definition:
    """docs/semantics/adaptive-steps.md, each operation done exactly and then rounded to a double."""

    def __init__(self, config: AdaptiveConfig) -> None:
        self.config, self.candidates = config, sorted({config.initial, *config.candidates})
        self.steps, self.average, self.count = config.initial, Fraction(config.initial - 1), 0

    def see(self, rows: Sequence[tuple[int, int]]) -> None:
        counted = [correct for drafts, correct in rows if drafts]
        if not counted:
            return
        self.average = self.average_after(sum(counted), len(counted))
        self.count += 1
        past = self.count - self.config.warmup
        if past > 0 and past % self.config.interval == 0:
            self._choose()

    def average_after(self, correct: int, rows: int) -> Fraction:
        """The average if the next round has `rows` rows with drafts, `correct` of them right in all."""
        alpha = Fraction(self.config.alpha)
        mean = to_double(Fraction(correct, rows))
        kept = to_double(to_double(1 - alpha) * self.average)
        return to_double(kept + to_double(alpha * mean))

    def thresholds(self) -> set[Fraction]:
        """Every average at which some step count changes."""
        return {self._threshold(p, by) for p in self.candidates for by in (self.config.down, self.config.up)}

    def _choose(self) -> None:
        while (lower := self._beside(-1)) is not None and self.average <= self._threshold(lower, self.config.down):
            self.steps = lower
        while (higher := self._beside(1)) is not None and self.average > self._threshold(self.steps, self.config.up):
            self.steps = higher

    def _beside(self, by: int) -> int | None:
        index = self.candidates.index(self.steps) + by
        return self.candidates[index] if 0 <= index < len(self.candidates) else None

    @staticmethod
    def _threshold(steps: int, hysteresis: float) -> Fraction:
        return to_double(steps - HALF + Fraction(hysteresis))


# Multiples of a half make an average that lies on a threshold frequent.
HYSTERESES = st.sampled_from((-1.5, -0.5, 0.0, 0.5, 1.0, -0.25, 0.1))
CONFIGS = st.builds(
    AdaptiveConfig,
    initial=st.integers(1, 9),
    candidates=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    alpha=st.sampled_from((1.0, 0.5)) | st.sampled_from((0.2, 0.1, 0.3, 0.01, 0.7)),
    interval=st.integers(1, 4),
    warmup=st.integers(0, 5),
    down=HYSTERESES,
    up=HYSTERESES,
)


def machine(under_test: Advance = advance) -> type[RuleBasedStateMachine]:
    """A machine that drives a controller beside the definition and the reference; it fails where they differ."""

    class Controllers(RuleBasedStateMachine):
        @initialize(config=CONFIGS)
        def begin(self, config: AdaptiveConfig) -> None:
            self.config, self.state, self.definition = config, start(config), Definition(config)
            self.scenario = Adaptive(**asdict(config))
            self.reference = control.start(self.scenario)

        def both(self, rows: Sequence[tuple[int, int]]) -> None:
            drafts, correct = [row[0] for row in rows], [row[1] for row in rows]
            self.state = under_test(self.config, self.state, drafts, correct)
            self.definition.see(rows)
            self.reference = control.update(self.scenario, self.reference, rows)

        @rule(data=st.data(), times=st.integers(1, 6))
        def rounds_of_mixed_drafts(self, data: st.DataObject, times: int) -> None:
            for _ in range(times):
                drafts = st.lists(st.integers(0, self.state.steps), min_size=1, max_size=4)
                self.both([(count, data.draw(st.integers(0, count))) for count in data.draw(drafts)])

        @rule(right=st.booleans(), times=st.integers(1, 12))
        def rounds_all_right_or_all_wrong(self, right: bool, times: int) -> None:
            for _ in range(times):
                self.both([(self.state.steps, self.state.steps * right)])

        @rule(data=st.data())
        def round_that_ends_on_a_threshold(self, data: st.DataObject) -> None:
            """Two rows whose mean brings the average exactly to where a step count changes, if there are any."""
            edges = self.definition.thresholds()
            sums = [both for both in range(2 * self.state.steps + 1) if self.definition.average_after(both, 2) in edges]
            if sums:
                both = data.draw(st.sampled_from(sums))
                self.both([(self.state.steps, both // 2), (self.state.steps, both - both // 2)])

        @rule(rows=st.integers(1, 4))
        def round_without_drafts(self, rows: int) -> None:
            before = self.state
            self.both([(0, 0)] * rows)
            assert self.state == before

        @rule()
        def empty_batch(self) -> None:
            before = self.state
            self.both([])
            assert self.state == before

        @invariant()
        def decisions_are_the_definitions(self) -> None:
            if not hasattr(self, "state"):
                return
            assert (self.state.steps, self.state.count) == (self.definition.steps, self.definition.count)
            assert Fraction(self.state.average) == self.definition.average
            assert (self.state.steps, self.state.count, self.state.average) == self.reference

        @invariant()
        def steps_and_average_are_in_range(self) -> None:
            if not hasattr(self, "state"):
                return
            assert self.state.steps in self.config.steps
            # A rounding up in every round, forever, adds up to one last place over alpha.
            assert 0 <= self.state.average <= max(self.config.steps) * (1 + 2**-51 / self.config.alpha)

    return Controllers


def difference(under_test: Advance = advance, shrink: bool = True) -> str:
    """What the first history of a config that shows a difference says of it; "" if none does."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    kept = settings(
        max_examples=150,
        stateful_step_count=12,
        phases=phases,
        report_multiple_bugs=False,
        deadline=None,
        database=None,
        derandomize=True,
    )
    try:
        run_state_machine_as_test(machine(under_test), settings=kept)
    except AssertionError as error:
        return "".join(traceback.format_exception(error))
    return ""


def test_the_controller_decides_what_the_definition_says() -> None:
    assert difference() == ""


def mutant(
    counts: Callable[[int], bool] = lambda drafts: drafts >= 1,
    due: Callable[[AdaptiveConfig, int], bool] = lambda config, count: (
        count > config.warmup and (count - config.warmup) % config.interval == 0
    ),
    leaves_up: Callable[[float, float], bool] = lambda average, threshold: average > threshold,
    leaves_down: Callable[[float, float], bool] = lambda average, threshold: average <= threshold,
    up_first: bool = False,
    moves: int = 99,
    average_of: Callable[[float, float, float], float] = lambda alpha, old, new: (1 - alpha) * old + alpha * new,
    swapped: bool = False,
) -> Advance:
    """A controller written with one thing replaced; as it stands, the right one."""

    def choose(config: AdaptiveConfig, current: int, average: float) -> int:
        steps, i = config.steps, config.steps.index(current)
        down, up = (config.up, config.down) if swapped else (config.down, config.up)
        for direction in (1, -1) if up_first else (-1, 1):
            for _ in range(moves):
                if direction < 0 and i > 0 and leaves_down(average, steps[i - 1] - 0.5 + down):
                    i -= 1
                elif direction > 0 and i < len(steps) - 1 and leaves_up(average, steps[i] - 0.5 + up):
                    i += 1
        return steps[i]

    def run(
        config: AdaptiveConfig, state: ControllerState, drafts: Sequence[int], correct: Sequence[int]
    ) -> ControllerState:
        counted = [right for count, right in zip(drafts, correct, strict=True) if counts(count)]
        if not counted:
            return state
        average = average_of(config.alpha, state.average, sum(counted) / len(counted))
        count = state.count + 1
        steps = choose(config, state.steps, average) if due(config, count) else state.steps
        return ControllerState(steps, average, count)

    return run


WRONG: dict[str, Advance] = {
    "warm-up is forgotten": mutant(due=lambda config, count: count % config.interval == 0),
    "warm-up ends one round early": mutant(
        due=lambda config, count: count >= max(config.warmup, 1) and (count - config.warmup) % config.interval == 0
    ),
    "the interval counts from the start": mutant(
        due=lambda config, count: count > config.warmup and count % config.interval == 0
    ),
    "up at the threshold, not above it": mutant(leaves_up=lambda average, threshold: average >= threshold),
    "down below the threshold, not at it": mutant(leaves_down=lambda average, threshold: average < threshold),
    "up before down": mutant(up_first=True),
    "the two hystereses are swapped": mutant(swapped=True),
    "rows without drafts count": mutant(counts=lambda drafts: True),
    "one step at a time": mutant(moves=1),
    "the average as old + alpha (new - old)": mutant(average_of=lambda alpha, old, new: old + alpha * (new - old)),
    "alpha weighs the old value": mutant(average_of=lambda alpha, old, new: alpha * old + (1 - alpha) * new),
}


def test_the_mutants_original_is_right() -> None:
    assert difference(mutant()) == ""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_controller_is_noticed(name: str) -> None:
    assert "AssertionError" in difference(WRONG[name], shrink=False)


def test_a_history_worked_by_hand() -> None:
    config = AdaptiveConfig(initial=3, alpha=0.5, interval=2, warmup=1)
    state, seen = start(config), []
    for drafts, correct in (
        ([3, 3], [3, 2]),
        ([0], [0]),
        ([3, 0], [3, 0]),
        ([3], [3]),
        ([7], [1]),
        ([7], [0]),
        ([7], [0]),
    ):
        state = advance(config, state, drafts, correct)
        seen.append((state.steps, state.average, state.count))
    assert seen == [
        (3, 2.25, 1),  # mean 2.5; warm-up
        (3, 2.25, 1),  # no drafts
        (3, 2.625, 2),  # past warm-up, not yet due
        (7, 2.8125, 3),  # due: above 3 - 0.5
        (7, 1.90625, 4),
        (3, 0.953125, 5),  # due: at most 3 - 0.5 - 0.25, above 1 - 0.5 - 0.25
        (3, 0.4765625, 6),
    ]


def test_start_and_sizes() -> None:
    config = AdaptiveConfig(initial=5, candidates=(7, 1, 7))
    assert (config.steps, start(config)) == ((1, 5, 7), ControllerState(5, 4.0, 0))
    assert asdict(AdaptiveConfig(initial=3)) == msgspec.structs.asdict(Adaptive(initial=3))


def test_rows_must_match() -> None:
    config = AdaptiveConfig(initial=3)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        advance(config, start(config), [3, 3], [1])


def test_what_a_file_may_leave_out_is_as_in_sglang():
    """A check gives every setting, so that no scenario shows these."""
    usual = {"alpha": 0.2, "interval": 5, "warmup": 10}
    one = asdict(AdaptiveConfig(3))
    assert one == {"initial": 3, "candidates": (1, 3, 7), **usual, "down": -0.25, "up": 0.0}
    by_batch = asdict(BatchAdaptiveConfig(3, (SlotConfig(1, (1, 3)),)))
    slot = {"batch": 1, "candidates": (1, 3), "down": -0.25, "up": 0.0, "ceiling": 0.0}
    assert by_batch == {"initial": 3, "slots": (slot,), **usual, "rounding": ()}
