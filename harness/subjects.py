"""Make subjects: from the name of one, or in a worker from a SubjectSpec.

Nothing of the engine is imported before a subject is made.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from draftproof.harness.hunk_counters import HunkCounters
from draftproof.harness.signals import exits_noticed
from draftproof.harness.workers.messages import SubjectSpec
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.trace import Trace
from draftproof.subjects.making import made, resolve_name

ENGINE = "draftproof.engine.subject:EngineSubject"


class SubjectError(DraftproofError, ValueError):
    """A user's subject cannot be made; the message names it, the error, and the line that raised."""


def make(choice: SubjectChoice, device: str) -> Subject:
    """Call what the name stands for in this Python, with the settings, and with the device if it takes one.

    Raises SubjectNameError and ImportError of a name that stands for nothing. Of the engine it raises
    what making it raises, of any other subject SubjectError: `sys.exit(0)` and `typer.Exit(0)` there are no way to end
    in green.
    """
    name = choice.name or ENGINE
    try:
        with exits_noticed():
            subject = made(name, {"device": device, **choice.settings})
    except (KeyboardInterrupt, ImportError, AttributeError):
        raise
    except BaseException as error:
        if isinstance(error, DraftproofError):  # its message is whole
            raise
        if resolve_name(name) == ENGINE and isinstance(error, Exception):
            raise
        file, line, *_ = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error}, at {file}:{line}"
        raise SubjectError(f"invalid subject {name!r}: expected one that can be made, not {raised}") from error
    return subject


def is_engine(subject: Subject) -> bool:
    """Return whether a subject is the built-in engine, which commands run if none is named."""
    return f"{type(subject).__module__}:{type(subject).__qualname__}" == ENGINE


def make_from(
    spec: SubjectSpec, counters: HunkCounters | None = None, log: Path | None = None, *, shown: bool = False
) -> Subject:
    """Make the subject of a spec; `counters` count its patched hunks, `log` is a worker's own.

    `shown`: what a subject in another Python prints is printed here, too. Raises what importing and making it raises.
    """
    if spec.folder:
        (counters or HunkCounters(spec.hunks)).install()
        import_engine(spec.folder)
    if spec.subject.python:
        from draftproof.harness.remote import RemoteSubject

        return RemoteSubject(spec.subject, device=spec.device, search=spec.search, log=log, shown=shown)
    return make(spec.subject, spec.device)


def import_engine(folder: str) -> ModuleType:
    """Import engine/ and kernels/ of `folder` as draftproof's own; return the module of the engine's subject.

    Raises what importing them raises, and RuntimeError if others were imported before.
    """
    sys.modules["draftproof"].__path__.insert(0, folder)
    module = importlib.import_module("draftproof.engine.subject")
    for name in ("draftproof.engine", "draftproof.kernels"):
        file = importlib.import_module(name).__file__
        if file is None or not Path(file).is_relative_to(folder):
            raise RuntimeError(f"{name} was imported from {file}, not from the copy in {folder}")
    return module


class Unmade(Subject):
    """Stands for a subject that could not be made: every run raises the error that prevented it."""

    name = "unmade"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset()

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise self._error
