"""What one commit of a history is: the program that tests it says good, bad or skip, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from draftproof.fuzz.bisect import revision
from draftproof.fuzz.bisect.revision import Plan, RevisionResult, examine, load
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.case import encode
from draftproof.properties.values.relations import OtherRow
from draftproof.properties.values.verdict import Outcome
from tests.fuzz.histories import git, repository
from tests.harness.doubles import diverging

# The program that is run for each commit.


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "case.json"
    path.write_text(encode(generate(0, 8)[7]))
    return path


DIVERGENCE = diverging(got=10)
PASSED = Answer(number=0, outcome=Outcome.PASS, judged=("draft.positions",))
FAILED = Answer(number=0, outcome=Outcome.FAIL, judged=("draft.positions",), first=DIVERGENCE)
OTHER = msgspec.structs.replace(FAILED, first=msgspec.structs.replace(DIVERGENCE, contract="verify.positions"))
MOVED = msgspec.structs.replace(FAILED, first=msgspec.structs.replace(DIVERGENCE, relation=OtherRow(row=2)))
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
def plan(tmp_path: Path, case: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(revision, "Pool", Answers)
    # `examine` goes to the plan's home; both are put back.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "work").mkdir()
    return Plan(case=str(case), work=str(tmp_path / "work"), home=str(tmp_path), subject="thing:Thing")


def seen(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> RevisionResult:
    monkeypatch.setattr(Answers, "answers", answers)
    if not folder.exists():
        repository(folder, ["Thing = None\n"], "thing.py")
    return examine(plan, folder)


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
def test_what_runs_say_of_a_commit(plan, tmp_path, monkeypatch, answers, expected, said, reason):
    plan = msgspec.structs.replace(plan, repeat=len(answers), expected=expected)
    tested = seen(plan, tmp_path / "r", monkeypatch, *answers)
    assert tested.said == said
    assert tested.reason.startswith(reason) if reason else not tested.reason
    assert tested.subject == "Number 0"


def test_no_more_runs_than_are_needed(plan, tmp_path, monkeypatch):
    plan = msgspec.structs.replace(plan, repeat=3, expected=FAILURE, timeout=7.5)
    tested = seen(plan, tmp_path / "r", monkeypatch, FAILED)
    assert (tested.runs, tested.failing, tested.first) == (1, 1, DIVERGENCE)
    assert Answers.asked is not None
    assert Answers.asked[1] == 7.5


def test_exit_codes_are_those_of_git(plan, tmp_path, monkeypatch):
    plan = msgspec.structs.replace(plan, expected=FAILURE)
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    repository(tmp_path / "r", ["Thing = None\n"], "thing.py")
    for answer, code in ((PASSED, 0), (FAILED, 1), (OTHER, 125), (UNMADE, 125), (BROKEN, 255)):
        monkeypatch.setattr(Answers, "answers", (answer,))
        monkeypatch.chdir(tmp_path / "r")
        assert revision.main([str(file)]) == code
    assert "the disk is full" in revision.troubles(Path(plan.work)).read_text()
    lines = revision.records(Path(plan.work)).read_bytes().splitlines()
    said = [msgspec.json.decode(line, type=RevisionResult).said for line in lines]
    assert said == ["good", "bad", "skip", "skip"]


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
def test_what_cannot_be_built_is_skipped(plan, tmp_path, monkeypatch, setup, reason):
    tested = seen(msgspec.structs.replace(plan, setup=setup), tmp_path / "r", monkeypatch)
    assert (tested.said, tested.reason) == ("skip", f"setup {reason}")


def test_a_build_that_takes_too_long_is_skipped(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(revision, "SETUP_LIMIT", 0.2)
    setup = (sys.executable, "-S", "-c", "import time; time.sleep(30)")
    tested = seen(msgspec.structs.replace(plan, setup=setup), tmp_path / "r", monkeypatch)
    assert tested.reason == "setup did not end within 0.2 s"


def test_what_a_build_leaves_is_cleared_away(plan, tmp_path, monkeypatch):
    write = "open('thing.py', 'a').write('#'); open('built', 'w').write('x')"
    plan = msgspec.structs.replace(plan, setup=(sys.executable, "-S", "-c", write))
    assert seen(plan, tmp_path / "r", monkeypatch, PASSED).said == "good"
    assert git(tmp_path / "r", "status", "--porcelain", "--ignored") == ""


def test_a_repository_without_engine_is_skipped(plan, tmp_path, monkeypatch):
    tested = seen(msgspec.structs.replace(plan, subject=""), tmp_path / "r", monkeypatch)
    assert tested.reason == "it has no engine/ and no kernels/ at its root"


def test_code_that_is_no_python_is_skipped_without_a_worker(plan, tmp_path, monkeypatch):
    folder = tmp_path / "r"
    repository(folder, ["x = 1\n"])
    for name, text in (("engine", "def (:\n"), ("kernels", "")):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Broken")
    tested = seen(msgspec.structs.replace(plan, subject=""), folder, monkeypatch)
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
        ("some_package_of_a_revision:Other", "AttributeError"),
        ("no_such_package:Thing", "ModuleNotFoundError"),
    ):
        unmade = load(str(tmp_path), name, "cpu")
        with pytest.raises(revision.RevisionImportError, match=message):
            unmade.run(None, None)  # type: ignore[arg-type]


def test_failures_are_the_same_by_contract_and_channel():
    one = Identity(contract="a", channel="b", phase="c", relation="d")
    assert one.is_same(Identity(contract="a", channel="b", phase="x", relation="y"), revision.SAME)
    assert not one.is_same(Identity(contract="a", channel="x", phase="c", relation="d"), revision.SAME)
    assert not one.is_same(Identity(contract="x", channel="b", phase="c", relation="d"), revision.SAME)
