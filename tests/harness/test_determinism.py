"""A subject runs the same again: what differs first is named, in one process and in another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from draftproof.engine.subject import EngineSubject
from draftproof.harness.determinism import determinism
from draftproof.properties.formats.determinism import DeterminismReport
from draftproof.properties.values.verdict import Outcome
from tests.harness.unrepeated import Unrepeated
from tests.named import named

ROOT = Path(__file__).resolve().parent.parent.parent
SCENARIOS = [named("eagle_padded")]


def repeated(what: str) -> DeterminismReport:
    return determinism(lambda: Unrepeated(what), lambda _limits: SCENARIOS)


def test_the_engine_does_the_same_again():
    report = determinism(EngineSubject, lambda _limits: SCENARIOS)
    assert (report.verdict, report.differences, report.raised) == (Outcome.PASS, (), 0)
    assert report.observations > 500


FIRST: dict[str, tuple[str, str, tuple[int, ...], tuple[str, str], int]] = {
    "a value": ("value", "draft.step.positions", (1, 2, 2), ("2", "99"), 1),
    "two values": ("value", "propose.tokens", (1, 2, -1), ("(1, 2)", "(3, 4)"), 2),
    "one less": ("value", "draft.step.positions", (0, 3, 1), ("1", "nothing"), 1),
}


@pytest.mark.parametrize("what", FIRST)
def test_the_first_value_that_differs_is_named(what: str):
    kind, channel, place, runs, count = FIRST[what]
    (found,) = repeated(what).differences
    assert (found.place, found.kind, found.scenario, found.runs) == ("the same process", kind, 0, runs)
    assert found.found is not None
    seen = found.found
    assert (seen.channel, (seen.request, seen.round, seen.step), seen.count) == (channel, place, count)


def test_another_order_and_another_error_are_named():
    (order,) = repeated("order").differences
    assert (order.kind, order.number) == ("order", 1)
    told = ("accept.emitted (request 0, round 1)", "propose.tokens (request 0, round 1)")
    assert (order.runs, order.found) == (told, None)
    report = repeated("error")
    (error,) = report.differences
    assert (error.kind, error.runs) == ("error", ("no error", "RuntimeError: out of memory at 0x.."))
    assert (report.verdict, report.raised) == (Outcome.FAIL, 0)


class Raises(Unrepeated):
    """Raises in every run, each time with another address."""

    def run(self, *_: object) -> Any:
        raise RuntimeError(f"no kernel at {hex(id(object()) + next(self._runs))}")


def test_the_same_error_every_time_is_no_difference_and_no_pass():
    report = determinism(Raises, lambda _limits: SCENARIOS)
    assert (report.verdict, report.raised, report.differences) == (Outcome.INCONCLUSIVE, 1, ())


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("no run at all", 125, "INCONCLUSIVE: none of 2 scenarios ran to its end; 2 raised the same error in every"),
        ("a half", 0, "PASS: 1 of 2 scenarios ran to the end and came out equal twice in one process and in another, "),
    ],
)
def test_the_line_says_how_many_scenarios_ran_to_their_end(
    what: str, code: int, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(ROOT)
    command = ["doctor", "--determinism", "--subject", "tests.harness.unrepeated:Raising", "--draft", "eagle"]
    assert run([*command, "--set", f"what={what}", "--examples", "2"]) == code
    out = capsys.readouterr().out
    assert told in out
    assert "raised the same error in every run, which shows nothing. Again: " in out


@pytest.mark.parametrize(
    ("settings", "code", "told"),
    [
        ({}, 0, "PASS: 2 of 2 scenarios ran to the end and came out equal twice in one process and in another, "),
        ({"what": "a value"}, 1, "draft.step.positions: request 1, round 2, step 2"),
        ({"what": "a value", "when": "in another process"}, 1, "scenario 0, in another process: another value"),
    ],
)
def test_the_command_runs_it_in_two_processes(
    settings: dict[str, str],
    code: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(ROOT)
    given = settings | ({"marker": str(tmp_path / "pid")} if "when" in settings else {})
    options = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    report = tmp_path / "report.json"
    command = ["doctor", "--determinism", "--subject", "tests.harness.unrepeated:Unrepeated", "--draft", "eagle"]
    assert run([*command, *options, "--examples", "2", "--json", str(report)]) == code
    out = capsys.readouterr().out
    assert told in out
    assert "Again: draftproof doctor --determinism --seed 0 --examples 2 --draft eagle" in out
    found = json.loads(report.read_text())
    places = {"a value": "the same process"} if "when" not in settings else {"a value": "another process"}
    assert [one["place"] for one in found["differences"]] == [places[what] for what in [settings.get("what")] if what]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--seed", "3"], "invalid --seed 3: expected only together with --determinism"),
        (["--draft", "eagle"], "invalid --draft eagle: expected only together with --determinism"),
        (["--determinism", "--subject", "nosuch"], "invalid --subject 'nosuch'"),
        (
            ["--determinism", "--subject", "tests.harness.unrepeated:Toy"],
            "error: invalid --subject 'tests.harness.unrepeated:Toy': expected a module and a name in it: module"
            " 'tests.harness.unrepeated' has no attribute 'Toy'\n",
        ),
        (
            ["--determinism", "--subject", "openai"],
            "error: invalid subject 'openai' without url: expected --url URL\n",
        ),
        (["--draft", "eagel"], "invalid --draft 'eagel'"),
    ],
)
def test_wrong_input_is_said(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(ROOT)
    assert run(["doctor", *given]) == 2
    assert told in capsys.readouterr().err
