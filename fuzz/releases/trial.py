"""Run scenarios on one release of an engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.fuzz.releases.environment import NotInstalledError, python_of
from draftproof.fuzz.releases.packages import Recipe
from draftproof.harness.execute import Executor
from draftproof.harness.remote import RemoteStartError, RemoteSubject
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.fit import UnfitError, fit
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome


class NotRunnableError(NotInstalledError):
    """A release whose subject cannot be made; the message says why."""


@dataclass(frozen=True)
class Releases:
    """A package, and how its releases are run: what drives them, where they are kept, the seconds for a scenario.

    `settings` are those of the subject, `search` is its PYTHONPATH.
    """

    package: str
    recipe: Recipe
    folder: Path
    timeout: float
    settings: Mapping[str, str] = field(default_factory=dict)
    search: str = ""

    def answers(self, version: str, scenarios: Sequence[Scenario]) -> list[Answer | UnfitError]:
        """Return an answer for each scenario, fitted to what the subject can run, or why it cannot run it.

        The subject has a process of its own, so that it may die or hang there. Raises NotInstalledError, and
        RuntimeError for an error of our own.
        """
        python = python_of(self.package, version, self.recipe, self.folder)
        choice = SubjectChoice(name=self.recipe.subject, python=str(python), settings=dict(self.settings))
        try:
            with closing(RemoteSubject(choice, search=self.search)) as subject:
                executor = Executor(subject, deadline=self.timeout)
                return [_answer(executor, i, scenario, subject.limits) for i, scenario in enumerate(scenarios)]
        except RemoteStartError as error:
            raise NotRunnableError(str(error)) from None


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
