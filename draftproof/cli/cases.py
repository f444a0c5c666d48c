"""The case that a command runs again, and where its checkpoints are on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli.subjects import CaseFile

if TYPE_CHECKING:
    from draftproof.properties.values.scenario import Scenario
    from draftproof.properties.values.script import Script

Model = Annotated[
    Path | None, typer.Option("--model", help="Where the case's target is, if it is not where the case says.")
]
Folder = Annotated[Path | None, typer.Option("--draft-model", help="The same of its draft.")]


def read(paths: Sequence[Path]) -> list[Scenario]:
    """Return the scenarios of case files whose checkpoints are there. Raises what `given` raises."""
    from draftproof.properties.values.case import read_case
    from draftproof.properties.values.located import located, require_folders

    found = [located(read_case(path)[0]) for path in paths]
    for path, scenario in zip(paths, found, strict=True):
        require_folders(scenario, path, prefix="")
    return found


class GivenCase(NamedTuple):
    """A case file, what is in it, and the options that say where its checkpoints are.

    `fault` is the id of the one that the case was found with ("": none).
    """

    path: Path
    scenario: Scenario
    script: Script | None
    where: dict[str, object]
    fault: str = ""


def given(case: CaseFile, model: Model = None, draft_model: Folder = None) -> GivenCase:
    """Return a case whose checkpoints are there. Raises InvalidScenarioError and CheckpointError."""
    from draftproof.properties.values.case import case_fault, read_case
    from draftproof.properties.values.located import located, require_folders

    scenario, script = read_case(case)
    scenario = located(scenario, model or "", draft_model or "")
    require_folders(scenario, case)
    return GivenCase(case, scenario, script, {"model": model, "draft_model": draft_model}, case_fault(case))
