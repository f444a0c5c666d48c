"""Run scenarios on one release of an engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.fuzz.releases.environment import NotInstalledError, python_of
from draftproof.fuzz.releases.packages import Recipe
from draftproof.harness.remote import RemoteStartError, RemoteSubject
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
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
    work: Path
    timeout: float
    settings: Mapping[str, str] = field(default_factory=dict)
    search: str = ""

    def answers(self, version: str, scenarios: Sequence[Scenario]) -> list[Answer | UnfitError]:
        """Return an answer for each scenario, fitted to what the subject can run, or why it cannot run it.

        Raises NotInstalledError, and RuntimeError for an error of our own.
        """
        python = python_of(self.package, version, self.recipe, self.folder)
        choice = SubjectChoice(name=self.recipe.subject, python=str(python), settings=dict(self.settings))
        limits = self._limits(choice)
        fitting = [_fitted(scenario, limits) for scenario in scenarios]
        runnable = [(i, one) for i, one in enumerate(fitting) if isinstance(one, Scenario)]
        spec = SubjectSpec(device="cpu", subject=choice, search=self.search)
        try:
            with Pool(spec, 1, self.work / version, deadline=self.timeout) as pool:
                answers = pool.run([Order(number=i, scenario=scenario) for i, scenario in runnable])
        except WorkerStartError as error:
            lines = [one.strip() for one in str(error).splitlines() if one.strip()]
            raise NotRunnableError(f"its subject cannot be made: {lines[-1][:300]}") from None
        for answer in answers:
            if answer.outcome is Outcome.ERROR:
                raise RuntimeError(answer.detail or answer.reason)
        ran = dict(zip((i for i, _ in runnable), answers, strict=True))
        return [one if isinstance(one, UnfitError) else ran[i] for i, one in enumerate(fitting)]

    def _limits(self, choice: SubjectChoice) -> Limits:
        """Return what the subject of a release can run. Raises NotRunnableError."""
        try:
            with closing(RemoteSubject(choice, search=self.search)) as subject:
                return subject.limits
        except RemoteStartError as error:
            raise NotRunnableError(str(error)) from None


def _fitted(scenario: Scenario, limits: Limits) -> Scenario | UnfitError:
    try:
        return fit(scenario, limits)
    except UnfitError as error:
        return error


def timed(started: float) -> float:
    """Return the seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - started, 3)
