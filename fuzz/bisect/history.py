"""Which commit brought a failure in: `git bisect` in a worktree of its own, with a case as the test."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from draftproof.fuzz.bisect.revision import Bench, RevisionResult, Search, named
from draftproof.fuzz.bisect.worktree import GitError, Revision, commit, git, run_git, worktree
from draftproof.harness.identity import Identity
from draftproof.harness.signals import handled
from draftproof.properties.formats.case import read_case
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.located import located
from draftproof.properties.values.verdict import Outcome

_FIRST_BAD = re.compile(r"^# (?:possible )?first bad commit: \[([0-9a-f]+)\]", re.MULTILINE)
Progress = Callable[[RevisionResult], None]


class HistoryError(DraftproofError, ValueError):
    """What was given cannot be bisected; the message names the option, its value and what was expected."""


class HistoryReport(Value, frozen=True, kw_only=True):
    """The result: the first bad commit, or all that it may be if commits that were skipped hide it.

    `bad` is what was seen of the first bad commit (of the bad end, if there are several candidates), `revisions` are
    all commits that were tested on the way, without the two ends; `skipped` of them could not be judged.
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
    # Commits are tried in folders of their own.
    scenario = located(read_case(case)[0])
    repository, (good, bad) = Path(search.repository), ends(search)
    # SIGTERM is an interrupt, too, so that what was made is removed.
    with (
        handled(signal.default_int_handler, signal.SIGTERM),
        tempfile.TemporaryDirectory(prefix="draftproof-bisect-") as name,
    ):
        work = Path(name).resolve()
        with worktree(repository, work / "tree", bad.hash) as tree:
            return _bisect(Bench(search, scenario, tree, work), good, bad, progress)


def ends(search: Search) -> tuple[Revision, Revision]:
    """Return the two revisions. Raises HistoryError."""
    repository = Path(search.repository)
    if not repository.is_dir() or run_git(repository, "rev-parse", "--git-dir").returncode:
        raise HistoryError(f"invalid --repo '{search.repository}': expected a folder in a git repository")
    good, bad = (_resolve(repository, option, getattr(search, option)) for option in ("good", "bad"))
    if good == bad:
        raise HistoryError(f"invalid --good {search.good!r}: expected an earlier commit than --bad")
    if run_git(repository, "merge-base", "--is-ancestor", good.hash, bad.hash).returncode:
        raise HistoryError(f"invalid --good {search.good!r}: expected an ancestor of --bad {search.bad}")
    return good, bad


def _resolve(repository: Path, option: str, name: str) -> Revision:
    found = run_git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.returncode or not name:
        raise HistoryError(f"invalid --{option} {name!r}: expected a revision of {repository}")
    return commit(repository, found.stdout.strip())


def _bisect(bench: Bench, good: Revision, bad: Revision, progress: Progress) -> HistoryReport:
    at_bad = _test_end(bench, bad, "bad", progress)
    at_good = _test_end(bench, good, "good", progress)
    assert at_bad.identity is not None
    revisions: list[RevisionResult] = []
    git(bench.tree, "bisect", "start", bad.hash, good.hash)
    while not (hashes := _FIRST_BAD.findall(git(bench.tree, "bisect", "log"))):
        revisions.append(bench.test(at_bad.identity))
        progress(revisions[-1])
        noted = run_git(bench.tree, "bisect", revisions[-1].said)
        # Git ends with 2 where only skipped commits are left.
        if noted.returncode not in (0, 2):
            raise GitError(f"git bisect {revisions[-1].said} ended with {noted.returncode}: {noted.stderr.strip()}")
    is_sure = len(hashes) == 1
    by_hash = {one.commit: one for one in (at_bad, *revisions)}
    return HistoryReport(
        verdict=Outcome.PASS if is_sure else Outcome.INCONCLUSIVE,
        candidates=tuple(commit(bench.tree, name) for name in hashes),
        identity=at_bad.identity,
        bad=by_hash[hashes[0]] if is_sure else at_bad,
        between=int(git(bench.tree, "rev-list", "--count", f"{good.hash}..{bad.hash}")),
        tested=len(revisions),
        skipped=sum(one.said == "skip" for one in revisions),
        revisions=tuple(revisions),
        ends=(at_good, at_bad),
    )


def _test_end(bench: Bench, end: Revision, wanted: str, progress: Progress) -> RevisionResult:
    """Test one of the two ends, outside of any bisection. Raises HistoryError if it is not what it was given as."""
    git(bench.tree, "checkout", "--quiet", "--detach", end.hash)
    result = bench.test()
    progress(result)
    invalid = f"invalid --{wanted} {getattr(bench.search, wanted)} ({end.hash[:12]} {end.subject})"
    if result.said == "skip":
        raise HistoryError(f"{invalid}: it cannot be tested: {result.reason}")
    if result.said != wanted and wanted == "bad":
        raise HistoryError(f"{invalid}: expected a revision that fails; it passes")
    if result.said != wanted:
        raise HistoryError(f"{invalid}: expected a revision that passes; it fails: {named(result.identity)}")
    return result
