"""Where the checkpoints of a scenario are: a case file is read in other folders than it was written in."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, Scenario

TARGET, DRAFT = "--model", "--draft-model"


def folders(scenario: Scenario) -> dict[str, str]:
    """Return the folders of a scenario's checkpoints, by the option that names each."""
    model, draft = scenario.model, scenario.draft
    found = {
        TARGET: model.path if isinstance(model, Checkpoint) else "",
        DRAFT: draft.path if isinstance(draft, CheckpointDraft) else "",
    }
    return {option: path for option, path in found.items() if path}


def located(scenario: Scenario, model: str | Path = "", draft_model: str | Path = "") -> Scenario:
    """Return the scenario with its checkpoints in these folders, or in its own by their absolute paths.

    Raises CheckpointError for a folder that the scenario has no use for.
    """
    given, own = {TARGET: model, DRAFT: draft_model}, folders(scenario)
    for option, path in given.items():
        if path and option not in own:
            what = "target" if option == TARGET else "draft"
            raise CheckpointError(f"invalid {option} '{path}': expected none, as the case has no {what} in a folder")
    paths = {option: str(Path(given[option] or path).absolute()) for option, path in own.items()}
    model_, draft = scenario.model, scenario.draft
    if TARGET in paths and isinstance(model_, Checkpoint):
        model_ = replace(model_, path=paths[TARGET])
    if DRAFT in paths and isinstance(draft, CheckpointDraft):
        draft = replace(draft, path=paths[DRAFT])
    return replace(scenario, model=model_, draft=draft)


def require_folders(scenario: Scenario, case: str | Path, prefix: str = "--") -> None:
    """Raise CheckpointError for a case whose checkpoints are not there; options that name them begin with `prefix`.

    With prefix "" there are no such options.
    """
    for option, path in folders(scenario).items():
        if not (Path(path) / "config.json").is_file():
            what = "target" if option == TARGET else "draft"
            hint = f", or {prefix}{option.removeprefix('--')} with its folder" if prefix else ""
            raise CheckpointError(f"{case}: there is no checkpoint at {path}: expected its {what} there{hint}")
