"""The step-count controller against exact fractions, and by hand."""

import struct
from collections import Counter
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.observed import StepsInForce
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key
from draftproof.reference.adaptive_steps import Control, Row, observations, start, steps_in_force, update
from tests.reference.scenarios import request, scenario

MANY = settings(max_examples=300, deadline=None, derandomize=True)
CLOSE = Fraction(1, 10**9)
Batches = list[list[Row]]


def adapted(adaptive: Adaptive) -> Scenario:
    return msgspec.structs.replace(scenario(request()), adaptive_steps=adaptive, steps=max(adaptive.steps))


@st.composite
def controllers(draw: st.DrawFn) -> Adaptive:
    """With thresholds of either sign, so that up and down may contradict each other."""
    return Adaptive(
        initial=draw(st.integers(1, 8)),
        candidates=tuple(draw(st.lists(st.integers(1, 8), max_size=4))),
        alpha=draw(st.sampled_from([0.1, 0.2, 0.5, 0.7, 1.0])),
        interval=draw(st.integers(1, 4)),
        warmup=draw(st.integers(0, 4)),
        down=draw(st.sampled_from([-0.25, -1.0, 0.0, 0.3, 1.5])),
        up=draw(st.sampled_from([0.0, -0.25, 0.1, -1.5, 1.0])),
    )


@st.composite
def histories(draw: st.DrawFn, most: int = 8) -> Batches:
    """Runs of batches that accept alike, so that averages travel far; some batches without a single draft."""
    batches: Batches = []
    for _ in range(draw(st.integers(1, 4))):
        share = draw(st.sampled_from([0.0, 0.5, 1.0]))
        for _ in range(draw(st.integers(1, 10))):
            drafts = draw(st.lists(st.integers(0, most), min_size=1, max_size=4))
            batches.append([(count, round(count * share)) for count in drafts])
    return batches


def averages(adaptive: Adaptive, batches: Batches) -> list[Fraction]:
    """The exact average after each batch, as a weighted sum over the means of all batches with drafts so far."""
    alpha, means, told = Fraction(adaptive.alpha), [], []
    for batch in batches:
        with_drafts = [correct for drafts, correct in batch if drafts > 0]
        if with_drafts:
            means.append(Fraction(sum(with_drafts), len(with_drafts)))
        n = len(means)
        old = (1 - alpha) ** n * (adaptive.initial - 1)
        told.append(old + sum(alpha * (1 - alpha) ** (n - 1 - i) * mean for i, mean in enumerate(means)))
    return told


def decision(adaptive: Adaptive, steps: int, average: Fraction) -> int:
    """Down to the nearest candidate whose lower neighbour does not call, then up to the nearest that holds."""
    candidates, half = adaptive.steps, Fraction(1, 2)
    down, up = Fraction(adaptive.down), Fraction(adaptive.up)
    kept = {c for c, below in zip(candidates[1:], candidates, strict=False) if average > below - half + down}
    low = max(c for c in kept | {candidates[0]} if c <= steps)
    held = {c for c in candidates if average <= c - half + up}
    return min(c for c in held | {candidates[-1]} if c >= low)


def close(adaptive: Adaptive, average: Fraction) -> bool:
    """Whether a rounding could turn any comparison."""
    moves = (Fraction(adaptive.down), Fraction(adaptive.up))
    return any(abs(average - c + Fraction(1, 2) - move) < CLOSE for c in adaptive.steps for move in moves)


def test_equals_exact_fractions() -> None:
    """Averages to 1e-12; decisions wherever they do not hang on a rounding."""
    found: Counter[str] = Counter()

    @MANY
    @given(controllers(), histories())
    def compare(adaptive: Adaptive, batches: Batches) -> None:
        told = steps_in_force(adapted(adaptive), batches)
        assert len(told) == len(batches)
        steps, count = adaptive.initial, 0
        for control, average, batch in zip(told, averages(adaptive, batches), batches, strict=True):
            assert (control.steps, control.verifies) == (steps, count)
            assert abs(Fraction(control.average) - average) < Fraction(1, 10**12)
            if not any(drafts for drafts, _ in batch):
                found["nothing drafted"] += 1
                continue
            count += 1
            if count <= adaptive.warmup or (count - adaptive.warmup) % adaptive.interval:
                continue
            if close(adaptive, average):
                found["too close to call"] += 1
                return
            after = decision(adaptive, steps, average)
            found["up"] += after > steps
            found["down"] += after < steps
            found["same"] += after == steps
            found["over a candidate"] += sum(min(steps, after) < c < max(steps, after) for c in adaptive.steps)
            steps = after

    compare()
    assert min(found[name] for name in ("nothing drafted", "up", "down", "same", "over a candidate")) >= 10, found
    assert found["too close to call"] < 100, found


def test_by_hand_with_the_defaults() -> None:
    """Starts at 3 steps with an average of 2; nothing accepted: 2 * 0.8^n. Warm-up 10, then every fifth verify: at 15
    the average is 0.07, which is below 1 - 0.5 - 0.25, so down to 1; with all of 1 accepted it closes in on 1 and
    passes 0.5 by the fifth verify: up to 3; and since 3 are now accepted, to 7 when it passes 2.5."""
    adaptive = Adaptive(initial=3)
    nothing, one, all_ = [(3, 0)], [(1, 1)], [(3, 3), (0, 0)]
    told = steps_in_force(adapted(adaptive), [nothing] * 15 + [one] * 5 + [all_] * 15 + [nothing])
    assert [control.steps for control in told] == [3] * 15 + [1] * 5 + [3] * 10 + [7] * 6
    assert [control.verifies for control in told] == list(range(36))
    assert told[0].average == pytest.approx(1.6, abs=1e-15)
    assert told[14].average == pytest.approx(2 * 0.8**15, abs=1e-15)


@pytest.mark.parametrize(
    ("steps", "average", "after"),
    [
        (3, 0.25, 1),  # at the lower threshold: down
        (3, 0.2501, 3),
        (7, 0.25, 1),  # two at once
        (7, 2.25, 3),
        (7, 2.26, 7),
        (1, 0.5, 1),  # at the upper threshold: stays
        (1, 0.5001, 3),
        (1, 2.6, 7),
        (3, 2.5, 3),
        (7, 7.0, 7),
        (1, -1.0, 1),
    ],
)
def test_thresholds(steps: int, average: float, after: int) -> None:
    """With alpha = 1 the average is the last batch's mean; rows of 10,000 drafts give it four digits."""
    adaptive = Adaptive(initial=3, alpha=1.0, interval=1, warmup=0)
    batch = [(10_000, round(average * 10_000))] + [(1, 0)] * 9_999
    assert update(adaptive, Control(steps, 0, 0.0), batch) == Control(after, 1, average)


def test_down_then_up_when_the_thresholds_cross() -> None:
    """Down is asked for at 1.5 and less, up above -0.5: one update goes down and all the way up again."""
    adaptive = Adaptive(initial=3, candidates=(1, 3, 7), alpha=1.0, interval=1, warmup=0, down=1.0, up=-1.0)
    assert update(adaptive, Control(3, 0, 0.0), [(3, 1)]).steps == 3
    assert update(adaptive, Control(3, 0, 0.0), [(3, 2)]).steps == 7


def test_the_order_of_the_operations() -> None:
    """Histories whose average comes out otherwise in another order: old + alpha * (x - old), or a mean of products."""
    adaptive, average = Adaptive(initial=4, alpha=0.1), 3.0
    others, control = 0, start(Adaptive(initial=4, alpha=0.1))
    for right in (2, 1, 0, 3, 2, 2, 1):
        control = update(adaptive, control, [(3, right), (2, 1), (1, 0)])
        x = (right + 1) / 3
        others += average + 0.1 * (x - average) != (1 - 0.1) * average + 0.1 * x
        average = (1 - 0.1) * average + 0.1 * x
        assert control.average == average
    assert others


def test_an_update_depends_on_nothing_else() -> None:
    """The order within a batch does not matter, rows without drafts do not, and a prefix of a run is a shorter run."""
    made = adapted(Adaptive(initial=2, candidates=(1, 4), interval=1, warmup=0))
    batches = [[(2, 2), (0, 0), (1, 0)], [(4, 4)], [(0, 0)], [(4, 0), (4, 3)]]
    told = steps_in_force(made, batches)
    assert steps_in_force(made, [batch[::-1] for batch in batches]) == told
    assert steps_in_force(made, [[row for row in batch if row[0]] for batch in batches]) == told
    assert [steps_in_force(made, batches[: i + 1])[-1] for i in range(4)] == told
    assert told[2].average == told[1].average
    assert told[3].verifies == told[2].verifies


def test_without_a_controller_the_steps_never_change() -> None:
    assert {control.steps for control in steps_in_force(scenario(request()), [[(4, 0)]] * 30)} == {4}
    assert list(observations(scenario(request()), {(0, 1): (1, 4)}, {(0, 1): 2})) == []


def test_observations_by_engine_step() -> None:
    """Two requests that decode together at step 5, one alone at 7; their own rounds differ."""
    made = adapted(Adaptive(initial=3, alpha=0.5, interval=1, warmup=0))
    rows = {(0, 1): (5, 3), (1, 4): (5, 0), (0, 2): (7, 3)}
    told = list(observations(made, rows, {(0, 1): 0, (1, 4): 0, (0, 2): 2}))
    assert [(one.channel, one.key) for one in told] == [
        (name, Key(-1, step)) for step in (5, 7) for name in ("adaptive_steps.steps", "adaptive_steps.average")
    ]
    assert [one.value for one in told] == [
        StepsInForce(3, 0),
        struct.pack("<d", 1.0),
        StepsInForce(3, 1),
        struct.pack("<d", 1.5),
    ]
