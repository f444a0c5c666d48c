"""One fault on the scenarios of one seed: which contract notices first, where, and after how many examples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from enum import StrEnum

from msgspec.structs import replace

from draftproof.harness.ranks.messages import LOCKSTEP
from draftproof.harness.workers.ends import DEADLINE_PASSED
from draftproof.harness.workers.messages import Answer, AnyOrder
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome

HANG_CONTRACT = "HANG"
"""In place of a contract: the ranks of a scenario must wait for each other, and that must be said."""


class FaultOutcome(StrEnum):
    """What became of a fault, best first: the first four mean that it was noticed.

    "stale": its lines are not in the sources, or change nothing, or name what is not there. "absent": what it patches
    does not run in this lane, as an eager kernel on a GPU.
    """

    DETECTED = "detected"
    DETECTED_BY_OTHER = "detected_by_other"
    CRASHED = "crashed"
    HUNG = "hung"
    SURVIVED = "survived"
    INERT = "inert"
    STALE = "stale"
    ABSENT = "absent"


class Expectation(Value, frozen=True, kw_only=True):
    """The contract that must notice a fault, and the channel where its first divergence must show; "" is any."""

    contract: str = ""
    channel: str = ""

    def divergence_in(self, answer: Answer) -> Divergence | None:
        """Return what diverged in the named channel, if the named contract failed.

        Either the contract's own first divergence is there, or the first of all is. The latter alone would not do: a
        wrong position also writes a wrong slot, which is seen before.
        """
        own = answer.failures.get(self.contract) if self.contract else answer.first
        if own is None:
            return None
        return next((one for one in (own, answer.first) if one and self.channel in ("", one.channel)), None)


class SeedResult(Value, frozen=True, kw_only=True):
    """What one seed's scenarios showed. `examples`: how many ran until the fault was noticed, null if it never was.

    `seconds`: what the subject's runs and judging took until then; the reference is solved before, once for all faults.
    `divergence` is what was noticed (by the named contract, if it did), `detail` the crash.
    """

    seed: int
    outcome: FaultOutcome
    examples: int | None = None
    seconds: float | None = None
    divergence: Divergence | None = None
    detail: str = ""


Trial = Generator[AnyOrder, Answer, SeedResult]
"""Yields orders, is sent their answers, and returns what they showed."""


def trial(
    seed: int, orders: Iterable[AnyOrder], expected: Expectation, stale: Callable[[Answer], str] = lambda _answer: ""
) -> Trial:
    """Run orders until the expectation is met. What another contract notices on the way counts if it never is.

    `stale` says of an answer why the fault is not the mistake that it was, "" if it is. Raises RuntimeError for an
    error of our own.
    """
    other: SeedResult | None = None
    seconds = 0.0
    for number, order in enumerate(orders, start=1):
        answer = yield order
        seconds += answer.seconds
        if why := stale(answer):
            return SeedResult(seed=seed, outcome=FaultOutcome.STALE, detail=why)
        result = SeedResult(seed=seed, outcome=FaultOutcome.CRASHED, examples=number, seconds=round(seconds, 4))
        if answer.outcome is Outcome.HANG and expected.contract == HANG_CONTRACT:
            return replace(result, outcome=FaultOutcome.DETECTED, detail=death_of(answer))
        if has_died(answer):
            outcome = FaultOutcome.HUNG if answer.outcome is Outcome.HANG else FaultOutcome.CRASHED
            return replace(result, outcome=outcome, detail=death_of(answer))
        if answer.message:
            return other or replace(result, detail=answer.reason)
        found = expected.divergence_in(answer)
        if found is not None:
            return replace(result, outcome=FaultOutcome.DETECTED, divergence=found)
        if answer.first is not None and other is None:
            other = replace(result, outcome=FaultOutcome.DETECTED_BY_OTHER, divergence=answer.first)
    return other or SeedResult(seed=seed, outcome=FaultOutcome.SURVIVED)


def has_died(answer: Answer) -> bool:
    """Return True if the worker ended on this order. Raises RuntimeError for an error of our own."""
    if answer.outcome is Outcome.ERROR and not answer.message and answer.error != DEADLINE_PASSED:
        raise RuntimeError(answer.detail or answer.error)
    return answer.outcome not in (Outcome.PASS, Outcome.FAIL) and not answer.message


def death_of(answer: Answer) -> str:
    """Say how a worker ended."""
    if answer.error == LOCKSTEP:
        return answer.reason
    if answer.error == DEADLINE_PASSED:
        return f"no answer within {answer.seconds:.0f} s"
    return f"killed by {answer.error}" if answer.error.startswith("SIG") else f"ended with {answer.error}"
