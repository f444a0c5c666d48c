"""Run scenarios on one release of an engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.fuzz.releases.environment import NotInstalledError, python_of
from draftproof.fuzz.releases.packages import Recipe
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
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

    def answers(self, version: str, scenarios: Sequence[Scenario]) -> list[Answer]:
        """Return an answer for each scenario. Raises NotInstalledError, and RuntimeError for an error of our own."""
        python = python_of(self.package, version, self.recipe, self.folder)
        choice = SubjectChoice(name=self.recipe.subject, python=str(python), settings=dict(self.settings))
        spec = SubjectSpec(device="cpu", subject=choice, search=self.search)
        try:
            with Pool(spec, 1, self.work / version, deadline=self.timeout) as pool:
                found = pool.run([Order(number=i, scenario=scenario) for i, scenario in enumerate(scenarios)])
        except WorkerStartError as error:
            lines = [one.strip() for one in str(error).splitlines() if one.strip()]
            raise NotRunnableError(f"its subject cannot be made: {lines[-1][:300]}") from None
        for answer in found:
            if answer.outcome is Outcome.ERROR:
                raise RuntimeError(answer.detail or answer.reason)
        return found


def timed(started: float) -> float:
    """Return the seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - started, 3)
