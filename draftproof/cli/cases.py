"""The case that a command runs again, and where its checkpoints are on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import inputs, screen
from draftproof.cli.subjects import CaseFile, UnderTest, limits_of
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.report.commands import command

if TYPE_CHECKING:
    from draftproof.properties.values.limits import Limits
    from draftproof.properties.values.scenario import Scenario
    from draftproof.properties.values.script import Script

Model = Annotated[
    Path | None, typer.Option("--model", help="Where the case's target is, if it is not where the case says.")
]
Folder = Annotated[Path | None, typer.Option("--draft-model", help="The same of its draft.")]


def read(paths: Sequence[Path]) -> list[Scenario]:
    """Return the scenarios of case files whose checkpoints are there. Raises what `given` raises."""
    from draftproof.properties.formats.case import read_case
    from draftproof.properties.values.located import located, require_folders

    found = [located(read_case(path)[0]) for path in paths]
    for path, scenario in zip(paths, found, strict=True):
        require_folders(scenario, path, prefix="")
    return found


def keep(path: Path, scenario: Scenario, origin: str) -> None:
    """Write a case that the built-in engine fails. Raises InputError."""
    from draftproof.properties.formats.case import Case, case_text
    from draftproof.reference.solved import solved

    made = Case(scenario=scenario, script=solved(scenario).script, origin=origin)
    inputs.write_text("the case", path, case_text(made))


class GivenCase(NamedTuple):
    """A case file, what is in it, and the options that say where its checkpoints are.

    `fault` is the id of the one that the case was found with ("": none), `subject` the subject.
    """

    path: Path
    scenario: Scenario
    script: Script | None
    where: dict[str, object]
    fault: str = ""
    subject: SubjectChoice = BUILT_IN_SUBJECT

    def limits(self, under_test: UnderTest) -> Limits:
        """Return what the subject can run. Raises UnfitError for a case beyond that."""
        from draftproof.properties.fit import require_fit

        found, _ = limits_of(under_test)
        require_fit(self.scenario, found, str(self.path))
        return found

    def missing_fault(self, under_test: UnderTest) -> str:
        """Return the id of the fault that the case was found with and this run is without ("": none)."""
        return "" if self.fault == under_test.fault_id() else self.fault

    def show_missing(self, under_test: UnderTest) -> None:
        """Print why the case may not fail here: it was found with a fault, or with options, that this run is without.

        A case of the built-in engine is meant for every subject.
        """
        if fault := self.missing_fault(under_test):
            screen.line(f"found with --fault {fault}; this run is without it")
        if self.subject not in (BUILT_IN_SUBJECT, under_test.choice):
            options = command(**self.subject.options).removeprefix("draftproof ")
            screen.line(f"found with {options}; this run has other options")

    def show_passing(self, under_test: UnderTest, verdict: Outcome, do: str) -> None:
        """Say that the case does not fail, so that there is nothing to `do`, and what this run is without."""
        self.show_missing(under_test)
        screen.line(f"{self.path} does not fail: {verdict}. There is nothing to {do}.", "bold")


def given(case: CaseFile, model: Model = None, draft_model: Folder = None) -> GivenCase:
    """Return a case whose checkpoints are there. Raises InvalidScenarioError and CheckpointError."""
    from draftproof.properties.formats.case import case_fault, case_subject, read_case
    from draftproof.properties.values.located import located, require_folders

    scenario, script = read_case(case)
    scenario = located(scenario, model or "", draft_model or "")
    require_folders(scenario, case)
    where: dict[str, object] = {"model": model, "draft_model": draft_model}
    return GivenCase(case, scenario, script, where, case_fault(case), case_subject(case))
