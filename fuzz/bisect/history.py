"""Which commit brought a failure in: `git bisect run` in a worktree of its own, with a case as the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from draftproof.errors import DraftproofError
from draftproof.fuzz.bisect.revision import Plan, RevisionResult, named, records, troubles
from draftproof.fuzz.bisect.worktree import OPTIONS, GitError, Revision, attempt, commit, environment, git, worktree
from draftproof.harness.identity import Identity
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import encode, read_case
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

_FIRST_BAD = re.compile(r"^# (?:possible )?first bad commit: \[([0-9a-f]+)\]", re.MULTILINE)
_MARKED = re.compile(r"^git bisect (good|bad|skip) ([0-9a-f]+)$", re.MULTILINE)
_LOOK = 0.1
_PATIENCE = 10.0
Progress = Callable[[RevisionResult], None]


class HistoryError(DraftproofError, ValueError):
    """What was given cannot be bisected; the message names the field, its value and what is allowed."""


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


class HistoryReport(Value, frozen=True, kw_only=True):
    """What came of it: the first bad commit, or, where commits that were skipped hide it, all that it may be.

    `bad` is what was seen of the first bad commit (of the bad end, if there are several candidates), `revisions` every
    commit that was tested on the way, the two ends not among them, of which `skipped` could not be judged.
    """

    verdict: Outcome
    candidates: tuple[Revision, ...]
    identity: Identity
    bad: RevisionResult
    between: int
    tested: int
    skipped: int
    revisions: tuple[RevisionResult, ...]
    ends: tuple[RevisionResult, RevisionResult]

    @property
    def first(self) -> Revision | None:
        """The first bad commit, if there is no doubt."""
        return self.candidates[0] if len(self.candidates) == 1 else None


def bisect_history(search: Search, case: Path, progress: Progress = lambda _: None) -> HistoryReport:
    """Find the first commit after `good`, up to `bad`, on which the case fails as it does on `bad`.

    `progress` is told of each commit, the two ends first. Raises HistoryError for what cannot be bisected,
    InvalidScenarioError for a case that cannot be read, and RuntimeError where something of ours fails; whatever
    happens, the worktree is removed.
    """
    scenario, _ = read_case(case)
    repository = Path(search.repository)
    good, bad = _ends(repository, search)
    with _terminable(), tempfile.TemporaryDirectory(prefix="draftproof-bisect-") as name:
        work = Path(name).resolve()
        with worktree(repository, work / "tree", bad.hash) as tree:
            return _Bisection(search, scenario, work, tree, progress).run(good, bad)


def _ends(repository: Path, search: Search) -> tuple[Revision, Revision]:
    """Return the two revisions. Raises HistoryError."""
    if not repository.is_dir() or attempt(repository, "rev-parse", "--git-dir").returncode:
        raise HistoryError(f"invalid --repo '{search.repository}': expected a folder in a git repository")
    good, bad = (_resolve(repository, option, getattr(search, option)) for option in ("good", "bad"))
    if good == bad:
        raise HistoryError(f"invalid --good {search.good!r}: expected an earlier commit than --bad")
    if attempt(repository, "merge-base", "--is-ancestor", good.hash, bad.hash).returncode:
        raise HistoryError(f"invalid --good {search.good!r}: expected an ancestor of --bad {search.bad}")
    return good, bad


def _resolve(repository: Path, option: str, name: str) -> Revision:
    found = attempt(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.returncode or not name:
        raise HistoryError(f"invalid --{option} {name!r}: expected a revision of {repository}")
    return commit(repository, found.stdout.strip())


class _Bisection:
    """One bisection in a worktree that it owns."""

    def __init__(self, search: Search, scenario: Scenario, work: Path, tree: Path, progress: Progress) -> None:
        self._search, self._work, self._tree, self._progress = search, work, tree, progress
        self._told = 0
        case = work / "case.json"
        case.write_text(encode(scenario), encoding="utf-8")
        self._plan = Plan(
            case=str(case),
            work=str(work),
            home=str(Path.cwd()),
            setup=search.setup,
            subject=search.subject,
            device=search.device,
            repeat=search.repeat,
            timeout=search.timeout,
        )

    def run(self, good: Revision, bad: Revision) -> HistoryReport:
        at_bad = self._bad_end(bad)
        at_good = self._good_end(good)
        assert at_bad.identity is not None
        self._plan = msgspec.structs.replace(self._plan, expected=at_bad.identity)
        between = int(git(self._tree, "rev-list", "--count", f"{good.hash}..{bad.hash}"))
        candidates = self._bisect(good, bad)
        seen = self._seen()[2:]
        by_hash = {tested.commit: tested for tested in (at_bad, *seen)}
        sure = len(candidates) == 1
        return HistoryReport(
            verdict=Outcome.PASS if sure else Outcome.INCONCLUSIVE,
            candidates=candidates,
            identity=at_bad.identity,
            bad=by_hash[candidates[0].hash] if sure else at_bad,
            between=between,
            tested=len(seen),
            skipped=sum(tested.said == "skip" for tested in seen),
            revisions=tuple(seen),
            ends=(at_good, at_bad),
        )

    def _bad_end(self, bad: Revision) -> RevisionResult:
        tested = self._test(bad)
        if tested.said == "good":
            raise HistoryError(
                f"invalid --bad {_shown(bad, self._search.bad)}: expected a revision that fails; it passes"
            )
        if tested.said == "skip":
            raise HistoryError(f"invalid --bad {_shown(bad, self._search.bad)}: it cannot be tested: {tested.reason}")
        return tested

    def _good_end(self, good: Revision) -> RevisionResult:
        tested = self._test(good)
        shown = _shown(good, self._search.good)
        if tested.said == "bad":
            raise HistoryError(
                f"invalid --good {shown}: expected a revision that passes; it fails: {named(tested.identity)}"
            )
        if tested.said == "skip":
            raise HistoryError(f"invalid --good {shown}: it cannot be tested: {tested.reason}")
        return tested

    def _test(self, end: Revision) -> RevisionResult:
        """Test one commit, outside of any bisection."""
        before = len(self._seen())
        git(self._tree, "checkout", "--quiet", "--detach", end.hash)
        self._follow(self._program(), "the test of a revision")
        seen = self._seen()
        if len(seen) == before:
            raise RuntimeError(f"the test of a revision said nothing: {self._output()}")
        return seen[-1]

    def _bisect(self, good: Revision, bad: Revision) -> tuple[Revision, ...]:
        """Return the first bad commit, or all that it may be."""
        git(self._tree, "bisect", "start", bad.hash, good.hash)
        if not self._found():
            self._follow(["git", *OPTIONS, "bisect", "run", *self._program()], "git bisect run")
        found = self._found()
        if not found:
            raise GitError(f"git bisect ended without a result: {self._output()}")
        self._agree()
        return tuple(commit(self._tree, name) for name in found)

    def _agree(self) -> None:
        """Check that git has noted what was seen: to git, a program that does not even start says bad."""
        said = {(tested.said, tested.commit) for tested in self._seen()}
        for marked in _MARKED.findall(git(self._tree, "bisect", "log")):
            if marked not in said:
                raise RuntimeError(f"{marked[1]} was called {marked[0]} without being tested: {self._output()}")

    def _found(self) -> list[str]:
        """Return what git says that it found, if it has."""
        return _FIRST_BAD.findall(git(self._tree, "bisect", "log"))

    def _program(self) -> list[str]:
        plan = self._work / "plan.json"
        plan.write_bytes(msgspec.json.encode(self._plan))
        return [sys.executable, "-P", "-m", "draftproof.fuzz.bisect.revision", str(plan)]

    def _follow(self, command: list[str], what: str) -> None:
        """Run a command to its end, telling of commits as they are tested. Raises RuntimeError for an error of ours."""
        with (self._work / "output.log").open("wb") as out:
            # A session of its own: an interrupt comes to us alone, and what it started goes with it.
            running = subprocess.Popen(
                command,
                cwd=self._tree,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                while running.poll() is None:
                    time.sleep(_LOOK)
                    self._tell()
            finally:
                _end(running)
        self._tell()
        if troubles(self._work).exists():
            raise RuntimeError(f"{what} failed:\n{troubles(self._work).read_text(encoding='utf-8')}")
        if running.returncode < 0:
            raise RuntimeError(f"{what} ended with {running.returncode}: {self._output()}")

    def _output(self) -> str:
        return (self._work / "output.log").read_text(encoding="utf-8", errors="replace").strip()[-2000:]

    def _seen(self) -> list[RevisionResult]:
        path = records(self._work)
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [msgspec.json.decode(line, type=RevisionResult) for line in whole.splitlines()]

    def _tell(self) -> None:
        for tested in self._seen()[self._told :]:
            self._told += 1
            self._progress(tested)


def _shown(end: Revision, name: str) -> str:
    return f"{name} ({end.hash[:12]} {end.subject})"


def _end(running: subprocess.Popen[bytes]) -> None:
    """Nothing of a command's session is left: first asked to end, then made to."""
    for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, None)):
        try:
            os.killpg(running.pid, number)
        except ProcessLookupError:
            break
        try:
            running.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    running.wait()


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM for an interrupt, so that what was made is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
