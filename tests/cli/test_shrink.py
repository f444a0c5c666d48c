"""`draftproof lab shrink`: what it writes, says and ends with."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from draftproof.cli import subjects
from draftproof.cli.app import run
from draftproof.cli.inputs import InputError
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.workers import pool
from draftproof.harness.workers.messages import Answer, Order, Place
from draftproof.properties.formats.case import Case, case_fault, decode, encode, read_case
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solve import solve
from draftproof.report.text import describe_scenario
from tests.cli.pools import FAILS, GONE, Answering, found_with, pool_of
from tests.named import named

SCENARIO = named("five_in_graphs")


@pytest.fixture
def case(tmp_path) -> Path:
    path = tmp_path / "case.json"
    path.write_text(encode(SCENARIO), encoding="utf-8")
    return path


@pytest.fixture
def answers(monkeypatch):
    """Have scenarios answered in this process."""

    def use(answering: Answering) -> type:
        made = pool_of(answering)
        monkeypatch.setattr(pool, "Pool", made)
        return made

    return use


def test_a_smaller_case_names_the_fault_that_it_takes(case, answers):
    answers(in_a_graph)
    assert run(["lab", "shrink", str(case), "--fault", "pages-leak-on-finish"]) == 0
    shrunk = case.with_name("case.shrunk.json")
    assert decode(shrunk.read_bytes(), Case).origin == f"shrunk from {case} with --fault pages-leak-on-finish"
    assert case_fault(shrunk) == "pages-leak-on-finish"


def in_a_graph(order: Order) -> Answer:
    return FAILS if order.scenario.graphs.sizes else GONE


def test_a_smaller_case_is_written_and_told(case, answers, capsys):
    made = answers(in_a_graph)
    report = case.with_name("report.json")
    assert run(["lab", "shrink", str(case), "--json", str(report)]) == 0
    shrunk = case.with_name("case.shrunk.json")
    kept = decode(shrunk.read_bytes(), Case)
    assert kept.script == solve(kept.scenario)
    assert kept.origin == f"shrunk from {case}"
    assert (len(kept.scenario.requests), kept.scenario.graphs.sizes) == (1, (1,))
    out = capsys.readouterr().out
    for said in (
        "1 request, 1 prompt token, eagle with at most 1 draft a round, batches of at most 1 row, page size 1, graphs",
        "graphs of 1, 1 layer.",
        "nothing smaller fails alike",
        "got        position 6 (one ahead)",
        "Failed again in 3 of 3 runs.",
        f"FAIL. Again: draftproof replay {shrunk} --device cpu",
    ):
        assert said in out
    told = json.loads(report.read_text())
    assert (told["verdict"], told["requests"], told["rounds"], told["confirmed"], told["done"]) == (
        "FAIL",
        1,
        [0],
        3,
        True,
    )
    assert made.open == []
    assert [path.name for path in sorted(case.parent.iterdir())] == ["case.json", "case.shrunk.json", "report.json"]


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE])
def test_a_case_that_does_not_fail(case, answers, capsys, outcome):
    answers(lambda *_: Answer(number=0, outcome=outcome))
    assert run(["lab", "shrink", str(case)]) == 125
    assert f"does not fail: {outcome}" in capsys.readouterr().out
    assert not case.with_name("case.shrunk.json").exists()


def test_a_case_that_does_not_fail_without_its_fault(case, answers, capsys):
    answers(lambda *_: Answer(number=0, outcome=Outcome.PASS))
    found_with("pages-leak-on-finish", case)
    assert run(["lab", "shrink", str(case)]) == 125
    assert capsys.readouterr().out.startswith("found with --fault pages-leak-on-finish; this run is without it\n")


def test_a_crash_is_shrunk_too(case, answers, capsys):
    crash = Answer(number=0, outcome=Outcome.CRASH, error="IndexError", place=Place(run="base", step=3, launch="draft"))
    answers(lambda *_: crash)
    assert run(["lab", "shrink", str(case), "--time", "1s"]) == 0
    assert "CRASH IndexError in the base, engine step 3, draft" in capsys.readouterr().out


def test_our_own_error_is_no_finding(case, answers, capsys):
    answers(lambda *_: Answer(number=0, outcome=Outcome.ERROR, detail="ValueError: what"))
    assert run(["lab", "shrink", str(case)]) == 2
    assert "ValueError: what" in capsys.readouterr().err


def test_a_flaky_case_is_kept_as_such(case, answers, capsys):
    count = 0

    def once(_order: Order) -> Answer:
        nonlocal count
        count += 1
        return FAILS if count == 1 else GONE

    answers(once)
    assert run(["lab", "shrink", str(case), "--time", "0.5s"]) == 125
    assert "FLAKY: it failed in none of 3 runs more" in capsys.readouterr().out
    assert read_case(case.with_name("case.shrunk.json"))[0] == SCENARIO


def test_it_goes_on_where_it_was_stopped(case, answers, capsys):
    count = 0

    def stopped(order: Order) -> Answer:
        nonlocal count
        count += 1
        if count == 12:
            raise KeyboardInterrupt
        return in_a_graph(order)

    answers(stopped)
    assert run(["lab", "shrink", str(case)]) == 2
    shrunk = case.with_name("case.shrunk.json")
    assert f"Interrupted. The smallest case so far is {shrunk}." in capsys.readouterr().out
    first = read_case(shrunk)[0]
    assert size(first) < size(SCENARIO)
    seen: list[Scenario] = []
    answers(lambda order: seen.append(order.scenario) or in_a_graph(order))
    assert run(["lab", "shrink", str(case)]) == 0
    assert f"Resumes from {shrunk}." in capsys.readouterr().out
    assert seen[:2] == [SCENARIO, first]
    assert all(size(scenario) < size(first) for scenario in seen[2:])


def test_what_is_there_is_looked_at_first(case, answers, capsys):
    shrunk = case.with_name("case.shrunk.json")
    shrunk.write_text(encode(named("eagle_padded")), encoding="utf-8")
    answers(lambda order: FAILS if order.scenario == SCENARIO else GONE)
    assert run(["lab", "shrink", str(case), "--time", "0.001s"]) == 0
    assert "does not fail like this case" in capsys.readouterr().out
    shrunk.write_text("{", encoding="utf-8")
    assert run(["lab", "shrink", str(case), "--time", "0.001s"]) == 0
    assert "is replaced, as it cannot be read:" in capsys.readouterr().out
    assert read_case(shrunk)[0] == SCENARIO


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time", "soon"], "invalid --time 'soon': expected a number with a unit"),
        (["--fault", "chain-guess"], "did you mean chain-guess-survives?"),
        (["--fault", "chain-guess-survives", "--patch", "a.patch"], "invalid --patch: expected without --fault"),
        (["--patch", "nowhere.patch"], "nowhere.patch: cannot be read"),
        (["--device", "tpu"], "invalid --device 'tpu': expected cpu, cuda"),
        (["--out", "CASE"], "expected another file than the case"),
        (["--out", "README.md/all.json"], "cannot be written"),
    ],
)
def test_bad_input(case, answers, capsys, arguments, message):
    answers(lambda *_: FAILS)
    given = [str(case) if one == "CASE" else one for one in arguments]
    assert run(["lab", "shrink", str(case), *given]) == 2
    assert message in capsys.readouterr().err


def test_a_case_that_cannot_be_read(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"requests": 1}', encoding="utf-8")
    for path in (broken, tmp_path / "nowhere.json"):
        assert run(["lab", "shrink", str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_a_stale_fault_is_bad_input(tmp_path):
    text = "--- engine/engine.py\n+++ engine/engine.py\n@@ -1,1 +1,1 @@\n-no such line\n+another\n"
    patch = tmp_path / "stale.patch"
    patch.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="is stale"), subjects.UnderTest(patch=patch).patched():
        pass


def test_what_a_scenario_is_in_words():
    adaptive = msgspec.structs.replace(named("adaptive_rising"), variant="graph_vs_eager")
    assert "adaptive steps, variant graph_vs_eager" in describe_scenario(adaptive)


@pytest.mark.parametrize("fault", ["padding-rows-keep-live-slots"])
def test_a_fault_is_shrunk_in_workers(tmp_path, capsys, fault):
    """Two requests are needed: one whose rows the padding keeps, and one beside it."""
    case, report = tmp_path / "case.json", tmp_path / "report.json"
    case.write_text(encode(named("ends")), encoding="utf-8")
    arguments = ["lab", "shrink", str(case), "--fault", fault, "--workers", "1", "--time", "15s", "--json", str(report)]
    assert run(arguments) == 0
    told = json.loads(report.read_text())
    assert told["identity"]["contract"] == "memory.written"
    assert told["confirmed"] == 3
    assert told["requests"] <= 2
    assert max(told["rounds"]) <= 3
    assert f"--fault {fault}" in capsys.readouterr().out
