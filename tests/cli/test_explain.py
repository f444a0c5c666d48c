"""`draftproof explain` and `demo`: each step on what the one before found, and what is known wherever they end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from draftproof.cli import again, demo
from draftproof.cli.app import run
from draftproof.fuzz.bisect import history, search
from draftproof.harness.workers import pool
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.fit import fit
from draftproof.properties.formats.case import encode, read_case
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.run import ReferenceSubject
from tests.cli.pools import FAILS, GONE, Answering, found_with, pool_of
from tests.fuzz.histories import repository
from tests.named import named

HERE = __name__
USED = ("greedy_accept", "rope")


class Bare(ReferenceSubject):
    """It can run a smallest case only as it is."""

    limits = Limits(drafts=("eagle",), steering="none", page_sizes=(64,))


def in_a_graph(order: Order) -> Answer:
    graphs = order.scenario.graphs
    return FAILS if graphs.sizes and graphs.capture else GONE


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "case.json"
    path.write_text(encode(named("five_in_graphs")), encoding="utf-8")
    return path


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answering], None]:
    """Have scenarios answered in this process, for a smaller case and for parts."""

    def use(answering: Answering) -> None:
        for module in (pool, search):
            monkeypatch.setattr(module, "Pool", pool_of(answering))
        monkeypatch.setattr(search, "kernels_used", lambda *_: USED)

    return use


def test_a_case_is_made_smaller_and_its_parts_are_told(case, answers, capsys):
    answers(in_a_graph)
    report = case.with_name("report.json")
    assert run(["explain", str(case), "--json", str(report)]) == 0
    shrunk = case.with_name("case.shrunk.json")
    assert len(read_case(shrunk)[0].requests) == 1
    *_, summary = capsys.readouterr().out.split("\n\n")
    told = [line.split()[0] for line in summary.splitlines() if not line.startswith("     ")]
    assert told == ["FAIL", "what", "where", "expected", "got", "smallest", "parts", "replay", "FAIL."]
    assert "parts      It takes: graphs. (" in summary
    assert f"replay     draftproof replay {shrunk}\n" in summary
    assert f"FAIL. Again: draftproof explain {case} --device cpu" in summary
    read = json.loads(report.read_text())
    assert (read["verdict"], read["parts"]["found"]["needed"], read["history"]) == ("FAIL", ["graphs"], None)


def test_it_goes_on_from_the_smallest_case(case, answers, capsys):
    answers(in_a_graph)
    assert run(["explain", str(case), "--time", "0.001s"]) == 0
    assert run(["explain", str(case)]) == 0
    assert f"Resumes from {case.with_name('case.shrunk.json')}." in capsys.readouterr().out


def test_a_case_that_does_not_fail_is_not_explained(case, answers, capsys):
    answers(lambda *_: GONE)
    found_with("pages-leak-on-finish", case)
    assert run(["explain", str(case)]) == 125
    assert capsys.readouterr().out.splitlines() == [
        "found with --fault pages-leak-on-finish; this run is without it",
        f"{case} does not fail: PASS. There is nothing to explain.",
    ]


def test_of_a_flaky_case_no_parts_are_looked_for(case, answers, capsys):
    numbers = count()
    answers(lambda _: GONE if next(numbers) else FAILS)
    assert run(["explain", str(case), "--time", "0.5s"]) == 125
    out = capsys.readouterr().out
    assert "flaky      it failed in none of 3 runs more, so it cannot be bisected" in out
    assert "  parts  " not in out


def test_a_subject_without_parts_is_told_so_in_a_line(case, answers, capsys):
    answers(lambda *_: FAILS)
    case.write_text(encode(fit(named("five_in_graphs"), Bare.limits)), encoding="utf-8")
    assert run(["explain", str(case), "--subject", f"{HERE}:Bare"]) == 0
    assert "parts      There is no part that could be off." in capsys.readouterr().out


def test_what_is_known_is_told_before_an_error_of_a_step(case, answers, capsys, monkeypatch):
    answers(in_a_graph)
    monkeypatch.setattr(search, "bisect", lambda *_args, **_options: 1 / 0)
    report = case.with_name("report.json")
    assert run(["explain", str(case), "--json", str(report)]) == 2
    said = capsys.readouterr()
    assert "smallest   1 request" in said.out
    assert "draftproof itself failed: ZeroDivisionError" in said.err
    read = json.loads(report.read_text())
    assert (read["shrunk"]["requests"], read["parts"]) == (1, None)


def test_an_interrupt_leaves_what_is_known(case, answers, capsys, monkeypatch):
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    answers(in_a_graph)
    monkeypatch.setattr(search, "bisect", interrupt)
    assert run(["explain", str(case)]) == 2
    said = capsys.readouterr()
    assert "smallest   1 request" in said.out
    assert said.err == "error: interrupted before there was a verdict\n"


def test_a_commit_is_looked_for_with_the_smaller_case(case, answers, capsys, monkeypatch, tmp_path):
    hashes = repository(tmp_path / "r", ["good", "bad"])
    asked = []

    def bisect(looked_for: object, path: Path, _tell: object) -> None:
        asked.append((looked_for, path))
        raise history.HistoryError("invalid --bad main: expected a revision that fails; it passes")

    answers(in_a_graph)
    monkeypatch.setattr(history, "bisect_history", bisect)
    ends = ["--repo", str(tmp_path / "r"), "--good", hashes[0], "--bad", "main"]
    assert run(["explain", str(case), *ends]) == 2
    said = capsys.readouterr()
    assert "parts      It takes: graphs." in said.out
    assert said.err == "error: invalid --bad main: expected a revision that fails; it passes\n"
    ((looked_for, path),) = asked
    assert (looked_for.good, looked_for.subject, path) == (hashes[0], "", case.with_name("case.shrunk.json"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--good v1", "invalid --good 'v1': expected only together with --repo"),
        ("--setup make", "invalid --setup 'make': expected only together with --repo"),
        ("--repo . --good v1", "invalid --repo '.': expected --good and --bad, too, a commit each"),
        ("--repo . --good a --bad b --fault pages-leak-on-finish", "expected without --fault, which no commit has"),
        ("--repo R --good a --bad b", "invalid --good 'a': expected a revision of R"),
        ("--repo / --good a --bad b", "invalid --repo '/': expected a folder in a git repository"),
        ("--out case.json", "invalid --out 'case.json': expected another file than the case"),
        ("--time soon", "invalid --time 'soon'"),
    ],
)
def test_wrong_input_is_told_before_anything_runs(words, told, case, capsys, monkeypatch):
    monkeypatch.chdir(case.parent)
    subprocess.run(["git", "init", "--quiet", "R"], check=True)
    assert run(["explain", "case.json", *words.split()]) == 2
    assert told in capsys.readouterr().err


def test_a_demo_that_finds_nothing_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "DEMO_EXAMPLES", 0)
    assert run(["demo"]) == 125
    assert "INCONCLUSIVE: nothing failed in 0 scenarios" in capsys.readouterr().out


def test_a_long_command_is_a_file_that_runs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert again.again("faults", "list", json="x.json") == "draftproof faults list --json x.json"
    told = again.again("faults", "list", json=f"{'long/' * 99}x.json")
    assert told.startswith("sh .draftproof/again/faults-list-")
    assert subprocess.run(told.split(), capture_output=True, text=True, timeout=60).stdout.startswith("id ")
    assert (tmp_path / ("long/" * 99) / "x.json").is_file()


def test_where_no_file_can_be_written_it_is_the_same_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".draftproof").write_text("")
    assert again.again("faults", "list", id=["x" * 500]) == "the same command"


def test_many_patches_make_no_long_message(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patches = []
    for number in range(30):
        path = tmp_path / f"{'patch' * 10}{number}.patch"
        path.write_text("--- engine/engine.py\n+++ engine/engine.py\n@@ -1,1 +1,1 @@\n-no such line\n+another\n")
        patches += ["--patch", str(path)]
    assert run(["faults", "run", *patches, "--seeds", "1", "--examples", "1"]) == 2
    last = capsys.readouterr().out.splitlines()[-1]
    assert "Again: sh .draftproof/again/faults-run-" in last
    assert len(last) < 200
    assert Outcome.ERROR in last
