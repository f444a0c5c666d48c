"""`draftproof lab bisect history` as a user meets it: what it says, its report, its exit codes, and wrong input."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from draftproof.cli.app import run
from draftproof.cli.history import show
from draftproof.fuzz.bisect.history import HistoryReport
from draftproof.fuzz.bisect.revision import RevisionResult
from draftproof.fuzz.bisect.worktree import Revision
from draftproof.harness.identity import Identity
from draftproof.properties.formats.case import encode
from draftproof.properties.values.verdict import Outcome
from tests.fuzz import history_repository
from tests.fuzz.histories import data, git
from tests.named import named

SUBJECT = """
from dataclasses import replace
from draftproof.reference.run import ReferenceSubject

class Mine(ReferenceSubject):
    name = "mine"

    def run(self, scenario, script):
        trace = super().run(scenario, script)
        moved = lambda one: one._replace(value=one.value + AHEAD) if one.channel == "draft.step.positions" else one
        return replace(trace, observations=tuple(moved(one) for one in trace.observations))
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "case.json"
    # Rounds of several draft steps, whatever else runs.
    path.write_text(encode(named("eagle_padded")))
    return path


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = run(["lab", "bisect", "history", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_an_engine_of_this_layout(tmp_path, case, capsys):
    made = history_repository.make(tmp_path / "r", seed=4, commits=3)
    report = tmp_path / "report.json"
    repo = ["--repo", str(made.folder), "--good", made.hashes[0], "--bad", "main"]
    assert run(["lab", "bisect", "history", *repo, str(case), "--json", str(report)]) == 0
    out = capsys.readouterr().out
    culprit = made.hashes[made.culprit]
    assert re.search(rf"The first bad commit \(\d of 2 revisions tested, 0 of them skipped\):\n  {culprit} 2023-", out)
    assert "FAIL draft.positions\n" in out
    assert "expected   position" in out
    assert f"Again: draftproof lab bisect history {case} --repo" in out
    assert re.search(rf"^{made.hashes[0][:12]} Engine and kernels, revision 0: good, [\d.]+ s$", out, re.MULTILINE)
    read = json.loads(report.read_text())
    assert [one["hash"] for one in read["candidates"]] == [culprit]
    first = read["bad"]["first"]
    assert read["identity"]["contract"] == "draft.positions"
    assert int(first["got"]) == int(first["expected"]) + 1


def test_a_subject_of_ones_own_with_a_setup(tmp_path, case, capsys):
    """Three revisions: right, one that cannot be imported, wrong."""
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    stream = ""
    for number, ahead in enumerate(("AHEAD = 0", "raise OSError('not today')", "AHEAD = 1")):
        stream += f"commit refs/heads/main\ncommitter T <t@example.invalid> {1_700_000_000 + number} +0000\n"
        stream += data(f"Number {number}") + f"M 100644 inline src/mine.py.in\n{data(SUBJECT + ahead)}"
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream.encode(), check=True)
    good, unknown, wrong = git(folder, "rev-list", "--reverse", "main").split()
    arguments = ["--good", good, "--bad", "main", "--subject", "mine:Mine", "--setup", "cp src/mine.py.in src/mine.py"]
    assert run(["lab", "bisect", "history", "--repo", str(folder), *arguments, str(case)]) == 125
    out = capsys.readouterr().out
    assert "Number 1: skip (it cannot be imported: OSError: not today)" in out
    assert "Skipped revisions hide which of these is the first bad commit (1 of 2 revisions tested, 1 of them" in out
    assert f"  {wrong} 2023-" in out
    assert f"  {unknown} 2023-" in out
    assert "--setup 'cp src/mine.py.in src/mine.py' --subject mine:Mine" in out


def test_wrong_input_is_named(tmp_path, case, capsys):
    made = history_repository.make(tmp_path / "r", commits=4)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    ends = ("--good", made.hashes[0], "--bad", "main")
    repo = ("--repo", str(made.folder))
    for arguments, message in (
        (("--repo", str(tmp_path), *ends, str(case)), "expected a folder in a git repository"),
        ((*repo, "--good", "v1", "--bad", "main", str(case)), "invalid --good 'v1': expected a revision of"),
        ((*repo, "--good", "main", "--bad", made.hashes[0], str(case)), "expected an ancestor of --bad"),
        ((*repo, *ends, str(broken)), "expected a JSON object, a scenario"),
        ((*repo, *ends, str(tmp_path / "no.json")), "cannot be read"),
        (
            (*repo, *ends, str(case), "--setup", "make 'it"),
            'invalid --setup "make \'it": expected a command: No closing',
        ),
        ((*repo, *ends, str(case), "--setup", " "), "invalid --setup ' ': expected a command"),
        ((*repo, *ends, str(case), "--subject", "mine"), "invalid --subject 'mine': expected package.module:name"),
        ((*repo, *ends, str(case), "--repeat", "0"), "--repeat"),
        ((*repo, *ends, str(case), "--device", "tpu"), "invalid --device 'tpu': expected cpu, cuda"),
        ((*repo, *ends), "CASE.json"),
    ):
        assert message in error_of(capsys, *arguments)


def test_a_crash_is_shown_with_its_detail(capsys):
    crash = Identity(contract="crash", channel="SIGSEGV")
    bad = RevisionResult(
        commit="b" * 40, subject="Two", said="bad", identity=crash, detail="SIGSEGV in base, engine step 3"
    )
    good = RevisionResult(commit="a" * 40, subject="One", said="good")
    one = Revision(hash="b" * 40, subject="Two", date="2023-11-14T22:13:20+00:00")
    show(
        HistoryReport(
            verdict=Outcome.PASS,
            candidates=(one,),
            identity=crash,
            bad=bad,
            between=1,
            tested=0,
            skipped=0,
            revisions=(),
            ends=(good, bad),
        )
    )
    out = capsys.readouterr().out
    assert "crash in SIGSEGV\nSIGSEGV in base, engine step 3" in out
    assert f"  {'b' * 40} 2023-11-14T22:13:20+00:00 Two" in out
