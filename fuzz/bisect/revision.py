"""The program that `git bisect run` starts for each commit: build it, run the case on it, and say good, bad or skip.

    python -P -m draftproof.fuzz.bisect.revision PLAN.json      (in the worktree)

Exit codes are git's: 0 good, 1 bad, 125 skip; 255, at which git gives up, is an error of our own.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Literal

import msgspec

from draftproof.errors import DraftproofError
from draftproof.fuzz.bisect.worktree import clean, commit, environment
from draftproof.harness.identity import Identity, Level
from draftproof.harness.subjects import Unmade, import_engine, make
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import read_case
from draftproof.properties.values.verdict import Divergence, Outcome

GOOD, BAD, SKIP, ABORT = 0, 1, 125, 255
SETUP_LIMIT = 3600.0
SAME: Level = "channel"
"""Code between two commits may move the place of one bug, and how it shows."""
LAYOUT = ("engine", "kernels")
_SHIM = "draftproof_revision_subject"
Said = Literal["good", "bad", "skip"]
CODES: dict[Said, int] = {"good": GOOD, "bad": BAD, "skip": SKIP}


class Plan(Value, frozen=True, kw_only=True):
    """How a commit is tested. Paths are absolute; `home` is the folder that the user stands in, `work` is ours.

    `subject` ("package.module:name") is empty for a repository with engine/ and kernels/ at its root. A commit is good
    if all of `repeat` runs pass, bad if one fails as `expected` (None: in any way), and skipped otherwise.
    """

    case: str
    work: str
    home: str
    setup: tuple[str, ...] = ()
    subject: str = ""
    device: Literal["cpu", "cuda"] = "cpu"
    repeat: int = 1
    timeout: float = 120.0
    expected: Identity | None = None


class RevisionResult(Value, frozen=True, kw_only=True):
    """What was seen of a commit: of `runs` runs `failing` failed. `reason` says why it was skipped.

    `identity`, `first` and `detail` are of the failure that decided, or that was another one.
    """

    commit: str
    subject: str
    said: Said
    reason: str = ""
    runs: int = 0
    failing: int = 0
    identity: Identity | None = None
    first: Divergence | None = None
    detail: str = ""
    seconds: float = 0.0


class UntestableError(DraftproofError):
    """A commit that cannot be built or run; the message says why."""


def records(work: Path) -> Path:
    """Where the program leaves what it saw: one RevisionResult a line."""
    return work / "tested.jsonl"


def troubles(work: Path) -> Path:
    """Where the program leaves the traceback of an error of our own."""
    return work / "error.txt"


def examine(plan: Plan, folder: Path) -> RevisionResult:
    """Test the commit that is checked out in `folder`. Raises what is an error of our own."""
    started, here = time.monotonic(), commit(folder, "HEAD")
    blank = RevisionResult(commit=here.hash, subject=here.subject, said="skip")
    try:
        _set_up(plan, folder)
        seen = _decide(plan, _answers(plan, _spec(plan, folder), here.hash), blank)
    except UntestableError as reason:
        seen = msgspec.structs.replace(blank, reason=str(reason))
    finally:
        clean(folder)
    return msgspec.structs.replace(seen, seconds=round(time.monotonic() - started, 3))


def _set_up(plan: Plan, folder: Path) -> None:
    """Build the commit. Raises UntestableError with the last line that the build said."""
    if not plan.setup:
        return
    log = Path(plan.work) / "setup.log"
    try:
        with log.open("wb") as out:
            done = subprocess.run(
                plan.setup,
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SETUP_LIMIT,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise UntestableError(f"setup did not end within {SETUP_LIMIT:g} s") from None
    except OSError as error:
        raise UntestableError(f"setup cannot be run: {error.strerror}: {plan.setup[0]}") from None
    if done.returncode:
        said = _last_line(log.read_text(encoding="utf-8", errors="replace"))
        raise UntestableError(f"setup ended with {done.returncode}: {said or 'it said nothing'}")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]


def _spec(plan: Plan, folder: Path) -> SubjectSpec:
    """Return what a worker runs of this commit. Raises UntestableError where it is plain that there is no such code."""
    root = folder
    if not plan.subject:
        missing = [name for name in LAYOUT if not (folder / name / "__init__.py").is_file()]
        if missing:
            raise UntestableError(f"it has no {' and no '.join(f'{name}/' for name in missing)} at its root")
        _parse(folder)
        root = _view(plan, folder)
    return SubjectSpec(device=plan.device, factory=_shim(plan, root))


def _parse(folder: Path) -> None:
    """Raise UntestableError for a file that is no Python: a worker takes seconds to say so."""
    for path in sorted(file for name in LAYOUT for file in (folder / name).rglob("*.py")):
        try:
            ast.parse(path.read_bytes(), path.name)
        except (SyntaxError, ValueError) as error:
            raise UntestableError(f"{path.relative_to(folder)} is no Python: {error}") from None


def _view(plan: Plan, folder: Path) -> Path:
    """Return a folder with engine/ and kernels/ of the worktree and nothing else.

    What judges them stays the installed one.
    """
    view = Path(plan.work) / "view"
    view.mkdir(exist_ok=True)
    for name in LAYOUT:
        if not (view / name).is_symlink():
            (view / name).symlink_to(folder / name)
    return view


def _shim(plan: Plan, root: Path) -> str:
    """Return the factory of a module that is written where workers will find it."""
    place = Path(plan.work) / "shim"
    place.mkdir(exist_ok=True)
    lines = (
        "from draftproof.fuzz.bisect.revision import load",
        "def make(device):",
        f"    return load({str(root)!r}, {plan.subject!r}, device)",
    )
    (place / f"{_SHIM}.py").write_text("\n".join((*lines, "")), encoding="utf-8")
    if str(place) not in sys.path:
        sys.path.append(str(place))
    return f"{_SHIM}:make"


class RevisionImportError(DraftproofError):
    """The code of a commit could not be imported, or its subject not be made; the message says why."""


def load(root: str, name: str, device: str) -> Subject:
    """In a worker: the subject "package.module:name" of a worktree, or the engine of a view of it.

    Never raises: what goes wrong is what every run of the subject raises.
    """
    try:
        if name:
            return _named(Path(root), name, device)
        subject: Subject = import_engine(root).EngineSubject(device=device)
        return subject
    except Exception as error:
        return Unmade(RevisionImportError(f"{type(error).__name__}: {error}"))


def _named(root: Path, name: str, device: str) -> Subject:
    """Make a subject from the root of the worktree or its src/.

    Raises ImportError if the module comes from anywhere else.
    """
    sys.path[:0] = [str(root), str(root / "src")]
    module = name.partition(":")[0]
    file = importlib.import_module(module).__file__
    if file is None or not Path(file).resolve().is_relative_to(root.resolve()):
        raise ImportError(f"{module} is {file}, which is not of this revision")
    return make(name, device)


def _answers(plan: Plan, spec: SubjectSpec, name: str) -> list[Answer]:
    """Return the runs of the case, until one fails as expected.

    Raises UntestableError if the code cannot be imported.
    """
    scenario, _ = read_case(Path(plan.case))
    answers: list[Answer] = []
    # Where a case names a checkpoint, its path is meant from where the user stands.
    os.chdir(plan.home)
    with Pool(spec, 1, Path(plan.work) / "workers" / name[:12], deadline=plan.timeout) as pool:
        for number in range(plan.repeat):
            answer = _run(pool, Order(number=number, scenario=scenario))
            answers.append(answer)
            if _expected(plan, answer):
                break
    return answers


def _run(pool: Pool, order: Order) -> Answer:
    """Raise UntestableError where there is nothing to run, and RuntimeError for an error of our own."""
    try:
        answer = pool.run([order])[0]
    except WorkerStartError as error:
        raise UntestableError(f"it cannot be imported: {_last_line(str(error)).rstrip(':')}") from None
    if answer.outcome is Outcome.CRASH and answer.error == RevisionImportError.__name__:
        raise UntestableError(f"it cannot be imported: {_last_line(answer.detail).partition(': ')[2]}")
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(answer.detail or answer.error)
    return answer


def _expected(plan: Plan, answer: Answer) -> bool:
    identity = answer.identity
    return identity is not None and (plan.expected is None or plan.expected.is_same(identity, SAME))


def _decide(plan: Plan, answers: list[Answer], blank: RevisionResult) -> RevisionResult:
    """Good, bad, or skipped as another failure hides what is looked for."""
    failing = [answer for answer in answers if answer.failing]
    seen = msgspec.structs.replace(blank, runs=len(answers), failing=len(failing))
    if not failing:
        judged = all(answer.judged for answer in answers)
        return msgspec.structs.replace(seen, said="good") if judged else _nothing(seen)
    told = next((answer for answer in failing if _expected(plan, answer)), None)
    shown = told or failing[0]
    found = msgspec.structs.replace(
        seen,
        identity=shown.identity,
        first=shown.first,
        detail=shown.detail,
    )
    if told is not None:
        return msgspec.structs.replace(found, said="bad")
    return msgspec.structs.replace(found, reason=f"another failure: {named(shown.identity)}")


def _nothing(seen: RevisionResult) -> RevisionResult:
    return msgspec.structs.replace(seen, reason="inconclusive: no contract could be judged")


def named(identity: Identity | None) -> str:
    """Return a failure in a few words."""
    if identity is None:
        return "none"
    return f"{identity.contract} in {identity.channel}" if identity.channel else identity.contract


def main(arguments: list[str]) -> int:
    """Test the commit that is checked out here; the exit code for git."""
    plan = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Plan)
    work = Path(plan.work)
    try:
        tested = examine(plan, Path.cwd())
        with records(work).open("a", encoding="utf-8") as out:
            out.write(msgspec.json.encode(tested).decode() + "\n")
    except (Exception, KeyboardInterrupt):
        troubles(work).write_text(traceback.format_exc(), encoding="utf-8")
        return ABORT
    return CODES[tested.said]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
