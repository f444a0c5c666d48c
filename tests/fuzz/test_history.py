"""Bisecting a history: which commit is named, what is skipped, what stays as it was, and what is our own error.

Most tests put a reader of a file, in which a commit has its verdict, in place of what runs a case.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from draftproof.fuzz.bisect.history import HistoryError, HistoryReport, bisect_history
from draftproof.fuzz.bisect.revision import Bench, RevisionResult, Search
from draftproof.fuzz.bisect.worktree import GitError, commit
from draftproof.harness.identity import Identity
from draftproof.properties.formats.case import encode
from draftproof.properties.values.verdict import Outcome
from tests.fuzz import history_repository
from tests.fuzz.histories import git, repository
from tests.named import named


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "case.json"
    path.write_text(encode(named("eagle_padded")))
    return path


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(bench: Bench, _expected: Identity | None = None) -> RevisionResult:
        here, said = commit(bench.tree, "HEAD"), (bench.tree / "said").read_text()
        if said == "raise":
            raise OSError("disk")
        failure = Identity(contract="c", channel="d")
        return RevisionResult(commit=here.hash, subject=here.subject, said=said, identity=failure)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "test", read)


def states(count: int, culprit: int, skipped: Sequence[int] = ()) -> list[str]:
    return ["skip" if number in skipped else "bad" if number >= culprit else "good" for number in range(count)]


def bisected(folder: Path, case: Path, hashes: Sequence[str], **more: object) -> HistoryReport:
    search = Search(repository=str(folder), good=hashes[0], bad=hashes[-1])
    return bisect_history(msgspec.structs.replace(search, **more), case)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("culprit", [1, 31, 63])
def test_the_right_one_of_64_commits_is_named_in_at_most_7_tests(tmp_path, case, culprit):
    hashes = repository(tmp_path / "r", states(64, culprit))
    report = bisected(tmp_path / "r", case, hashes)
    assert report.first is not None
    assert report.first.hash == hashes[culprit]
    assert report.first.subject == f"Number {culprit}"
    assert (report.between, report.skipped, report.verdict) == (63, 0, Outcome.PASS)
    assert report.tested == len(report.revisions) <= 7
    assert report.bad.commit == hashes[culprit]
    assert [end.commit for end in report.ends] == [hashes[0], hashes[-1]]


@pytest.mark.usefixtures("fake")
def test_commits_that_cannot_be_built_are_stepped_over(tmp_path, case):
    culprit = 40
    skipped = [number for number in range(1, 63) if number % 3 == 2 and number not in (culprit - 1, culprit)]
    hashes = repository(tmp_path / "r", states(64, culprit, skipped))
    report = bisected(tmp_path / "r", case, hashes)
    assert report.first is not None
    assert report.first.hash == hashes[culprit]
    assert report.skipped == sum(one.said == "skip" for one in report.revisions) > 0


@pytest.mark.usefixtures("fake")
def test_where_skipped_commits_hide_it_every_candidate_is_named(tmp_path, case):
    hashes = repository(tmp_path / "r", states(9, 5, skipped=[3, 4]))
    report = bisected(tmp_path / "r", case, hashes)
    assert report.first is None
    assert report.verdict is Outcome.INCONCLUSIVE
    assert {one.hash for one in report.candidates} == {hashes[3], hashes[4], hashes[5]}
    assert report.bad.commit == hashes[-1]


@pytest.mark.usefixtures("fake")
def test_neighbours_need_no_further_test(tmp_path, case):
    hashes = repository(tmp_path / "r", ["good", "bad"])
    report = bisected(tmp_path / "r", case, hashes)
    assert report.first is not None
    assert (report.first.hash, report.tested) == (hashes[1], 0)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (("bad", "bad"), "invalid --good .* Number 0.*: expected a revision that passes; it fails: c in d"),
        (("good", "good"), "invalid --bad .* Number 1.*: expected a revision that fails; it passes"),
        (("skip", "bad"), "invalid --good .*: it cannot be tested"),
        (("good", "skip"), "invalid --bad .*: it cannot be tested"),
    ],
)
def test_an_end_that_is_none_is_named(tmp_path, case, ends, message):
    hashes = repository(tmp_path / "r", ends)
    with pytest.raises(HistoryError, match=message):
        bisected(tmp_path / "r", case, hashes)
    assert_untouched(tmp_path / "r")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("states", [["good", "good", "raise", "bad", "bad"], ["raise", "bad"], ["good", "raise"]])
def test_an_error_of_ours_is_never_bad(tmp_path, case, states):
    hashes = repository(tmp_path / "r", states)
    with pytest.raises(OSError, match="disk"):
        bisected(tmp_path / "r", case, hashes)
    assert_untouched(tmp_path / "r")


@pytest.mark.usefixtures("fake")
def test_what_git_cannot_note_is_an_error_of_ours(tmp_path, case):
    hashes = repository(tmp_path / "r", ["good", "good", "perhaps", "bad", "bad"])
    with pytest.raises(GitError, match="git bisect perhaps ended with"):
        bisected(tmp_path / "r", case, hashes)
    assert_untouched(tmp_path / "r")


@pytest.mark.usefixtures("fake")
def test_every_commit_is_told_of_the_bad_end_first(tmp_path, case):
    hashes = repository(tmp_path / "r", states(9, 5))
    told: list[RevisionResult] = []
    search = Search(repository=str(tmp_path / "r"), good=hashes[0], bad=hashes[-1])
    report = bisect_history(search, case, told.append)
    assert tuple(told) == (report.ends[1], report.ends[0], *report.revisions)


def assert_untouched(folder: Path) -> None:
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert not (folder / ".git/worktrees").exists()
    assert "bisect" not in git(folder, "for-each-ref")


def everything(folder: Path) -> dict[str, object]:
    """What a user has in a repository. The index is compared byte for byte."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts}
    asked = [("for-each-ref",), ("stash", "list"), ("branch", "--list"), ("reflog", "HEAD")]
    return {
        "files": files,
        "index": (folder / ".git/index").read_bytes(),
        "head": (folder / ".git/HEAD").read_bytes(),
        "config": (folder / ".git/config").read_bytes(),
        "bisect": {path.name: path.read_bytes() for path in (folder / ".git").glob("BISECT*")},
        **{" ".join(words): git(folder, *words) for words in asked},
    }


@pytest.mark.usefixtures("fake")
def test_what_the_user_has_stays_as_it_is(tmp_path, case):
    folder = tmp_path / "r"
    hashes = repository(folder, states(16, 9))
    (folder / "number").write_text("stashed")
    git(folder, "stash", "push", "--quiet")
    (folder / "number").write_text("staged")
    git(folder, "add", "number")
    (folder / "number").write_text("changed")
    (folder / "untracked").write_text("mine")
    git(folder, "bisect", "start")
    git(folder, "bisect", "bad", hashes[7])
    git(folder, "branch", "other", hashes[3])
    hook = folder / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    before = everything(folder)
    report = bisected(folder, case, hashes)
    assert report.first is not None
    assert report.first.hash == hashes[9]
    assert everything(folder) == before
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert not (tmp_path / "hooked").exists()


@pytest.mark.parametrize(
    ("number", "at_start"),
    [(signal.SIGINT, "default_int_handler"), (signal.SIGTERM, "default_int_handler"), (signal.SIGTERM, "SIG_IGN")],
    ids=["ctrl-c", "sigterm", "sigterm in the background"],
)
def test_an_interrupt_leaves_nothing_behind(tmp_path, case, number, at_start):
    """However the tests were started: a script's background job ignores SIGINT."""
    folder = tmp_path / "r"
    hashes = repository(folder, ["good", "bad"])
    before = everything(folder)
    search = f"Search(repository={str(folder)!r}, good={hashes[0]!r}, bad={hashes[1]!r}, setup={SLEEP!r})"
    program = f"""
import signal
from pathlib import Path
from draftproof.fuzz.bisect.history import bisect_history
from draftproof.fuzz.bisect.revision import Search
signal.signal(signal.SIGINT, signal.{at_start})
bisect_history({search}, Path({str(case)!r}))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", program], env=environment, stderr=subprocess.PIPE, start_new_session=True
    )
    pid = _awaited(tmp_path, running)
    running.send_signal(number)
    _, said = running.communicate(timeout=30)
    assert b"KeyboardInterrupt" in said
    assert not _alive(pid)
    assert list(tmp_path.glob("draftproof-bisect-*")) == []
    assert everything(folder) == before
    assert_untouched(folder)


SLEEP = (sys.executable, "-S", "-c", "import os, time; open('../pid', 'w').write(str(os.getpid())); time.sleep(60)")


def _awaited(folder: Path, running: subprocess.Popen[bytes]) -> int:
    """The process of the setup command, once there is one."""
    end = time.monotonic() + 60
    while time.monotonic() < end and running.poll() is None:
        for path in folder.glob("draftproof-bisect-*/pid"):
            if text := path.read_text():
                return int(text)
        time.sleep(0.05)
    raise AssertionError("the setup command was not started")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_wrong_ends_are_named(tmp_path, case):
    folder = tmp_path / "r"
    hashes = repository(folder, ["good", "good"])
    git(folder, "checkout", "--quiet", "--orphan", "apart")
    git(folder, "commit", "--quiet", "--message", "Apart")
    search = Search(repository=str(folder), good=hashes[0], bad=hashes[1])
    wrong: list[tuple[dict[str, str], str]] = [
        ({"repository": str(tmp_path)}, "invalid --repo .*: expected a folder in a git repository"),
        ({"repository": str(tmp_path / "no")}, "invalid --repo .*/no': expected"),
        ({"good": "nobody"}, "invalid --good 'nobody': expected a revision of"),
        ({"bad": "--help"}, "invalid --bad '--help': expected a revision of"),
        ({"bad": ""}, "invalid --bad '': expected a revision of"),
        ({"good": hashes[1]}, "invalid --good .*: expected an earlier commit than --bad"),
        ({"good": "apart"}, "invalid --good 'apart': expected an ancestor of --bad"),
        ({"good": hashes[1], "bad": hashes[0]}, "expected an ancestor of --bad"),
    ]
    for change, message in wrong:
        with pytest.raises(HistoryError, match=message):
            bisect_history(msgspec.structs.replace(search, **change), case)


# The generated repository.


def test_the_generated_repository_is_always_the_same(tmp_path):
    one, two = (history_repository.make(tmp_path / name, seed=5, unbuildable="python") for name in "ab")
    assert one.hashes == two.hashes
    assert len(one.hashes) == 64
    assert len(one.unbuildable) == 21
    assert one.culprit not in one.unbuildable
    assert history_repository.make(tmp_path / "c", seed=6).hashes != one.hashes
    changed = git(one.folder, "diff", "--stat", f"{one.hashes[one.culprit]}~", one.hashes[one.culprit])
    assert "engine/drafts/eagle.py" in changed
    broken = min(one.unbuildable)
    with pytest.raises(SyntaxError):
        compile(git(one.folder, "show", f"{one.hashes[broken]}:engine/engine.py"), "engine.py", "exec")
    assert git(one.folder, "status", "--porcelain") == ""


@pytest.mark.parametrize(("unbuildable", "seed", "commits"), [("no", 0, 64), ("python", 1, 16), ("build", 2, 16)])
def test_the_commit_that_brought_a_fault_in_is_named(tmp_path, case, unbuildable, seed, commits):
    made = history_repository.make(tmp_path / "r", seed=seed, unbuildable=unbuildable, commits=commits)
    setup = (sys.executable, *history_repository.SETUP[1:]) if unbuildable == "build" else ()
    report = bisected(made.folder, case, made.hashes, setup=setup)
    assert report.first is not None
    assert report.first.hash == made.hashes[made.culprit]
    assert report.tested - report.skipped <= commits.bit_length()
    assert (report.skipped > 0) == (unbuildable != "no")
    assert report.bad.first is not None
    assert report.bad.first.contract == "draft.positions"
