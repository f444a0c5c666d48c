"""Shrinking: a failing scenario is exchanged for smaller ones for as long as they fail alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from draftproof.fuzz.shrinking.reductions import PASSES, of_pass
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.identity import Identity, Level
from draftproof.harness.workers.messages import Answer
from draftproof.properties.lib.base import Value
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario

Run = Callable[[Sequence[Scenario]], Sequence[Answer]]
"""run(scenarios) -> an answer each, in their order"""
ALIKE: Level = "channel"
"""Phase and relation may differ: a smaller scenario often shows the same wrong value as another one's."""


class Shrunk(Value, frozen=True, kw_only=True):
    """What shrinking came to.

    `tried` scenarios ran in `seconds`; `done`: nothing smaller that is tried fails alike (False: the budget was over
    before that was known). `original` is what had to stay.
    """

    scenario: Scenario
    answer: Answer
    tried: int
    seconds: float
    done: bool
    original: Identity


def shrink(
    scenario: Scenario,
    answer: Answer,
    run: Run,
    *,
    budget: float,
    width: int = 2,
    saved: Callable[[Scenario], None] = lambda _scenario: None,
    limits: Limits = NO_LIMITS,
) -> Shrunk:
    """Make a failing scenario smaller for at most `budget` seconds, `width` candidates at a time.

    `saved` is called with every smaller one; `limits` say what the subject can run: nothing else is tried.

    If the budget suffices, the result is minimal: no candidate of it fails alike. The budget is checked between runs,
    each of which ends. Raises ValueError for an answer that is no failure and for a width below one.
    """
    if answer.identity is None:
        raise ValueError(f"invalid outcome {answer.outcome}: expected FAIL, CRASH or HANG")
    if width < 1:
        raise ValueError(f"invalid width {width}: expected 1 or more")
    search = _Search(scenario, answer, answer.identity, limits)
    while time.monotonic() - search.started < budget:
        tried = list(islice(search.candidates, width))
        if not tried:
            return search.result(done=True)
        if search.accept_smallest(tried, run(tried)):
            saved(search.scenario)
    return search.result(done=False)


class _Search:
    """The smallest failing scenario so far, and what has been tried.

    After a success the same pass goes on, and the others in turn: those before it have just been found to be of no
    use. It is over when every pass has been of none for one and the same scenario.
    """

    def __init__(self, scenario: Scenario, answer: Answer, original: Identity, limits: Limits) -> None:
        self._limits = limits
        self.scenario, self.answer, self.original = scenario, answer, original
        self.started = time.monotonic()
        self._tried = 0
        self._seen = {scenario}
        self._pass_of: dict[Scenario, int] = {}
        self.candidates = self._from(0)

    def _from(self, first: int) -> Iterator[Scenario]:
        """Return what has not been tried of every pass, `first` first."""
        for number in range(first, first + len(PASSES)):
            place = number % len(PASSES)
            for candidate in of_pass(PASSES[place], self.scenario, self._limits):
                if candidate not in self._seen:
                    self._seen.add(candidate)
                    self._pass_of[candidate] = place
                    yield candidate

    def accept_smallest(self, tried: Sequence[Scenario], answers: Sequence[Answer]) -> bool:
        """Go on from the smallest that fails alike; whether there is one."""
        self._tried += len(tried)
        places, self._pass_of = self._pass_of, {}
        failing = [pair for pair in zip(tried, answers, strict=True) if pair[1].is_same(self.original, ALIKE)]
        if not failing:
            return False
        self.scenario, self.answer = min(failing, key=lambda pair: size(pair[0]))
        # The others fail too, and may be reached again from here.
        self._seen -= {candidate for candidate, _ in failing if candidate != self.scenario}
        self.candidates = self._from(places[self.scenario])
        return True

    def result(self, *, done: bool) -> Shrunk:
        return Shrunk(
            scenario=self.scenario,
            answer=self.answer,
            tried=self._tried,
            seconds=round(time.monotonic() - self.started, 3),
            done=done,
            original=self.original,
        )


def confirm(scenario: Scenario, identity: Identity, run: Run, times: int = 3) -> int:
    """Return how many of `times` runs fail alike."""
    return sum(answer.is_same(identity, ALIKE) for answer in run([scenario] * times))
