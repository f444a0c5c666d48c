"""A subject held to every contract, in a test: what is run, and how a failure is told."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from draftproof.harness.chat_turns import with_turns
from draftproof.harness.check import MOST_CASES
from draftproof.harness.execute import SCENARIO_DEADLINE, Executor
from draftproof.harness.identity import Identity, Level, fingerprint
from draftproof.harness.subjects import is_engine, make_from
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.coverage.shown import CHANNELS_THAT_SHOW_DRAFTS, ObservationGaps, observation_gaps
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.fit import UnfitError, fit, fit_generated
from draftproof.properties.formats.case import Case, case_text, read_case
from draftproof.properties.judge import RUNS_CONTRACT, Judgement, summarise
from draftproof.properties.lib.devices import Device, present
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.lib.files import write_whole
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, algorithm, read_from
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.located import located
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.subject import Subject, require_subject
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.pytest_failures import ContractError, Failure
from draftproof.pytest_summary import JUDGED, LACKING, SCENARIOS, UNNAMED
from draftproof.reference.solved import solved
from draftproof.report.commands import command
from draftproof.report.text import sentence

_SAME: Level = "relation"
"""Failures of one test that differ in numbers only are told once."""
_CASES = Path(".draftproof/cases")
_BLOCK = 60
"""Scenarios of a campaign come from one seed after another, this many from each."""


@dataclass(frozen=True)
class ProfileScenarios:
    """Scenarios to iterate over any number of times: always the same ones, except for how far a campaign gets.

    `share` (which, of how many) are taken in turns from `count`; with `seconds` instead, seeds are. `case`: a file that
    replaces them all. `model` is a checkpoint in place of probes, `draft_model` its draft's; with `mtp` its own first
    MTP layer is an EAGLE head. With `ranks` there are only scenarios of several ranks, from as many seeds as that
    takes.
    """

    seed: int
    count: int
    seconds: float = 0.0
    drafts: tuple[Algorithm, ...] = ALGORITHMS
    share: tuple[int, int] = (0, 1)
    case: str | None = None
    model: str | None = None
    draft_model: str | None = None
    mtp: bool = False
    ranks: bool = False

    def within(self, limits: Limits) -> ProfileScenarios:
        """Return the scenarios of the drafts that a subject has; all where it has none of them, and is told so."""
        return replace(self, drafts=tuple(name for name in self.drafts if name in limits.drafts) or self.drafts)

    def __iter__(self) -> Iterator[Scenario]:
        if self.case is not None:
            return iter([located(read_case(Path(self.case))[0], self.model or "", self.draft_model or "")])
        if self.count:
            return iter(self._drawn(self.seed, self.count)[self.share[0] :: self.share[1]])
        return self._campaign()

    def _drawn(self, seed: int, count: int) -> list[Scenario]:
        if self.ranks:
            return self._of_ranks(seed, count)
        if self.model is None:
            return generate(seed, count, self.drafts)
        from draftproof.harness.checkpoint_scenarios import every_draft, one_draft, real_scenarios

        path, folder = Path(self.model), Path(self.draft_model) if self.draft_model else None
        if self.mtp or len(self.drafts) == 1:
            name = read_from("directory or seed")[0] if self.mtp else self.drafts[0]
            return real_scenarios(path, [one_draft(path, name, folder, seed, built_in=self.mtp)], seed, count)
        offered = [one for one in every_draft(path, folder, seed).drafts if one.name in self.drafts]
        return real_scenarios(path, offered, seed, count)

    def _of_ranks(self, seed: int, count: int) -> list[Scenario]:
        """Return scenarios of data-parallel and of tensor-parallel ranks in turn."""
        data, tensor = list[Scenario](), list[Scenario]()
        while min(len(data), len(tensor)) < (count + 1) // 2:
            for one in generate(seed, _BLOCK, self.drafts):
                if one.ranks.size > 1:
                    (tensor if one.ranks.tensor > 1 else data).append(one)
            seed += 1
        return [one for both in zip(data, tensor, strict=False) for one in both][:count]

    def _campaign(self) -> Iterator[Scenario]:
        until, (seed, step) = time.monotonic() + self.seconds, self.share
        while True:
            for scenario in self._drawn(self.seed + seed, _BLOCK):
                yield scenario
                if time.monotonic() > until:
                    return
            seed += step


@dataclass(frozen=True)
class Checked:
    """What a check that found nothing came to: a verdict for each contract."""

    scenarios: int
    contracts: tuple[Verdict, ...]

    def of(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the names of the contracts with this verdict."""
        return tuple(one.name for one in self.contracts if one.verdict is outcome)


@dataclass(frozen=True)
class Check:
    """What the fixture draftproof_check is.

    `subject` makes the one that is meant if none is given, `cases` is where failing ones are kept, `test` the id of the
    test, `choice` how the subject was named, `share` which part of its scenarios these are (which, of how many), and
    `record` is told properties of it.
    """

    subject: Callable[[], Subject]
    scenarios: Iterable[Scenario]
    cases: Path = _CASES
    test: str = ""
    device: str = "cpu"
    choice: SubjectChoice = BUILT_IN_SUBJECT
    share: tuple[int, int] = (0, 1)
    record: Callable[[tuple[str, object]], None] = field(default=lambda _: None)

    def __call__(
        self,
        subject: Subject | None = None,
        *,
        scenarios: Iterable[Scenario] | None = None,
        contracts: Sequence[str] = (),
        strict: bool = False,
    ) -> Checked:
        """Hold a subject to every contract, or to the named ones, on the profile's scenarios, or on given ones.

        Raises ContractError with a case file for each kind of failure; AssertionError where no contract could be judged
        at all, where the subject did not show every scenario, or no draft, or, if `strict`, where any contract could
        not be judged for lack of what it needs. Raises UnfitError or CheckpointError for scenarios that the subject, or
        this machine, cannot run.
        """
        __tracebackhide__ = True
        held = subject if subject is not None else self.subject()
        wanted = named_contracts(contracts)
        own = self.scenarios.within(held.limits) if isinstance(self.scenarios, ProfileScenarios) else self.scenarios
        drawn, to_fit = (own, fit_generated) if scenarios is None else (scenarios, fit)
        choice = self.choice if subject is None else BUILT_IN_SUBJECT
        try:
            judged, counted, found = self._run(
                held, (with_turns(to_fit(one, held.limits), held.limits) for one in drawn), wanted, choice
            )
        except (UnfitError, CheckpointError) as error:
            # What cannot be run is told in a sentence; where in here it was noticed says nothing.
            told = str(error)
            if scenarios is None and told.endswith("expected checkpoint, for this subject"):
                told += "; name one with --draftproof-model"
            raise type(error)(told) from None
        if subject is None and self.choice == BUILT_IN_SUBJECT and is_engine(held):
            self.record((UNNAMED, "yes"))
        ran = len(judged) + len(found)
        self.record((SCENARIOS, ran))
        not_seen = _not_seen(judged, counted)
        checked = Checked(ran, (*_runs(not_seen, counted), *summarise(judged, counted, wanted)))
        self.record((JUDGED, " ".join(checked.of(Outcome.PASS))))
        # Where no scenario passed, failures say why nothing was judged.
        self.record((LACKING, " ".join(checked.of(Outcome.INCONCLUSIVE)) if judged or not found else ""))
        if found:
            raise ContractError(tuple({one.identity.text: one for one in reversed(found)}.values())[::-1][:MOST_CASES])
        shared = self.share[1] > 1 and scenarios is None
        # Whether a draft was seen is asked of whole checks, not of a share of one.
        demanded = _not_seen(judged, counted, frozenset()) if shared else not_seen
        _conclusive(checked, held, demanded, strict, shared=shared)
        return checked

    def _run(
        self,
        subject: Subject,
        scenarios: Iterable[Scenario],
        contracts: tuple[Contract, ...],
        choice: SubjectChoice,
    ) -> tuple[list[Judgement], list[dict[str, int]], list[Failure]]:
        judged: list[Judgement] = []
        counted: list[dict[str, int]] = []
        found: list[Failure] = []
        # Two tests may have two subjects that fail alike, and so may two shares of one.
        which, of = self.share
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.test).strip("-") + (f"-share{which + 1}of{of}" if of > 1 else "")

        def observe(ran: Evidence, judgement: Judgement) -> None:
            if judgement.first is None:
                judged.append(judgement)
                counted.append(counts(ran))

        executor = Executor(subject, contracts=contracts, deadline=SCENARIO_DEADLINE, observe=observe)
        for scenario in scenarios:
            failure = _hold(executor, scenario)
            if failure is not None:
                # The first of a kind is the one that is told.
                is_known = any(one.identity.is_same(failure.identity, _SAME) for one in found)
                kept = failure if is_known else _kept(failure, scenario, self.cases / name, choice)
                found.append(self._replayable(kept, subject, choice))
        return judged, counted, found

    def _replayable(self, found: Failure, subject: Subject, choice: SubjectChoice) -> Failure:
        if is_engine(subject) or choice != BUILT_IN_SUBJECT:
            return found._replace(replay=command("replay", found.case, device=self.device, **choice.options))
        again = shlex.join(["pytest", self.test, "--draftproof-case", found.case])
        return found._replace(replay=again) if self.test else found


def _not_seen(
    judged: Sequence[Judgement],
    counted: Sequence[Mapping[str, int]],
    of_drafts: frozenset[str] = CHANNELS_THAT_SHOW_DRAFTS,
) -> ObservationGaps:
    """Return what was not seen, of drafts on these channels, that forbids a pass (S-SUBJECT-5, S-SUBJECT-6)."""
    channels = frozenset().union(*(one.channels for one in judged)) & of_drafts
    silent = [number for number, one in enumerate(counted) if not one.get("scenarios_shown")]
    return observation_gaps(total(counted), channels, silent)


def _runs(not_seen: ObservationGaps, counted: Sequence[Mapping[str, int]]) -> tuple[Verdict, ...]:
    """Return the verdict that what was not seen forbids a pass, if it does."""
    if not not_seen.missing:
        return ()
    shown = total(counted)["scenarios_shown"]
    return (Verdict(name=RUNS_CONTRACT, verdict=Outcome.INCONCLUSIVE, scenarios=shown, missing=not_seen.missing),)


def assert_holds(subject: Subject, scenario: Scenario, *, device: str = "cpu", cases: Path = _CASES) -> None:
    """Hold a subject to every contract on one scenario, fitted to its limits: for tests of your own.

    It goes with Hypothesis's @given, too. `device` is where the engine runs, if that is the subject. Raises
    ContractError, an AssertionError, with the divergence and a case file, a plain AssertionError where the subject
    reports nothing that a contract could judge, and UnfitError for a scenario that no change makes runnable for it.
    """
    __tracebackhide__ = True
    require_subject(subject)
    scenario = fit(scenario, subject.limits)
    judged = list[Judgement]()
    executor = Executor(subject, deadline=SCENARIO_DEADLINE, observe=lambda _ran, one: judged.append(one))
    failure = _hold(executor, scenario)
    if failure is None and not all(one.passed for one in judged):
        raise AssertionError(f"INCONCLUSIVE: {subject.name} reports nothing of it that any contract could judge")
    if failure is not None:
        kept = _kept(failure, scenario, cases)
        again = command("replay", kept.case, device=device) if is_engine(subject) else ""
        raise ContractError((kept._replace(replay=again),))


def make_subject(choice: SubjectChoice, device: Device, search: str = "") -> Subject:
    """Return the subject of a choice, or the engine; `search` is PYTHONPATH in another Python. Raises ValueError."""
    if not choice.python:
        present(device, "--draftproof-device")
    try:
        return make_from(SubjectSpec(device=device, subject=choice, search=search))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"invalid --draftproof-subject {choice.name!r}: expected package.module:name ({error})"
        ) from error


def named_contracts(names: Sequence[str]) -> tuple[Contract, ...]:
    """Return all contracts, or the named ones. Raises ValueError."""
    known = {contract.name: contract for contract in ALL}
    for name in names:
        if name not in known:
            raise ValueError(f"invalid contract {name!r}: expected {', '.join(known)}")
    return tuple(known[name] for name in names) or tuple(ALL)


def _hold(executor: Executor, scenario: Scenario) -> Failure | None:
    """Run and judge one scenario; the failure, if there is one."""
    answer = executor.examine(Order(number=0, scenario=scenario, measured=False))
    identity = answer.identity
    if answer.first is not None and identity is not None:
        return Failure(Outcome.FAIL, identity, f"{identity.contract}: {sentence(answer.first)}", "")
    if answer.outcome is Outcome.PASS:
        return None
    identity = identity or Identity(contract=answer.outcome.lower(), channel=answer.error, exact=answer.message)
    return Failure(answer.outcome, identity, f"{identity.contract}: {answer.reason}", "", detail=answer.detail)


def _kept(found: Failure, scenario: Scenario, cases: Path, choice: SubjectChoice = BUILT_IN_SUBJECT) -> Failure:
    """Write the case file, one for each identity and draft: with Hypothesis the last one, which is the smallest."""
    origin = f"pytest: {found.identity.text}"
    case = Case(scenario=scenario, script=solved(scenario).script, origin=origin, subject=choice)
    draft: str = algorithm(scenario.draft)
    if isinstance(scenario.model, Checkpoint):
        draft = f"{draft}-{fingerprint(scenario.model)}-{fingerprint(scenario.draft)}"
    path = cases / f"{found.identity.slug}-{draft}.json"
    write_whole(path, case_text(case))
    inside = path.resolve().is_relative_to(Path.cwd())
    return found._replace(case=str(path.resolve().relative_to(Path.cwd()) if inside else path))


def _conclusive(checked: Checked, subject: Subject, not_seen: ObservationGaps, strict: bool, *, shared: bool) -> None:
    """Raise AssertionError where a pass would prove nothing. One share of several may have no scenarios."""
    __tracebackhide__ = True
    if not checked.scenarios:
        if shared:
            return
        raise AssertionError(f"INCONCLUSIVE: {subject.name} was given no scenarios: expected at least one")
    if not any(one.scenarios for one in checked.contracts):
        raise AssertionError(f"INCONCLUSIVE: {subject.name} reports nothing that any contract could judge")
    if not_seen.missing:
        raise AssertionError(f"INCONCLUSIVE: {subject.name}: {'; '.join(not_seen.told)}")
    lacking = [f"{one.name} ({', '.join(one.missing)})" for one in checked.contracts if one.missing]
    if strict and lacking:
        raise AssertionError(f"INCONCLUSIVE: not enough was exercised to judge {'; '.join(lacking)}")
