"""Bisecting a history: which commit is named, what is skipped, what stays as it was, and what is our own error.

Most tests put a program of three lines in place of the one that runs a case: it reads its verdict from a file.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from draftproof.fuzz.bisect import history, revision
from draftproof.fuzz.bisect.history import HistoryError, HistoryReport, Search, bisect_history
from draftproof.fuzz.bisect.revision import Plan, RevisionResult, examine, load
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.case import encode
from draftproof.properties.values.relations import OtherRow
from draftproof.properties.values.verdict import Outcome
from tests.harness.doubles import diverging

ROOT = Path(__file__).resolve().parents[2]
FAKE = """
import json, pathlib, subprocess, sys
plan = json.loads(pathlib.Path(sys.argv[1]).read_bytes())
said = pathlib.Path("said").read_text().strip()
if said == "vanish": sys.exit(1)
if said == "raise":
    (pathlib.Path(plan["work"]) / "error.txt").write_text("Traceback: OSError: disk")
    sys.exit(255)
here = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
tested = {"commit": here, "subject": "", "said": said, "identity": {"contract": "c", "channel": "d"}}
with open(pathlib.Path(plan["work"]) / "tested.jsonl", "a") as out: out.write(json.dumps(tested) + "\\n")
sys.exit({"good": 0, "bad": 1, "skip": 125}[said])
"""


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("history_repository", ROOT / "examples/history_repository.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, states: Sequence[str], name: str = "said") -> list[str]:
    """A repository with one commit for each content of a file; their hashes, oldest first."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    stream = "".join(made(number, {name: state, "number": str(number)}) for number, state in enumerate(states))
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream.encode(), check=True)
    git(folder, "reset", "--quiet", "--hard", "main")
    return git(folder, "rev-list", "--reverse", "main").split()


def made(number: int, files: dict[str, str]) -> str:
    """A commit as `git fast-import` reads it."""
    head = f"commit refs/heads/main\ncommitter Test <test@example.invalid> {1_700_000_000 + number} +0000\n"
    texts = (f"M 100644 inline {name}\n{data(text)}" for name, text in files.items())
    return "".join([head, data(f"Number {number}"), *texts])


def data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "case.json"
    path.write_text(encode(generate(0, 8)[7]))
    return path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "fake.py"
    program.write_text(FAKE)
    real = history._Bisection._program
    monkeypatch.setattr(
        history._Bisection, "_program", lambda self: [sys.executable, "-S", str(program), real(self)[-1]]
    )


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
@pytest.mark.parametrize(("said", "message"), [("raise", "OSError: disk"), ("vanish", "without being tested")])
def test_an_error_of_ours_is_never_bad(tmp_path, case, said, message):
    hashes = repository(tmp_path / "r", ["good", "good", said, "bad", "bad"])
    with pytest.raises(RuntimeError, match=message):
        bisected(tmp_path / "r", case, hashes)
    assert_untouched(tmp_path / "r")


@pytest.mark.usefixtures("fake")
def test_an_end_that_says_nothing_is_an_error_of_ours(tmp_path, case):
    hashes = repository(tmp_path / "r", ["vanish", "bad"])
    with pytest.raises(RuntimeError, match="said nothing"):
        bisected(tmp_path / "r", case, hashes)


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
from draftproof.fuzz.bisect.history import Search, bisect_history
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


# The program that is run for each commit.


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


FAILURE, CRASH = FAILED.identity, CRASHED.identity


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


# The generated repository.


def test_the_generated_repository_is_always_the_same(tmp_path):
    module = example()
    one, two = (module.make(tmp_path / name, seed=5, unbuildable="python") for name in "ab")
    assert one.hashes == two.hashes
    assert len(one.hashes) == 64
    assert len(one.unbuildable) == 21
    assert one.culprit not in one.unbuildable
    assert module.make(tmp_path / "c", seed=6).hashes != one.hashes
    changed = git(one.folder, "diff", "--stat", f"{one.hashes[one.culprit]}~", one.hashes[one.culprit])
    assert "engine/drafts/eagle.py" in changed
    broken = min(one.unbuildable)
    with pytest.raises(SyntaxError):
        compile(git(one.folder, "show", f"{one.hashes[broken]}:engine/engine.py"), "engine.py", "exec")
    assert git(one.folder, "status", "--porcelain") == ""


@pytest.mark.parametrize(("unbuildable", "seed"), [("no", 0), ("python", 1), ("build", 2)])
def test_the_commit_that_brought_a_fault_in_is_named(tmp_path, case, unbuildable, seed):
    module = example()
    made = module.make(tmp_path / "r", seed=seed, unbuildable=unbuildable)
    setup = (sys.executable, *module.SETUP[1:]) if unbuildable == "build" else ()
    report = bisected(made.folder, case, made.hashes, setup=setup)
    assert report.first is not None
    assert report.first.hash == made.hashes[made.culprit]
    assert report.tested - report.skipped <= 7
    assert (report.skipped > 0) == (unbuildable != "no")
    assert report.bad.first is not None
    assert report.bad.first.contract == "draft.positions"
