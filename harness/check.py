"""Every contract on a list of scenarios: verdicts, counts, and a case file for each kind of failure."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.harness.lockstep import Reference, SubjectCrashedError, evidence, solved
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.judge import COMMON, Judgement, by_draft, judge, summarise
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import Case, encode
from draftproof.properties.values.drafts import ALGORITHMS, algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict, worst

CASES = Path(".draftproof/cases")
RUNS = "runs"
"""The name under which a report says whether the subject ran at all."""
DEADLINE = 120.0
MOST_CASES = 10
WORK = (
    "rounds",
    "graph_replays",
    "drafts_accepted",
    "drafts_rejected",
    "accept_none",
    "accept_partial",
    "accept_all",
    "page_crossings",
    "batch_shrinks",
    "states_committed_partial",
    "step_switches_up",
)
"""Counts that prove that work was done: a check without any of these proves nothing, whatever contracts say."""
REAL = ("scenarios", "rounds_with_drafts", "accept_none", "accept_all")
"""What is asked of each draft of a real model, whose budget is a few scenarios."""
Progress = Callable[[], None]


class Finding(Value, frozen=True, kw_only=True):
    """A failing scenario that was kept: what noticed it, and the file that replays it."""

    identity: str
    verdict: Outcome
    scenario: int
    case: str
    first: Divergence | None = None
    output_changed: bool = False
    detail: str = ""


class CheckReport(Value, frozen=True, kw_only=True):
    """What `check` found. `counts` are what was exercised, `drafts` the same for the scenarios of each draft; the same
    seed gives the same report."""

    verdict: Outcome
    seed: int
    examples: int
    counts: dict[str, int]
    drafts: dict[str, dict[str, int]]
    contracts: tuple[Verdict, ...]
    findings: tuple[Finding, ...] = ()


class HungError(BaseException):
    """The subject ran into its time limit.

    Like KeyboardInterrupt it is no Exception: an `except Exception` of the subject must not swallow it.
    """


@dataclass
class _Tally:
    judgements: list[Judgement] = field(default_factory=list)
    counts: list[dict[str, int]] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)
    broken: list[tuple[Outcome, str]] = field(default_factory=list)
    drafts: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Checker:
    """How scenarios are checked. `cases`: where failing ones are kept; `deadline`: seconds for one scenario.

    `work` names the counts without which the whole is inconclusive, `each` those that the scenarios of every single
    draft must reach, beside what its kind asks for (None: nothing is asked of single drafts).
    """

    subject: Subject
    contracts: Sequence[Contract] = ALL
    cases: Path = CASES
    reference: Reference = solved
    deadline: float = DEADLINE
    work: Sequence[str] = WORK
    each: Sequence[str] | None = COMMON

    def check(
        self, scenarios: Iterable[Scenario], seed: int, progress: Callable[[], None] = lambda: None
    ) -> CheckReport:
        """Run and judge every scenario; `progress` is told of each. Raises what our own code raises."""
        tally = _Tally()
        for number, scenario in enumerate(scenarios):
            tally.drafts.add(algorithm(scenario.draft))
            self._one(scenario, seed, number, tally)
            progress()
        verdicts = summarise(tally.judgements, tally.counts, self.contracts)
        runs = _runs(tally, self.work)
        drafts = [name for name in ALGORITHMS if name in tally.drafts]
        if self.each is not None:
            own = by_draft(tally.judgements, tally.counts, wanted=drafts, common=self.each)
            verdicts = (*own, *verdicts)
        verdicts = (runs, *verdicts)
        return CheckReport(
            verdict=worst([verdict.verdict for verdict in verdicts]),
            seed=seed,
            examples=runs.scenarios,
            counts=total(tally.counts),
            drafts={name: _of_draft(name, tally) for name in drafts},
            contracts=verdicts,
            findings=tuple(tally.findings.values()),
        )

    def _one(self, scenario: Scenario, seed: int, number: int, tally: _Tally) -> None:
        try:
            with time_limit(self.deadline):
                ran = evidence(self.subject, scenario, self.reference)
        except SubjectCrashedError as crash:
            tally.broken.append((Outcome.CRASH, str(crash)))
            self._keep(scenario, seed, number, tally, f"crash {crash.error}", Outcome.CRASH, detail=crash.trace)
            return
        except HungError:
            detail = f"scenario {number} did not finish within {self.deadline:g} s"
            tally.broken.append((Outcome.HANG, detail))
            self._keep(scenario, seed, number, tally, "hang", Outcome.HANG, detail=detail)
            return
        judged = judge(ran, self.contracts)
        tally.judgements.append(judged)
        tally.counts.append(counts(ran))
        if judged.first is not None:
            first = judged.first
            identity = f"{first.contract} {first.channel} {first.relation}"
            changed = ran.output_changed
            self._keep(scenario, seed, number, tally, identity, Outcome.FAIL, first=first, changed=changed)

    def _keep(
        self,
        scenario: Scenario,
        seed: int,
        number: int,
        tally: _Tally,
        identity: str,
        verdict: Outcome,
        *,
        first: Divergence | None = None,
        changed: bool = False,
        detail: str = "",
    ) -> None:
        """Save the first scenario of each identity."""
        if identity in tally.findings or len(tally.findings) >= MOST_CASES:
            return
        name = algorithm(scenario.draft)
        origin = f"draftproof check --seed {seed}, scenario {number}, draft {name}: {identity}"
        case = Case(scenario=scenario, script=self.reference(scenario).script, origin=origin)
        self.cases.mkdir(parents=True, exist_ok=True)
        path = self.cases / f"seed{seed}-{number}-{_slug(identity)}.json"
        path.write_text(encode(case) + "\n", encoding="utf-8")
        tally.findings[identity] = Finding(
            identity=identity,
            verdict=verdict,
            scenario=number,
            case=str(path),
            first=first,
            output_changed=changed,
            detail=detail,
        )


def check(
    subject: Subject, scenarios: Iterable[Scenario], seed: int = 0, progress: Progress = lambda: None
) -> CheckReport:
    """Every contract on these scenarios; `seed` names where they come from."""
    return Checker(subject).check(scenarios, seed, progress)


def _of_draft(name: str, tally: _Tally) -> dict[str, int]:
    """The counts of the scenarios with this draft that ran to their end."""
    return total(own for one, own in zip(tally.judgements, tally.counts, strict=True) if one.draft == name)


def _runs(tally: _Tally, work: Sequence[str]) -> Verdict:
    """Whether every scenario ran to its end, and whether there was work in them."""
    scenarios = len(tally.judgements) + len(tally.broken)
    if tally.broken:
        verdict = worst([outcome for outcome, _ in tally.broken])
        reason = f"{len(tally.broken)} of {scenarios} did not finish; the first: {tally.broken[0][1]}"
        return Verdict(name=RUNS, verdict=verdict, scenarios=scenarios, reason=reason)
    done = total(tally.counts)
    beyond = frozenset.intersection(*(one.beyond for one in tally.judgements)) if tally.judgements else frozenset()
    missing = tuple(f"{name} >= 1" for name in work if not done[name] and name not in beyond)
    verdict = Outcome.INCONCLUSIVE if missing or not scenarios else Outcome.PASS
    return Verdict(name=RUNS, verdict=verdict, scenarios=scenarios, missing=missing)


def _slug(identity: str) -> str:
    kept = "".join(letter if letter.isalnum() else "-" for letter in identity.split(":")[0].lower())
    return "-".join(part for part in kept.split("-") if part)[:60]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise HungError after so many seconds. Only in the main thread; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(_signal: int, _frame: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
