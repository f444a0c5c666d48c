"""`draftproof golden`, and `judge --at-least`: lengths in their public form are read, written and held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from draftproof.properties.formats.golden import GoldenCell, GoldenError, read_golden

PUBLIC = """\
# Source GitHub Actions run: https://github.com/SemiAnalysisAI/InferenceX/actions/runs/28061204145
# dataset: coding | temperature: 1.0
#
# key = num_speculative_tokens (EAGLE3 level); value = golden AL
_metadata:
  draft-model: Inferact/MiniMax-M3-EAGLE3
minimax-m3:
  thinking_on:
    1: 1.78
    2: 2.38
    3: 2.83
  thinking_off:
    1: 1.84
    3: 2.93
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.yaml"
    path.write_text(PUBLIC)
    return path


def counts(folder: Path, drafts: int, *accepted: int) -> str:
    path = folder / "counts.json"
    path.write_text(json.dumps({"drafts": drafts, "accepted": accepted}))
    return str(path)


def log_of(folder: Path, **fields: Any) -> str:
    """Write a log of two rounds of three drafts, of which two are accepted, and a last one."""
    lines: list[dict[str, Any]] = [{"request": 0, "prompt": [1]}, {"request": 0, "round": 0, "emitted": [2]}]
    for number, emitted in enumerate(([3, 4, 5], [3, 4, 5], [9]), start=1):
        lines.append({"request": 0, "round": number, "emitted": emitted, **fields})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_the_public_form_is_read_and_kept(golden: Path):
    found = read_golden(golden)
    assert found.cell(None, "thinking_off", 3) == GoldenCell("minimax-m3", "thinking_off", 3, 2.93)
    golden.write_text(found.with_cell(GoldenCell("no: 1", "off", 2, 1.498)).text("added"))
    again = read_golden(golden)
    assert again.curves == {**found.curves, "no: 1": {"off": {2: 1.5}}}
    assert (again.about, again.comments) == (found.about, (*found.comments, "# added"))


WRONG_FILES = {
    "": "expected a mapping of model, mode and number of drafts",
    "a: [\n b": "expected YAML: while parsing a flow sequence at line 1, column 4; did not find expected ',' or ']' at"
    " line 3, column 1",
    "a: {b: {c: 1.5}}": "invalid number of drafts 'c' of a.b: expected a whole number, 1 .. 64",
    "a: {b: {2: many}}": "invalid a.b[2], 'many': expected an acceptance length, a number",
    "a: {b: {2: null}}": "invalid a.b[2], None: expected an acceptance length, a number",
    "a: {b: 2.5}": "invalid a.b, 2.5: expected lengths by their number of drafts",
    "a: {on: {2: 2.5}}": "invalid mode of a True: expected text; put quotes around it",
    "a: {b: {2: 3.5}}": "invalid a.b[2], 3.5: expected 1 .. 3",
    "a: {b: {2: .nan}}": "invalid a.b[2], nan: expected 1 .. 3",
    "a: {b: {0: 1}}": "invalid number of drafts 0 of a.b: expected a whole number, 1 .. 64",
    "a: 2": "invalid a, 2: expected its modes",
    "_metadata: {}": "expected at least one model",
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_file_that_is_none_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(GoldenError) as error:
        read_golden(path)
    assert str(error.value).startswith(f"{path}: ")
    assert WRONG_FILES[text] in str(error.value)
    assert "<byte string>" not in str(error.value)


def test_a_mode_that_is_not_there_is_answered_by_those_that_are(tmp_path: Path):
    path = tmp_path / "golden.yaml"
    path.write_text("m: {thinking_off: {1: 1.8}}")
    with pytest.raises(GoldenError) as error:
        read_golden(path).cell("m", "thinking_on", 1)
    assert str(error.value) == f"{path}: invalid 'thinking_on' as mode of m: expected thinking_off"


@pytest.mark.parametrize(("accepted", "code"), [((70, 50, 40), 0), ((70, 50, 35), 1)])
def test_a_length_is_held_to_a_share_of_the_golden_one(
    accepted: tuple[int, ...], code: int, golden: Path, tmp_path: Path
):
    """2.6 of 2.83 are 0.919, 2.55 are 0.901."""
    report = tmp_path / "report.json"
    options = ["--observed", counts(tmp_path, 100, *accepted), "--mode", "thinking_on", "--at-least", "0.91"]
    assert run(["golden", "check", str(golden), *options, "--json", str(report)]) == code
    found = json.loads(report.read_text())
    assert (found["expected"], found["observed"]) == (2.83, pytest.approx(1 + sum(accepted) / 100))


def test_lengths_of_logs_are_written_and_kept(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = log_of(tmp_path, num_drafts=3)
    write = ["golden", "write", str(golden), "--log", log, "--name", "mine", "--mode", "thinking_off"]
    assert run([*write, "--note", "greedy\n a: 1"]) == 0
    assert read_golden(golden).cell("mine", None, 3).length == 3.0
    assert "4 accepted drafts in 2 rounds" in golden.read_text()
    assert run(write) == 2
    assert "mine.thinking_off[3] is 3 there; --replace takes another" in capsys.readouterr().err
    assert run([*write, "--replace"]) == 0
    assert run(["golden", "check", str(golden), "--log", log, "--name", "mine", "--at-least", "1"]) == 0


def test_a_promise_is_held(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    seen = ["golden", "forced", "--observed", counts(tmp_path, 1000, 1000, 512, 0)]
    assert run([*seen, "--by", "vllm", "--length", "2.5"]) == 0
    assert run([*seen, "--by", "trtllm", "--length", "1.5"]) == 1
    assert "it is as of length 2.50, one more" in capsys.readouterr().out
    assert run([*seen, "--by", "vllm", "--rates", "1,0.5,0"]) == 0
    assert run([*seen, "--by", "sglang", "--length", "2.5", "--batch", "8"]) == 125
    assert run([*seen, "--by", "vllm", "--golden", str(golden), "--mode", "thinking_on"]) == 1
    multinomial = ["--by", "sglang-multinomial", "--length", "3.9", "--batch", "1"]
    assert run([*seen, *multinomial]) == 1
    assert "sglang-multinomial of 3.9 comes to 3.57: it rounds and cuts" in capsys.readouterr().out


WRONG: dict[tuple[str, ...], str] = {
    ("check", "GOLDEN"): "invalid --log, --observed and --metrics: expected one of them",
    ("check", "none.yaml", "COUNTS"): "none.yaml: it cannot be read",
    ("check", "GOLDEN", "COUNTS"): "no mode of minimax-m3: expected one of thinking_on, thinking_off",
    ("check", "GOLDEN", "COUNTS", "--name", "minimax"): "invalid 'minimax' as model: expected minimax-m3",
    ("check", "GOLDEN", "COUNTS", "--mode", "thinking_off", "--steps", "2"): "expected at least 3, as many as were",
    ("check", "GOLDEN", "COUNTS", "--mode", "thinking_off", "--steps", "4"): "with 4 drafts: expected 1, 3",
    ("check", "GOLDEN", "UNTOLD", "--mode", "thinking_on"): "invalid --steps: expected a number",
    ("write", "GOLDEN", "COUNTS"): "invalid --name and --mode: expected both",
    ("forced", "COUNTS", "--by", "vlm", "--length", "2"): "invalid --by 'vlm'",
    ("forced", "COUNTS", "--by", "vllm"): "invalid --length, --rates and --golden: expected one of them",
    ("forced", "COUNTS", "--by", "vllm", "--length", "5"): "invalid --length, 5: expected 1 .. 4",
    ("forced", "COUNTS", "--by", "sglang", "--length", "2"): "invalid --by sglang without --batch",
    ("forced", "COUNTS", "--by", "vllm", "--length", "2", "--batch", "2"): "invalid --batch 2: expected only with",
    ("forced", "COUNTS", "--by", "vllm", "--rates", "0.5,0.6"): "invalid --rates '0.5,0.6'",
    ("forced", "COUNTS", "--by", "trtllm", "--rates", "0.5,0.4"): "of --by vllm or llama",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_input_is_said(given: tuple[str, ...], golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    named = {
        "GOLDEN": [str(golden)],
        "COUNTS": ["--observed", counts(tmp_path, 10, 9, 8, 7)],
        "UNTOLD": ["--log", log_of(tmp_path)],
    }
    assert run(["golden", *(word for one in given for word in named.get(one, [one]))]) == 2
    assert WRONG[given] in capsys.readouterr().err
