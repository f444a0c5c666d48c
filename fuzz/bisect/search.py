"""Bisect the parts of the engine that a failing case needs, in worker processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from draftproof.fuzz.bisect.ddmin import NotFailingError, Parts, ddmin
from draftproof.fuzz.bisect.parts import KERNEL, engine_parts, lone_requests, present, with_parts
from draftproof.harness.identity import Identity, Level
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.fit import within
from draftproof.properties.lib.base import Value
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.properties.values.verdict import Outcome

Run = Callable[[Sequence[Order]], Sequence[Answer]]
"""run(orders) -> an answer each, in their order"""
TOGETHER = "A twin works on the host and cannot be captured: with any kernel off, graphs were off as well"
SAME_WITHOUT_PART: Level = "contract"
"""The channel may be another one: without a part, what the contract judges is often reported elsewhere."""
_KERNELS = "kernels"
_NO_OTHER = "without it the subject cannot run"


def kernels_used(pool: Pool, scenario: Scenario) -> tuple[str, ...]:
    """Return the kernels that a run of a scenario calls, sorted; of one that dies or hangs, those called until then.

    Raises RuntimeError if not one was called.
    """
    (answer,) = pool.run([Order(number=0, scenario=scenario, measured=False, kernels=True)])
    if not answer.kernels:
        raise RuntimeError(f"the run called no kernel:\n{answer.detail}")
    return answer.kernels


def closed(parts: Parts, needs: Mapping[str, Collection[str]]) -> Parts:
    """Return the parts for which everything that they need is there; any set of parts stands for those."""
    while True:
        kept = frozenset(part for part in parts if parts.issuperset(needs.get(part, ())))
        if kept == parts:
            return kept
        parts = kept


class Alone(StrEnum):
    """What turning off a part alone does to the failure; UNTRIED: no run with only this part off was needed."""

    GONE = "gone"
    STAYS = "stays"
    OTHER = "another failure"
    BROKEN = "no verdict"
    UNTRIED = ""


class PartResult(Value, frozen=True, kw_only=True):
    """A part that was on in the case.

    `alone`: what became of the failure with only this part off; `other` is what failed then instead. `needed`: it is in
    the smallest set.
    """

    name: str
    on: str
    needed: bool
    alone: Alone
    other: str = ""


class Bisection(Value, frozen=True, kw_only=True):
    """The smallest set `needed`, and every part that was on.

    `fixed` are parts that stay on, with the reason; `notes` say what could not be tried apart. `answer` is the answer
    to the case with just the needed parts.
    """

    identity: Identity
    needed: tuple[str, ...]
    parts: tuple[PartResult, ...]
    fixed: dict[str, str]
    notes: tuple[str, ...]
    runs: int
    answer: Answer


def bisect(
    scenario: Scenario,
    answer: Answer,
    kernels: Sequence[str],
    run: Run,
    *,
    device: str = "cpu",
    width: int = 2,
    limits: Limits = NO_LIMITS,
) -> Bisection:
    """Return the smallest set of parts that must be on for the scenario to fail as `answer` does.

    `kernels` are those that the run uses; `limits` say what the subject can run. Raises ValueError if `answer` is no
    failure, and NotFailingError if it does not come again.
    """
    return _Bisect(scenario, answer, kernels, run, device, width, limits).result()


class _Bisect:
    def __init__(
        self,
        scenario: Scenario,
        answer: Answer,
        kernels: Sequence[str],
        run: Run,
        device: str,
        width: int,
        limits: Limits,
    ) -> None:
        if answer.identity is None:
            raise ValueError(f"invalid outcome {answer.outcome}: expected FAIL, CRASH or HANG")
        self._scenario, self._answer, self._identity = scenario, answer, answer.identity
        self._run, self._width = run, width
        self._kernels = tuple(KERNEL + name for name in kernels)
        self._fixed = _fixed(answer)
        self._answers: dict[Parts, Answer] = {}
        parts = present(scenario, engine_parts(self._lone()))
        others = {part.name: part.off(scenario) for part in parts}
        self._fixed |= {name: _NO_OTHER for name, off in others.items() if within(off, limits) != off}
        self._parts = tuple(part for part in parts if part.name not in self._fixed)
        self._names = tuple(part.name for part in self._parts)
        self._needs = self._dependencies(device)

    def _lone(self) -> int:
        """Return a request that fails on its own; if none does, the request of the divergence."""
        scenarios = lone_requests(self._scenario)
        if len(scenarios) > 1:
            orders = [Order(number=number, scenario=scenario) for number, scenario in enumerate(scenarios)]
            for number, answer in enumerate(self._run(orders)):
                if answer.is_same(self._identity, SAME_WITHOUT_PART):
                    return number
        return max(0, self._answer.first.request) if self._answer.first else 0

    def _dependencies(self, device: str) -> dict[str, tuple[str, ...]]:
        """Return what parts need: on a GPU no launch can be captured with a twin, which works on the host."""
        needs: dict[str, tuple[str, ...]] = {"batching": ("requests",)} if "requests" in self._names else {}
        if device == "cuda" and self._kernels:
            needs["graphs"] = self._kernels
        return needs

    def _fails(self, sets: Sequence[Parts]) -> list[bool]:
        """Run the scenario with each of these sets of parts on, no set twice; return which fail in the same way."""
        fresh = [on for on in dict.fromkeys(sets) if on not in self._answers]
        orders = [self._order(number, on) for number, on in enumerate(fresh)]
        self._answers.update(zip(fresh, self._run(orders) if orders else (), strict=True))
        return [self._answers[on].is_same(self._identity, SAME_WITHOUT_PART) for on in sets]

    def _order(self, number: int, on: Parts) -> Order:
        twins = tuple(name.removeprefix(KERNEL) for name in self._kernels if name not in on)
        return Order(number=number, scenario=with_parts(self._scenario, self._parts, on), twins=twins)

    def result(self) -> Bisection:
        """Parts first with all kernels or none, then which kernels, until neither can do with less."""
        everything = frozenset((*self._names, *self._kernels))
        alone = {name: self._off_alone(everything, name) for name in self._names}
        needed = frozenset(self._minimal((*self._names, *((_KERNELS,) if self._kernels else ())), frozenset()))
        if _KERNELS in needed:
            needed = self._with_kernels(needed - {_KERNELS})
            alone |= {name: self._off_alone(everything, name) for name in self._kernels if name in needed}
        shown = {part.name: part.on for part in self._parts} | dict.fromkeys(self._kernels, "in place of its twin")
        return Bisection(
            identity=self._identity,
            needed=tuple(name for name in (*self._names, *self._kernels) if name in needed),
            parts=tuple(self._row(name, on, alone.get(name), name in needed) for name, on in shown.items()),
            fixed=self._fixed,
            notes=(TOGETHER,) if "graphs" in self._needs and "graphs" in self._names else (),
            runs=len(self._answers),
            answer=self._answers[self._closed(needed)],
        )

    def _minimal(self, names: Sequence[str], beside: Parts) -> tuple[str, ...]:
        """Return the smallest set of these parts that fails, with the parts of `beside` on as well."""

        def fails(sets: Sequence[Parts]) -> list[bool]:
            return self._fails([self._closed(self._spread(on) | beside) for on in sets])

        return ddmin(names, fails, width=self._width)

    def _spread(self, on: Parts) -> Parts:
        return on - {_KERNELS} | frozenset(self._kernels if _KERNELS in on else ())

    def _closed(self, on: Parts) -> Parts:
        return closed(on, self._needs)

    def _with_kernels(self, engine: Parts) -> Parts:
        """Which kernels beside these parts, then which parts beside those kernels, and again until nothing changes."""
        kernels = frozenset(self._kernels)
        while True:
            fewer = frozenset(self._minimal([name for name in self._kernels if name in kernels], engine))
            left = frozenset(self._minimal([name for name in self._names if name in engine], fewer))
            if (fewer, left) == (kernels, engine):
                return fewer | left
            kernels, engine = fewer, left

    def _off_alone(self, everything: Parts, name: str) -> Answer:
        on = self._closed(everything - {name})
        self._fails([on])
        return self._answers[on]

    def _row(self, name: str, on: str, answer: Answer | None, needed: bool) -> PartResult:
        effect = _effect(answer, self._identity) if answer else Alone.UNTRIED
        other = answer.identity.text if answer and answer.identity and effect is Alone.OTHER else ""
        return PartResult(name=name, on=on, needed=needed, alone=effect, other=other)


def _effect(answer: Answer, identity: Identity) -> Alone:
    if answer.is_same(identity, SAME_WITHOUT_PART):
        return Alone.STAYS
    if answer.failing:
        return Alone.OTHER
    return Alone.GONE if answer.outcome.value == "PASS" else Alone.BROKEN


def _fixed(answer: Answer) -> dict[str, str]:
    """Parts without which the failure could not show, whatever causes it."""
    first = answer.first
    if first is None:
        return {}
    fixed = {}
    contract = CONTRACTS_BY_NAME.get(first.contract)
    if first.channel in TAPPED or (contract and not contract.fits(frozenset(CHANNELS) - TAPPED)):
        fixed["taps"] = f"without them {first.contract} has nothing to judge"
    if first.contract.startswith("variant."):
        fixed["variant"] = f"{first.contract} compares the two runs"
    return fixed


class PartsReport(Value, frozen=True, kw_only=True):
    """The result of a bisection of parts.

    `verdict` is the case's own, INCONCLUSIVE if it is flaky; `found` is None for a case that did not fail, or not
    again.
    """

    verdict: Outcome
    case: str
    found: Bisection | None = None
    flaky: bool = False


def bisect_parts(
    scenario: Scenario, case: str, spec: SubjectSpec, workers: int, limits: Limits = NO_LIMITS
) -> PartsReport:
    """Return the smallest set of parts that must be on for a scenario, read from `case`, to fail.

    `limits` say what the subject can run. Raises RuntimeError if the case could not be judged.
    """
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder, Pool(spec, workers, Path(folder)) as pool:
        (answer,) = pool.run([Order(number=0, scenario=scenario)])
        if answer.outcome is Outcome.ERROR:
            raise RuntimeError(f"the case could not be judged:\n{answer.detail}")
        if answer.identity is None:
            return PartsReport(verdict=answer.outcome, case=case)
        # Only the built-in engine has kernels that their naive twins can replace, but for ranks on devices, which are
        # made anew.
        has_twins = spec.subject == BUILT_IN_SUBJECT and (spec.device == "cpu" or scenario.ranks.size == 1)
        kernels = kernels_used(pool, scenario) if has_twins else ()
        try:
            found = bisect(scenario, answer, kernels, pool.run, device=spec.device, width=workers, limits=limits)
        except NotFailingError:
            return PartsReport(verdict=Outcome.INCONCLUSIVE, case=case, flaky=True)
    found = replace(found, answer=found.answer.brief)
    return PartsReport(verdict=answer.outcome, case=case, found=found)
