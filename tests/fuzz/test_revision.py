"""What one commit of a history is: good, bad or skipped, and why."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.fuzz.bisect import revision
from draftproof.fuzz.bisect.revision import Bench, RevisionResult, Search, load
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.properties.values.relations import OtherRow
from draftproof.properties.values.verdict import Outcome
from tests.fuzz.histories import git, repository
from tests.harness.doubles import diverging
from tests.named import named

SCENARIO = named("eagle_padded")
DIVERGENCE = diverging(got=10)
PASSED = Answer(number=0, outcome=Outcome.PASS, judged=("draft.positions",))
FAILED = Answer(number=0, outcome=Outcome.FAIL, judged=("draft.positions",), first=DIVERGENCE)
OTHER = replace(FAILED, first=replace(DIVERGENCE, contract="verify.positions"))
MOVED = replace(FAILED, first=replace(DIVERGENCE, relation=OtherRow(row=2)))
CRASHED = Answer(number=0, outcome=Outcome.CRASH, error="SIGSEGV", detail="SIGSEGV in base")
HUNG = Answer(number=0, outcome=Outcome.HANG, error="deadline")
UNMADE = Answer(
    number=0,
    outcome=Outcome.CRASH,
    error="RevisionImportError",
    detail="Traceback\ndraftproof.fuzz.bisect.revision.RevisionImportError: ImportError: no name",
)
BROKEN = Answer(number=0, outcome=Outcome.ERROR, detail="the disk is full")
FAILURE, CRASH = FAILED.identity, CRASHED.identity


class Answers:
    """A pool that knows its answers beforehand."""

    answers: tuple[Answer, ...] = ()
    asked: tuple[SubjectSpec, float] | None = None

    def __init__(self, spec: SubjectSpec, count: int, folder: Path, *, deadline: float) -> None:
        type(self).asked = (spec, deadline)
        self._left = list(self.answers)

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        return [self._left.pop(0) for _ in orders]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(revision, "Pool", Answers)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "work").mkdir()
    search = Search(repository=str(tmp_path / "r"), good="", bad="", subject="thing:Thing")
    return Bench(search, SCENARIO, tmp_path / "r", tmp_path / "work")


def changed(bench: Bench, **more: object) -> Bench:
    return dataclasses.replace(bench, search=replace(bench.search, **more))


def seen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *answers: Answer, expected: Identity | None = None
) -> RevisionResult:
    monkeypatch.setattr(Answers, "answers", answers)
    if not bench.tree.exists():
        repository(bench.tree, ["Thing = None\n"], "thing.py")
    return bench.test(expected)


@pytest.mark.parametrize(
    ("answers", "expected", "said", "reason"),
    [
        ((PASSED,), FAILURE, "good", ""),
        ((FAILED,), FAILURE, "bad", ""),
        ((MOVED,), FAILURE, "bad", ""),
        ((OTHER,), FAILURE, "skip", "another failure: verify.positions in draft.step.positions"),
        ((OTHER,), None, "bad", ""),
        ((CRASHED,), FAILURE, "skip", "another failure: crash in SIGSEGV"),
        ((CRASHED,), CRASH, "bad", ""),
        ((HUNG,), CRASH, "skip", "another failure: hang in deadline"),
        ((HUNG,), HUNG.identity, "bad", ""),
        ((UNMADE,), CRASH, "skip", "it cannot be imported: ImportError: no name"),
        ((Answer(number=0, outcome=Outcome.PASS),), FAILURE, "skip", "inconclusive: no contract could be judged"),
        ((PASSED, PASSED, PASSED), FAILURE, "good", ""),
        ((PASSED, PASSED, FAILED), FAILURE, "bad", ""),
        ((PASSED, OTHER, FAILED), FAILURE, "bad", ""),
        ((PASSED, OTHER, PASSED), FAILURE, "skip", "another failure: verify.positions in draft.step.positions"),
        ((PASSED, PASSED, Answer(number=0, outcome=Outcome.PASS)), FAILURE, "skip", "inconclusive"),
    ],
)
def test_what_runs_say_of_a_commit(bench, monkeypatch, answers, expected, said, reason):
    tested = seen(changed(bench, repeat=len(answers)), monkeypatch, *answers, expected=expected)
    assert tested.said == said
    assert tested.reason.startswith(reason) if reason else not tested.reason
    assert tested.subject == "Number 0"


def test_no_more_runs_than_are_needed(bench, monkeypatch):
    tested = seen(changed(bench, repeat=3, timeout=7.5), monkeypatch, FAILED, expected=FAILURE)
    assert (tested.runs, tested.failing, tested.first) == (1, 1, DIVERGENCE)
    assert Answers.asked is not None
    assert Answers.asked[1] == 7.5


def test_an_error_of_ours_says_nothing_of_a_commit(bench, monkeypatch):
    with pytest.raises(RuntimeError, match="the disk is full"):
        seen(bench, monkeypatch, BROKEN)


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (
            (sys.executable, "-S", "-c", "print('building'); print('no compiler'); raise SystemExit(3)"),
            "ended with 3: no compiler",
        ),
        (("no-such-program",), "cannot be run: No such file or directory: no-such-program"),
        ((sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"), "ended with -9: it said nothing"),
    ],
)
def test_what_cannot_be_built_is_skipped(bench, monkeypatch, setup, reason):
    tested = seen(changed(bench, setup=setup), monkeypatch)
    assert (tested.said, tested.reason) == ("skip", f"setup {reason}")


def test_a_build_that_takes_too_long_is_skipped(bench, monkeypatch):
    monkeypatch.setattr(revision, "SETUP_LIMIT", 0.2)
    setup = (sys.executable, "-S", "-c", "import time; time.sleep(30)")
    tested = seen(changed(bench, setup=setup), monkeypatch)
    assert tested.reason == "setup did not end within 0.2 s"


def test_what_a_build_leaves_is_cleared_away(bench, monkeypatch):
    write = "open('thing.py', 'a').write('#'); open('built', 'w').write('x')"
    bench = changed(bench, setup=(sys.executable, "-S", "-c", write))
    assert seen(bench, monkeypatch, PASSED).said == "good"
    assert git(bench.tree, "status", "--porcelain", "--ignored") == ""


def test_a_repository_without_engine_is_skipped(bench, monkeypatch):
    tested = seen(changed(bench, subject=""), monkeypatch)
    assert tested.reason == "it has no engine/ and no kernels/ at its root"


def test_code_that_is_no_python_is_skipped_without_a_worker(bench, monkeypatch):
    folder = bench.tree
    repository(folder, ["x = 1\n"])
    for name, text in (("engine", "def (:\n"), ("kernels", "")):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Broken")
    tested = seen(changed(bench, subject=""), monkeypatch)
    assert tested.said == "skip"
    assert tested.reason.startswith("engine/__init__.py is no Python: invalid syntax")


def test_a_subject_comes_from_the_worktree_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = tmp_path / "src/some_package_of_a_revision"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text(
        "class Thing:\n    name = 'thing'\n    def __init__(self, device): self.device = device\n"
    )
    made = load(str(tmp_path), "some_package_of_a_revision:Thing", "cpu")
    assert (made.name, made.device) == ("thing", "cpu")  # type: ignore[attr-defined]
    for name, message in (
        ("draftproof.reference.run:ReferenceSubject", "which is not of this revision"),
        ("some_package_of_a_revision:Other", "has no attribute 'Other'"),
        ("no_such_package:Thing", "ModuleNotFoundError"),
    ):
        unmade = load(str(tmp_path), name, "cpu")
        with pytest.raises(revision.RevisionImportError, match=message):
            unmade.run(None, None)  # type: ignore[arg-type]


def test_failures_are_the_same_by_contract_and_channel():
    one = Identity(contract="a", channel="b", phase="c", relation="d")
    assert one.is_same(Identity(contract="a", channel="b", phase="x", relation="y"), revision.SAME_IN_HISTORY)
    assert not one.is_same(Identity(contract="a", channel="x", phase="c", relation="d"), revision.SAME_IN_HISTORY)
    assert not one.is_same(Identity(contract="x", channel="b", phase="c", relation="d"), revision.SAME_IN_HISTORY)
