"""Test one commit of a history in its worktree: build it, run the case on it, and say good, bad or skip."""

from __future__ import annotations

import ast
import importlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from draftproof.fuzz.bisect.worktree import clean, commit, environment
from draftproof.harness.identity import Identity, Level
from draftproof.harness.subjects import Unmade, import_engine, make
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Divergence, Outcome

SETUP_LIMIT = 3600.0
SAME_IN_HISTORY: Level = "channel"
"""Code between two commits may move the place of one bug, and how it shows."""
LAYOUT = ("engine", "kernels")
_SHIM = "draftproof_revision_subject"


class Search(Value, frozen=True, kw_only=True):
    """What to look for, and where.

    `setup` builds a commit, `subject` ("package.module:name") makes what is tested: without it, the engine/ and
    kernels/ at the root. `repeat` runs a commit; `timeout` seconds for one of them.
    """

    repository: str
    good: str
    bad: str
    setup: tuple[str, ...] = ()
    subject: str = ""
    device: Literal["cpu", "cuda"] = "cpu"
    repeat: int = 1
    timeout: float = 120.0


class RevisionResult(Value, frozen=True, kw_only=True):
    """What was seen of a commit: of `runs` runs `failing` failed. `reason` says why it was skipped.

    `identity`, `first` and `detail` are of the failure that decided, or that was another one.
    """

    commit: str
    subject: str
    said: Literal["good", "bad", "skip"]
    reason: str = ""
    runs: int = 0
    failing: int = 0
    identity: Identity | None = None
    first: Divergence | None = None
    detail: str = ""
    seconds: float = 0.0


class UntestableError(DraftproofError):
    """A commit that cannot be built or run; the message says why."""


class RevisionImportError(DraftproofError):
    """The code of a commit could not be imported, or its subject not be made; the message says why."""


@dataclass(frozen=True)
class Bench:
    """Where commits are tested: a worktree that has them one after the other, and the folder `work` for all else."""

    search: Search
    scenario: Scenario
    tree: Path
    work: Path

    def test(self, expected: Identity | None = None) -> RevisionResult:
        """Test the commit that is checked out. Raises what is an error of our own.

        It is good if all of its runs pass, bad if one fails as `expected` (None: in any way), and skipped otherwise.
        """
        started, here = time.monotonic(), commit(self.tree, "HEAD")
        blank = RevisionResult(commit=here.hash, subject=here.subject, said="skip")
        try:
            self._set_up()
            result = _result(blank, self._answers(expected), expected)
        except UntestableError as reason:
            result = replace(blank, reason=str(reason))
        finally:
            clean(self.tree)
        return replace(result, seconds=round(time.monotonic() - started, 3))

    def _set_up(self) -> None:
        """Build the commit. Raises UntestableError with the last line that the build printed."""
        setup, log = self.search.setup, self.work / "setup.log"
        if not setup:
            return
        try:
            code = _run_to_log(setup, self.tree, log)
        except subprocess.TimeoutExpired:
            raise UntestableError(f"setup did not end within {SETUP_LIMIT:g} s") from None
        except OSError as error:
            raise UntestableError(f"setup cannot be run: {error.strerror}: {setup[0]}") from None
        if code:
            line = _last_line(log.read_text(encoding="utf-8", errors="replace"))
            raise UntestableError(f"setup ended with {code}: {line or 'it said nothing'}")

    def _answers(self, expected: Identity | None) -> list[Answer]:
        """Run the case until it fails as expected. Raises UntestableError, and RuntimeError for an error of our own."""
        spec = SubjectSpec(device=self.search.device, subject=SubjectChoice(name=self._factory()))
        answers: list[Answer] = []
        try:
            with Pool(spec, 1, self.work / "workers", deadline=self.search.timeout) as pool:
                while len(answers) < self.search.repeat and not any(_fails_as(one, expected) for one in answers):
                    answers += pool.run([Order(number=len(answers), scenario=self.scenario)])
                    _check(answers[-1])
        except WorkerStartError as error:
            raise UntestableError(f"it cannot be imported: {_last_line(str(error)).rstrip(':')}") from None
        return answers

    def _factory(self) -> str:
        """Write the module from which workers make the subject of this commit; return the name of its factory.

        Raises UntestableError where it is plain that there is no such code.
        """
        root = self.tree if self.search.subject else self._view()
        place = self.work / "shim"
        place.mkdir(exist_ok=True)
        (place / f"{_SHIM}.py").write_text(
            f"from {__name__} import load\n"
            "def make(device):\n"
            f"    return load({str(root)!r}, {self.search.subject!r}, device)\n",
            encoding="utf-8",
        )
        if str(place) not in sys.path:
            sys.path.append(str(place))
        return f"{_SHIM}:make"

    def _view(self) -> Path:
        """Return a folder with engine/ and kernels/ of the worktree and nothing else: the installed rest judges them.

        Raises UntestableError where one is missing or is no Python, which a worker takes seconds to say.
        """
        missing = [f"no {name}/" for name in LAYOUT if not (self.tree / name / "__init__.py").is_file()]
        if missing:
            raise UntestableError(f"it has {' and '.join(missing)} at its root")
        for path in sorted(file for name in LAYOUT for file in (self.tree / name).rglob("*.py")):
            try:
                ast.parse(path.read_bytes(), path.name)
            except (SyntaxError, ValueError) as error:
                raise UntestableError(f"{path.relative_to(self.tree)} is no Python: {error}") from None
        view = self.work / "view"
        view.mkdir(exist_ok=True)
        for name in LAYOUT:
            if not (view / name).is_symlink():
                (view / name).symlink_to(self.tree / name)
        return view


def _run_to_log(command: tuple[str, ...], folder: Path, log: Path) -> int:
    """Return the exit status of a command; however this ends, nothing that it started is left."""
    with log.open("wb") as out:
        # A session of its own: an interrupt at the terminal comes to us alone.
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return running.wait(SETUP_LIMIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]


def _check(answer: Answer) -> None:
    if answer.outcome is Outcome.CRASH and answer.error == RevisionImportError.__name__:
        raise UntestableError(f"it cannot be imported: {_last_line(answer.detail).partition(': ')[2]}")
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(answer.detail or answer.error)


def _fails_as(answer: Answer, expected: Identity | None) -> bool:
    return answer.failing if expected is None else answer.is_same(expected, SAME_IN_HISTORY)


def _result(blank: RevisionResult, answers: list[Answer], expected: Identity | None) -> RevisionResult:
    failing = [answer for answer in answers if answer.failing]
    result = replace(blank, runs=len(answers), failing=len(failing))
    if not failing:
        if all(answer.judged for answer in answers):
            return replace(result, said="good")
        return replace(result, reason="inconclusive: no contract could be judged")
    shown = next((answer for answer in failing if _fails_as(answer, expected)), failing[0])
    result = replace(result, identity=shown.identity, first=shown.first, detail=shown.detail)
    if _fails_as(shown, expected):
        return replace(result, said="bad")
    return replace(result, reason=f"another failure: {named(shown.identity)}")


def named(identity: Identity | None) -> str:
    """Return a failure in a few words."""
    if identity is None:
        return "none"
    return f"{identity.contract} in {identity.channel}" if identity.channel else identity.contract


def load(root: str, name: str, device: str) -> Subject:
    """In a worker: return the subject "package.module:name" of a worktree, or the engine of a view of it.

    Never raises: what goes wrong is what every run of the subject raises.
    """
    # Two revisions can have the same size and the same time of change: byte code of one would pass for the other's.
    sys.dont_write_bytecode = True
    try:
        if name:
            return _load_named(Path(root), name, device)
        subject: Subject = import_engine(root).EngineSubject(device=device)
        return subject
    except Exception as error:
        return Unmade(RevisionImportError(f"{type(error).__name__}: {error}"))


def _load_named(root: Path, name: str, device: str) -> Subject:
    """Make a subject from the root of the worktree or its src/. Raises ImportError if it comes from anywhere else."""
    sys.path[:0] = [str(root), str(root / "src")]
    module = name.partition(":")[0]
    file = importlib.import_module(module).__file__
    if file is None or not Path(file).resolve().is_relative_to(root.resolve()):
        raise ImportError(f"{module} is {file}, which is not of this revision")
    return make(SubjectChoice(name=name), device)
