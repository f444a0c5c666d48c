"""Run scenarios on one release of an engine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.fuzz.releases.environment import NotInstalledError, python_of
from draftproof.fuzz.releases.packages import PackagePart, Recipe
from draftproof.fuzz.releases.plans import Plan
from draftproof.fuzz.releases.wheels import unpacked_wheel
from draftproof.harness.execute import Executor
from draftproof.harness.remote import RemoteStartError, RemoteSubject
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.fit import UnfitError, fit
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome


class NotRunnableError(NotInstalledError):
    """A release for which no subject can be made; the message says why."""


@dataclass(frozen=True)
class PartAnswers:
    """What a part of a release answered, or why it did not: `absent` in this release, or `broken`."""

    name: str
    answers: tuple[Answer | UnfitError, ...] = ()
    absent: str = ""
    broken: str = ""


@dataclass(frozen=True)
class Releases:
    """A package, and how its releases are run: what drives them, where they are kept, the seconds for a scenario.

    `settings` are the subject's, `search` is its PYTHONPATH; in place of the index `wheels` is a folder with wheels, or
    `engines` one with unpacked releases, which this Python runs.
    `begin` is called with each release that is tried, `watch` with what is being done with it.
    """

    package: str
    recipe: Recipe
    folder: Path
    timeout: float
    settings: Mapping[str, str] = field(default_factory=dict)
    search: str = ""
    wheels: Path | None = None
    engines: Path | None = None
    begin: Callable[[str], None] = lambda _version: None
    watch: Callable[[str], None] = lambda _doing: None

    def answers(self, version: str, scenarios: Sequence[Scenario]) -> list[Answer | UnfitError]:
        """Return an answer for each scenario, fitted to what the subject can run, or why it cannot run it.

        The subject has a process of its own, so that it may die or hang there. Raises NotInstalledError, and
        RuntimeError for an error of our own.
        """
        self.begin(version)
        self.watch(f"{version}: its environment is made ready")
        choice = self._choice(version)
        try:
            with closing(RemoteSubject(choice, search=self.search)) as subject:
                executor = Executor(subject, deadline=self.timeout)
                return self._answers(version, executor, scenarios, subject.limits)
        except RemoteStartError as error:
            raise NotRunnableError(str(error)) from None

    def _answers(
        self, what: str, executor: Executor, scenarios: Sequence[Scenario], limits: Limits
    ) -> list[Answer | UnfitError]:
        answers = []
        for number, scenario in enumerate(scenarios):
            self.watch(f"{what}: {number} of {len(scenarios)} scenarios done")
            answers.append(_answer(executor, number, scenario, limits))
        return answers

    def _choice(self, version: str) -> SubjectChoice:
        settings = dict(self.settings)
        if self.engines is not None:
            settings |= {"release": version, "engines": str(self.engines.resolve())}
            return SubjectChoice(name=self.recipe.subject, python=sys.executable, settings=settings)
        if not self.recipe.parts:
            python = str(python_of(self.package, version, self.recipe, self.folder))
            return SubjectChoice(name=self.recipe.subject, python=python, settings=settings)
        settings["wheel"] = str(unpacked_wheel(self.package, version, self.wheels))
        return SubjectChoice(name=self.recipe.subject, python=sys.executable, settings=settings)

    def parted(self, version: str, plan: Plan) -> list[PartAnswers]:
        """Return what each part of a release answers to its scenarios, all in one process, which imports it once.

        Raises NotInstalledError.
        """
        self.begin(version)
        self.watch(f"{version}: its wheel is made ready")
        wheel = str(unpacked_wheel(self.package, version, self.wheels))
        found, subject = [], None
        try:
            for part in plan.parts:
                settings = {"wheel": wheel, **part.settings}
                choice = SubjectChoice(name=part.subject, python=sys.executable, settings=settings)
                try:
                    if subject is None:
                        subject = RemoteSubject(choice, search=self.search)
                    else:
                        subject.again(choice)
                except RemoteStartError as error:
                    found.append(PartAnswers(part.name, broken=str(error)))
                    continue
                found.append(self._of_part(f"{version}, {part.name}", part, plan, subject))
        finally:
            if subject is not None:
                subject.close()
        return found

    def _of_part(self, what: str, part: PackagePart, plan: Plan, subject: RemoteSubject) -> PartAnswers:
        if lacking := [hook.where for hook in subject.hooks() if not hook.found]:
            return PartAnswers(part.name, absent=f"it has no {', '.join(lacking)}")
        executor = Executor(subject, deadline=self.timeout)
        scenarios = plan.scenarios(part, subject.limits)
        return PartAnswers(part.name, tuple(self._answers(what, executor, scenarios, subject.limits)))


def _answer(executor: Executor, number: int, scenario: Scenario, limits: Limits) -> Answer | UnfitError:
    try:
        fitting = fit(scenario, limits)
    except UnfitError as error:
        return error
    answer = executor.answer(Order(number=number, scenario=fitting))
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(answer.detail or answer.reason)
    return answer


def timed(started: float) -> float:
    """Return the seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - started, 3)
