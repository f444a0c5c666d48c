"""Every contract on scenarios and calls of kernels: verdicts, counts, and a case file for each kind of failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from draftproof.harness.chat_turns import with_turns
from draftproof.harness.execute import SCENARIO_DEADLINE, Executor
from draftproof.harness.identity import Identity, fingerprint, slug
from draftproof.harness.side_by_side import SideBySide
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.subject_report import assumed, versions_of
from draftproof.harness.subjects import is_engine
from draftproof.harness.weights import WeightGuard, WeightTurns
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage import shares
from draftproof.properties.coverage.counts import came_up, counts, total, unreached
from draftproof.properties.coverage.covered import Level, level_of, not_asked_with, uncovered
from draftproof.properties.coverage.effects import in_effect, together, without_effect
from draftproof.properties.coverage.shown import observation_gaps, shown_in_part
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.fit import UnfitError, fitted
from draftproof.properties.formats.case import Case, case_text
from draftproof.properties.judge import (
    COMMON,
    REAL,
    RUNS_CONTRACT,
    WORK,
    Judgement,
    by_draft,
    skipped_where_unconcerned,
    summarise,
)
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import require_input
from draftproof.properties.lib.files import write_whole
from draftproof.properties.lib.names import group_of
from draftproof.properties.strategies.covering import Met, met_by
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import ALGORITHMS, CHECK_EXAMPLES, algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.subject import Subject, SubjectDeclarationError, require_subject
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict, worst
from draftproof.reference.solved import Reference, solved

if TYPE_CHECKING:
    from draftproof.harness.kernel_runs import KernelCalls

_CASES = Path(".draftproof/cases")
MOST_CASES = 10
_MANY = 40
"""Of fewer scenarios a second process would not shorten a check."""
_MOST_PROCESSES = 8
"""Each takes about half a gigabyte, and scenarios with ranks have processes of their own."""
Progress = Callable[[], None]


class CheckFinding(Value, frozen=True, kw_only=True):
    """A failing scenario that was kept: what noticed it, and the file that replays it."""

    identity: str
    verdict: Outcome
    scenario: int
    case: str
    first: Divergence | None = None
    detail: str = ""


class CheckReport(Value, frozen=True, kw_only=True):
    """What `check` found.

    `counts` are what was exercised, `drafts` the same for the scenarios of each draft. `shares` says in how many
    scenarios each fact occurred, by its group, `met` how many pairs and triples of generated points met, `weights` how
    often a tensor of each kind was perturbed. `subject` is the subject's name, `versions` are the versions of its
    packages, `level` says how much it reports, `uncovered` has the facts that it cannot show, by the reason: none of
    them is required. `unseen` says in sentences what was not seen at all: scenarios, texts, drafts; `assumes` what a
    subject takes for granted. `features` are the features that were asked for, with the number of scenarios in which
    each had an effect; `together`: in how many scenarios all of them had one. The same seed gives the same report.
    """

    verdict: Outcome
    seed: int
    examples: int
    counts: dict[str, int]
    drafts: dict[str, dict[str, int]]
    contracts: tuple[Verdict, ...]
    findings: tuple[CheckFinding, ...] = ()
    shares: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    met: Met | None = None
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    subject: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    level: Level = "whole"
    uncovered: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    assumes: str = ""
    features: dict[str, int] = msgspec.field(default_factory=dict)
    together: int = 0


class CheckInterrupted(KeyboardInterrupt):
    """A check was interrupted when it had already found something; `report` is that of what had run by then."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        super().__init__()


class _Examined(NamedTuple):
    """A scenario's answer; if it ran to its end the judgement and the counts of it; which weights had their turn."""

    answer: Answer
    ended: list[tuple[Judgement, dict[str, int]]]
    weights: WeightTurns


@dataclass
class _CheckTally:
    judgements: list[Judgement] = field(default_factory=list)
    counts: list[dict[str, int]] = field(default_factory=list)
    findings: dict[Identity, CheckFinding] = field(default_factory=dict)
    broken: list[Answer] = field(default_factory=list)
    drafts: set[str] = field(default_factory=set)
    silent: list[int] = field(default_factory=list)
    weights: WeightTurns = field(default_factory=WeightTurns)

    def add(self, seen: _Examined) -> None:
        self.weights += seen.weights
        for judged, counted in seen.ended:
            self.judgements.append(judged)
            self.counts.append(counted)
            if not counted.get("scenarios_shown"):
                self.silent.append(seen.answer.number)
        if seen.answer.outcome not in (Outcome.PASS, Outcome.FAIL):
            self.broken.append(seen.answer)

    def is_known(self, identity: Identity) -> bool:
        return any(identity.is_same(other, "exact") for other in self.findings)


@dataclass(frozen=True)
class Checker:
    """How scenarios are checked. `cases`: where failing ones are kept; `deadline`: seconds for one scenario.

    `work` names the counts without which the whole is inconclusive, `each` those that the scenarios of every single
    draft must reach, beside what its kind asks for (None: nothing is asked of single drafts). With `guarded` scenarios
    of probes are held to their shares (S-PLAN-8), and their weights are perturbed (S-VAC-1). `processes` share many
    scenarios. `choice` is how the subject was named, for case files. Of scenarios that were selected by
    `features` nothing is asked that takes another one, and a contract that concerns none of them is skipped.
    """

    subject: Subject
    contracts: Sequence[Contract] = ALL
    cases: Path = _CASES
    reference: Reference = solved
    deadline: float = SCENARIO_DEADLINE
    work: Sequence[str] = WORK
    each: Sequence[str] | None = COMMON
    guarded: bool = True
    processes: int = 1
    choice: SubjectChoice = BUILT_IN_SUBJECT
    features: tuple[str, ...] = ()

    def check(self, scenarios: Iterable[Scenario], seed: int, progress: Progress = lambda: None) -> CheckReport:
        """Run and judge every scenario; `progress` is told of each.

        Raises what our own code raises, and CheckInterrupted for a KeyboardInterrupt after something was found.
        """
        require_subject(self.subject)
        limits = self.subject.limits
        listed, tally = [with_turns(one, limits) for one in fitted(scenarios, limits)], _CheckTally()
        has_probes = any(isinstance(one.model, ProbeModel) for one in listed)
        guard = WeightGuard(self.subject, seed, listed) if self.guarded and (has_probes or not listed) else None
        work = SideBySide(partial(self._examine, guard), listed, self.processes if len(listed) >= _MANY else 1)
        try:
            for scenario, seen in zip(listed, work, strict=True):
                tally.drafts.add(algorithm(scenario.draft))
                tally.add(seen)
                if seen.answer.identity is not None:
                    self._keep(seen.answer, seen.answer.identity, scenario, seed, tally)
                progress()
        except KeyboardInterrupt:
            if not tally.findings:
                raise
            done = listed[: len(tally.judgements) + len(tally.broken)]
            raise CheckInterrupted(self._report(done, tally, seed, guarded=False)) from None
        if self.subject.limits != limits:
            raise SubjectDeclarationError(
                f"invalid limits of {type(self.subject).__name__}: expected the same throughout a check"
            )
        return self._report(listed, tally, seed, guarded=guard is not None)

    def _report(self, listed: Sequence[Scenario], tally: _CheckTally, seed: int, *, guarded: bool) -> CheckReport:
        """Return what became of these scenarios; `guarded`: weights and shares are held to what they must be."""
        limits = self.subject.limits
        verdicts = summarise(tally.judgements, tally.counts, _asked(self.contracts, self.features))
        verdicts = skipped_where_unconcerned(verdicts) if self.features else verdicts
        # What was judged: a subject that is asked again may answer otherwise.
        each = [one.channels for one in tally.judgements] or self._declared(listed)
        channels = frozenset().union(*each)
        not_seen = observation_gaps(total(tally.counts), channels, tally.silent)
        beyond = uncovered(limits, channels)
        effects = in_effect(self.features, tally.counts)
        at_once = together(self.features, tally.counts) if self.features else 0
        inert = without_effect(effects, at_once, frozenset().union(*(one.names for one in beyond)))
        runs = _runs(tally, self.work, (*not_seen.missing, *inert))
        drafts = [name for name in ALGORITHMS if name in tally.drafts]
        if self.each is not None:
            own = by_draft(tally.judgements, tally.counts, wanted=drafts, common=self.each)
            verdicts = (*own, *verdicts)
        guards = (tally.weights.verdict(), shares.verdict(total(tally.counts))) if guarded else ()
        verdicts = (runs, *guards, *verdicts)
        return CheckReport(
            verdict=worst([verdict.verdict for verdict in verdicts]),
            seed=seed,
            examples=runs.scenarios,
            counts=total(tally.counts),
            drafts={name: _of_draft(name, tally) for name in drafts},
            contracts=verdicts,
            findings=tuple(tally.findings.values()),
            shares=came_up(tally.counts),
            met=met_by([one for one in listed if isinstance(one.model, ProbeModel)]),
            weights=dict(sorted(tally.weights.tried.items())),
            subject=self.subject.name,
            versions=versions_of(self.subject),
            level=level_of(channels, frozenset().union(*(one.left_out for one in tally.judgements))),
            uncovered={one.because: tuple(sorted(one.names)) for one in beyond},
            unseen=(*not_seen.told, *shown_in_part((one.applying, one.channels) for one in tally.judgements)),
            assumes=assumed(self.subject),
            features=effects,
            together=at_once,
        )

    def _declared(self, scenarios: Iterable[Scenario]) -> list[frozenset[str]]:
        """Return the channels that a subject declares, if no run of it came to its end; nothing if that raises."""
        try:
            return list(map(self.subject.channels, scenarios))
        except Exception:
            return []

    def _examine(self, guard: WeightGuard | None, number: int, scenario: Scenario) -> _Examined:
        ended: list[tuple[Judgement, dict[str, int]]] = []
        weights = WeightTurns()

        def observe(ran: Evidence, judged: Judgement) -> None:
            nonlocal weights
            ended.append((judged, counts(ran)))
            if guard:
                weights = guard.perturb(number, ran)

        executor = Executor(
            self.subject,
            contracts=self.contracts,
            reference=self.reference,
            deadline=self.deadline,
            observe=observe,
        )
        answer = executor.examine(Order(number=number, scenario=scenario, measured=False))
        return _Examined(answer, ended, weights)

    def _keep(self, answer: Answer, identity: Identity, scenario: Scenario, seed: int, tally: _CheckTally) -> None:
        """Save the first scenario of each identity."""
        if tally.is_known(identity) or len(tally.findings) >= MOST_CASES:
            return
        name, label = algorithm(scenario.draft), identity.label
        selected = "".join(f" --with {feature}" for feature in self.features)
        origin = f"draftproof check --seed {seed}{selected}, scenario {answer.number}, draft {name}: {label}"
        script = self.reference(scenario).script
        case = Case(scenario=scenario, script=script, origin=origin, subject=self.choice)
        # Another model or draft has other scenarios under the same seed and number.
        path = self.cases / f"seed{seed}-{answer.number}-{slug(label.split(':')[0])}-{fingerprint(scenario)}.json"
        write_whole(path, case_text(case))
        tally.findings[identity] = CheckFinding(
            identity=label,
            verdict=answer.outcome,
            scenario=answer.number,
            case=str(path),
            first=answer.first,
            detail=answer.detail,
        )


def check(
    subject: Subject,
    scenarios: Iterable[Scenario] | None = None,
    *,
    seed: int = 0,
    count: int = CHECK_EXAMPLES,
    progress: Progress = lambda: None,
) -> CheckReport:
    """Hold a subject to every contract on these scenarios, fitted to its limits; a failing one leaves a case file.

    Without `scenarios` they are `count` generated ones of the probes and drafts that it takes, of `seed`, which is in
    the report in either case. `progress` is called after each. What the subject raises is a CRASH in the report.
    Raises UnfitError for scenarios that no change makes runnable for it.
    """
    require_subject(subject)
    if scenarios is None and "probe" not in subject.limits.models:
        raise UnfitError(
            f"invalid scenarios None: expected those of a checkpoint, as checkpoint_scenarios(path) makes them:"
            f" {subject.name} takes no probes"
        )
    is_several = scenarios is None or isinstance(scenarios, Iterable)
    require_input(is_several, "scenarios", scenarios, "None, or a list of scenarios")
    drawn = generate(seed, count, subject.limits.drafts) if scenarios is None else scenarios
    return Checker(subject).check(drawn, seed, progress)


def _asked(contracts: Sequence[Contract], features: Sequence[str]) -> Sequence[Contract]:
    """Return contracts that ask for nothing of other features than these; all that they ask for if there are none."""
    if not features:
        return contracts
    others = not_asked_with(features)
    return [replace(one, minimum=tuple(name for name in one.minimum if name not in others)) for one in contracts]


def _of_draft(name: str, tally: _CheckTally) -> dict[str, int]:
    """Return the counts of the scenarios with this draft that ran to their end."""
    return total(own for one, own in zip(tally.judgements, tally.counts, strict=True) if one.draft == name)


def _runs(tally: _CheckTally, work: Sequence[str], lacking: Sequence[str]) -> Verdict:
    """Whether every scenario ran to its end, and with work in it; `lacking` is what else was not seen."""
    scenarios = len(tally.judgements) + len(tally.broken)
    if tally.broken:
        verdict = worst([answer.outcome for answer in tally.broken])
        first = tally.broken[0]
        reason = f"{len(tally.broken)} of {scenarios} did not finish; the first: {first.reason}"
        return Verdict(name=RUNS_CONTRACT, verdict=verdict, scenarios=scenarios, reason=reason)
    done = total(tally.counts)
    beyond = frozenset.intersection(*(one.unreachable for one in tally.judgements)) if tally.judgements else frozenset()
    missing = (*unreached(work, done, beyond), *lacking)
    verdict = Outcome.INCONCLUSIVE if missing or not scenarios else Outcome.PASS
    return Verdict(name=RUNS_CONTRACT, verdict=verdict, scenarios=scenarios, missing=missing)


def checker(
    subject: Subject,
    contracts: Sequence[Contract],
    *,
    named: bool,
    real: bool,
    device: str,
    choice: SubjectChoice = BUILT_IN_SUBJECT,
    features: tuple[str, ...] = (),
) -> Checker:
    """Return a checker for contracts; on a CPU it has a process a core, and at most _MOST_PROCESSES.

    Contracts that were asked for by name, or for scenarios that were selected by features, only have to reach their own
    minimum, and a real model runs less.
    """
    # A fork would take along what only one process may use: a device, a connection, another library's threads.
    cores = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
    processes = 1 if device == "cuda" or not is_engine(subject) else cores
    if named or features:
        made = Checker(subject, contracts, work=(), each=None, guarded=False, processes=processes, choice=choice)
        return replace(made, features=features)
    if real:
        return Checker(subject, contracts, each=REAL, guarded=False, processes=processes, choice=choice)
    return Checker(subject, contracts, processes=processes, choice=choice)


def whole_check(
    of_traces: Checker, scenarios: Iterable[Scenario], calls: KernelCalls, seed: int, device: str, progress: Progress
) -> CheckReport:
    """Check scenarios and calls of kernels; without scenarios only kernels. `progress` is told of each op as well."""
    # It imports torch, which another project's subject may do without.
    from draftproof.harness.kernel_check import kernel_verdicts

    report = of_traces.check(scenarios, seed, progress)
    report = msgspec.structs.replace(report, contracts=report.contracts if report.examples else ())
    try:
        for of_op in kernel_verdicts(calls, seed, device):
            report = msgspec.structs.replace(report, contracts=(*report.contracts, of_op))
            progress()
    except KeyboardInterrupt:
        if not report.findings:
            raise
        raise CheckInterrupted(report) from None
    counts = {**report.counts, "kernel_calls": sum(map(len, calls.values()))}
    verdict = worst([one.verdict for one in report.contracts])
    return msgspec.structs.replace(report, verdict=verdict, counts=counts)


def badly_closed(report: CheckReport, crash: SubjectCrashedError) -> CheckReport:
    """Return the report with the crash of a subject that was closed."""
    told = Verdict(name=f"{RUNS_CONTRACT}.close", verdict=Outcome.CRASH, scenarios=report.examples, reason=str(crash))
    verdict = worst([report.verdict, told.verdict])
    return msgspec.structs.replace(report, verdict=verdict, contracts=(told, *report.contracts))


def unless_skipped(report: CheckReport, names: Sequence[str]) -> CheckReport:
    """Return the report, inconclusive if a contract or group that was asked for by name could judge nothing."""
    judged = [one.name for one in report.contracts if one.verdict is not Outcome.SKIP]
    skipped = report.verdict is Outcome.PASS and not {*judged, *map(group_of, judged)}.issuperset(names)
    return msgspec.structs.replace(report, verdict=Outcome.INCONCLUSIVE) if skipped else report
