"""Options of the pytest plugin that need more than a look."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

_PATHS = tuple(f"--draftproof-{name}" for name in ("model", "draft-model", "case", "python"))
if TYPE_CHECKING:
    from draftproof.properties.values.subject_choice import SubjectChoice


def option(config: pytest.Config, name: str, default: Any = None) -> Any:
    """Return what --draftproof-NAME says, or a default."""
    given = config.getoption(f"--draftproof-{name}")
    return default if given is None else given


def check_rootdir(config: pytest.Config) -> None:
    """Raise UsageError for a path that pytest took for one of tests: before it knows our options it reads them so."""
    params, own = config.invocation_params, config.invocation_params.dir.resolve()
    if config.inipath is not None or any(one.startswith("--rootdir") for one in params.args):
        return
    for name, value in itertools.pairwise(map(str, params.args)):
        path = (own / value).resolve()
        if name in _PATHS and path.exists() and not path.is_relative_to(own):
            raise pytest.UsageError(f"invalid {name} {value}: expected {name}={value}, as pytest takes it for tests")


def choice(config: pytest.Config) -> SubjectChoice:
    """Return the subject that the options name. Raises UsageError."""
    from draftproof.properties.values.subject_choice import SubjectChoice
    from draftproof.subjects.making import SubjectNameError, resolve_name

    name, python, url = (option(config, one, "") for one in ("subject", "python", "url"))
    given = option(config, "set", [])
    pairs = [one.partition("=") for one in given]
    if wrong := next((one for one in pairs if not (one[0].isidentifier() and one[1])), None):
        raise pytest.UsageError(f"invalid --draftproof-set {''.join(wrong)!r}: expected NAME=VALUE")
    if not name and (python or url or given):
        raise pytest.UsageError("invalid --draftproof-python, -url or -set: expected with --draftproof-subject")
    try:
        if name and not python:
            resolve_name(name)
    except SubjectNameError as error:
        raise pytest.UsageError(str(error).replace("invalid subject", "invalid --draftproof-subject", 1)) from None
    settings = {**({"url": url} if url else {}), **{key: value for key, _, value in pairs}}
    return SubjectChoice(name=name, python=python, settings=settings)


def check_draft(config: pytest.Config) -> None:
    """Raise UsageError for options of target and draft that do not go together."""
    from draftproof.properties.values.drafts import ALGORITHMS, read_from

    draft, model, folder = (option(config, name) for name in ("draft", "model", "draft-model"))
    mtp, (head, *_) = option(config, "mtp", False), read_from("directory or seed")
    if draft is not None and draft not in ALGORITHMS:
        raise pytest.UsageError(f"invalid --draftproof-draft {draft!r}: expected {', '.join(ALGORITHMS)}")
    for name, given in (("draft-model", folder is not None), ("mtp", mtp)):
        if given and model is None:
            raise pytest.UsageError(f"invalid --draftproof-{name}: expected only together with --draftproof-model")
    if mtp and (folder is not None or draft not in (None, head)):
        told = f"--draftproof-draft {draft}" if folder is None else f"--draftproof-draft-model {folder}"
        raise pytest.UsageError(f"invalid --draftproof-mtp with {told}: expected --draftproof-draft {head} alone")
    if model is not None and folder is None and draft in read_from("directory"):
        raise pytest.UsageError(
            f"invalid --draftproof-draft {draft!r}: expected --draftproof-draft-model with its checkpoint"
        )


def check_case(path: str, model: str, draft_model: str) -> None:
    """Raise UsageError for a case that cannot be read, or whose checkpoints are not there."""
    from draftproof.properties.formats.case import read_case
    from draftproof.properties.lib.errors import CheckpointError
    from draftproof.properties.lib.invalid import InvalidScenarioError
    from draftproof.properties.values.located import located, require_folders

    try:
        require_folders(located(read_case(Path(path))[0], model, draft_model), path, "--draftproof-")
    except CheckpointError as error:
        raise pytest.UsageError(f"invalid --draftproof-case: {error}") from None
    except InvalidScenarioError as error:
        raise pytest.UsageError(
            f"invalid --draftproof-case {path!r}: expected a case file or a scenario; {error}"
        ) from None
