"""One fault on the scenarios of one seed: which contract notices first, where, and after how many examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import StrEnum

from draftproof.harness.kernel_runs import diverges
from draftproof.harness.lockstep import Reference, Solved, SubjectCrashedError, evidence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import Judgement, judge
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Divergence


class FaultOutcome(StrEnum):
    """What became of a fault, best first: the first four mean that it was noticed.

    "absent": what it patches does not run in this lane, as an eager kernel on a GPU.
    """

    DETECTED = "detected"
    DETECTED_BY_OTHER = "detected_by_other"
    CRASHED = "crashed"
    HUNG = "hung"
    SURVIVED = "survived"
    INERT = "inert"
    STALE = "stale"
    ABSENT = "absent"


class Aim(Value, frozen=True, kw_only=True):
    """The contract that must notice a fault, and the channel where its first divergence must show; "" is any."""

    contract: str = ""
    channel: str = ""

    def hit(self, judged: Judgement) -> Divergence | None:
        """What diverged in the named channel, if the named contract failed.

        Either the contract's own first divergence is there, or the first of all is. Not that of all alone: a wrong
        position also writes a wrong slot, which is seen before.
        """
        own = judged.results.get(self.contract) if self.contract else judged.first
        if own is None:
            return None
        return next((one for one in (own, judged.first) if one and self.channel in ("", one.channel)), None)


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


def trial(
    subject: Subject,
    seed: int,
    scenarios: Iterable[Solved],
    aim: Aim,
    after: Callable[[Evidence], None],
) -> SeedResult:
    """Run scenarios until the aim is hit. What another contract notices on the way counts if the aim never is.

    `after` is told of every finished run.
    """
    other: SeedResult | None = None
    began = time.perf_counter()
    for number, known in enumerate(scenarios, start=1):
        try:
            ran = evidence(subject, known.scenario, _known(known))
        except SubjectCrashedError as crash:
            return other or _crashed(seed, number, began, str(crash))
        after(ran)
        judged = judge(ran)
        hit = aim.hit(judged)
        if hit is not None:
            return _noticed(seed, FaultOutcome.DETECTED, number, began, hit)
        if judged.first is not None and other is None:
            other = _noticed(seed, FaultOutcome.DETECTED_BY_OTHER, number, began, judged.first)
    return other or SeedResult(seed=seed, outcome=FaultOutcome.SURVIVED)


def kernel_trial(
    seed: int, cases: Iterable[KernelCase], aim: Aim, device: str, after: Callable[[], None]
) -> SeedResult:
    """Hold kernels to their contracts, case by case, until the aim is hit."""
    other: SeedResult | None = None
    began = time.perf_counter()
    for number, case in enumerate(cases, start=1):
        try:
            found = diverges(case.op, case, device)
        except Exception as error:
            return other or _crashed(seed, number, began, f"{case.op}: {type(error).__name__}: {error}")
        after()
        if found is None:
            continue
        named = aim.contract in ("", found.contract) and aim.channel in ("", found.channel)
        outcome = FaultOutcome.DETECTED if named else FaultOutcome.DETECTED_BY_OTHER
        result = _noticed(seed, outcome, number, began, found)
        if named:
            return result
        other = other or result
    return other or SeedResult(seed=seed, outcome=FaultOutcome.SURVIVED)


def _known(solved: Solved) -> Reference:
    """A reference that has its answer already."""
    return lambda _scenario: solved


def _noticed(
    seed: int,
    outcome: FaultOutcome,
    number: int,
    began: float,
    divergence: Divergence,
) -> SeedResult:
    return SeedResult(
        seed=seed,
        outcome=outcome,
        examples=number,
        seconds=_since(began),
        divergence=divergence,
    )


def _crashed(seed: int, number: int, began: float, detail: str) -> SeedResult:
    seconds = _since(began)
    return SeedResult(seed=seed, outcome=FaultOutcome.CRASHED, examples=number, seconds=seconds, detail=detail)


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 4)
