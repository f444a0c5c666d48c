"""`draftproof audit`: what is expected, what was observed, what explains the difference, and input that is no good."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from draftproof.cli.app import run
from draftproof.engine.subject import EngineSubject
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Observation, Trace
from tests.checkpoints import VOCAB, tiny_head, tiny_llama

PROMPTS = [[(7 * i + j * j) % VOCAB for j in range(5 + i % 3)] for i in range(12)]


REQUEST: dict[str, Any] = {"request": 0, "prompt": [1, 2]}


class Files:
    """A target, a head, prompts, and the options that name the first two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = tiny_llama(folder / "target")
        self.head = tiny_head(folder / "head", self.target, seed=3)
        self.prompts = self.write("prompts.jsonl", [{"prompt": prompt} for prompt in PROMPTS])
        many = [[(7 * i + j * j) % VOCAB for j in range(5 + i % 3)] for i in range(48)]
        self.many = ["--prompts", self.write("many.jsonl", [{"prompt": one} for one in many]), "--tokens", "64"]
        self.options = ["audit", "--model", str(self.target), "--draft", "ngram"]
        self.eagle = ["audit", "--model", str(self.target), "--draft", "eagle", "--draft-model", str(self.head)]

    def write(self, name: str, lines: list[dict[str, Any]]) -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    def audit(self, *options: object) -> tuple[int, dict[str, Any]]:
        report = self.folder / "audit.json"
        code = run([*self.options, *map(str, options), "--json", str(report)])
        return code, json.loads(report.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def expected(files: Files) -> dict[str, Any]:
    return files.audit(*files.many, "--steps", 3)[1]


def test_without_an_engine_it_says_what_a_right_one_gets(expected: dict[str, Any]):
    assert expected["verdict"] is None
    assert expected["observed"] is None
    assert expected["expected"] == pytest.approx(sum(one["expected"] for one in expected["positions"]))
    assert [one["position"] for one in expected["positions"]] == [1, 2, 3]
    assert all(one["low"] <= one["expected"] <= one["high"] for one in expected["positions"])


def observed(expected: dict[str, Any], share: float) -> dict[str, Any]:
    """Return the counts of an engine that gets this share of what is expected."""
    rounds = expected["rounds"]
    return {"drafts": rounds, "accepted": [round(share * rounds * one["expected"]) for one in expected["positions"]]}


def test_counts_that_differ_by_less_than_is_noticed_are_no_pass(files: Files, expected: dict[str, Any]):
    common = (*files.many, "--observed")
    noticeable = files.audit(*common, files.write("right.json", [observed(expected, 1.0)]))[1]["noticeable"]
    fewer = observed(expected, 1 - 0.5 * noticeable / expected["expected"])
    code, report = files.audit(*common, files.write("fewer.json", [fewer]))
    assert (code, 0.001 < report["p"] < 0.05) == (125, True)
    told = f"which leaves the difference of {report['expected'] - report['observed']:.2f} open: give "
    assert int(report["says"].partition(told)[2].split()[0]) > 48


def test_counts_as_expected_pass_and_others_fail_with_mistakes(files: Files, expected: dict[str, Any]):
    common = (*files.many, "--observed")
    code, report = files.audit(*common, files.write("right.json", [observed(expected, 1.0)]))
    assert (code, report["verdict"], report["explanations"]) == (0, "PASS", [])
    assert report["noticeable"] > 0
    code, report = files.audit(*common, files.write("other.json", [{"drafts": 700, "accepted": [690, 680, 680]}]))
    assert (code, report["verdict"]) == (1, "FAIL")
    assert "; none of the known mistakes explains the counts" in report["says"]
    mistake = next(one for one in report["explanations"] if one["name"] == "first draft accepted unchecked")
    counts = {"drafts": 700, "accepted": [round(700 * rate) for rate in mistake["positions"]]}
    says = files.audit(*common, files.write("mistake.json", [counts]))[1]["says"]
    assert f"{mistake['name']} ({mistake['expected']:.2f})" in says
    assert says.endswith(" would explain the counts")
    names = [one["name"] for one in report["explanations"]]
    assert "as defined" in names
    assert "shortest suffix first" in names
    shares = [one["likelihood"] for one in report["explanations"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert next(one for one in report["explanations"] if one["name"] == "as defined")["ruled_out"]


def test_counts_of_one_pass_over_the_prompts_are_asked_for(
    files: Files, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    one = observed(expected, 1.0)
    twenty = {"drafts": 20 * one["drafts"], "accepted": [20 * count for count in one["accepted"]]}
    common = (*files.many, "--observed")
    assert run([*files.options, *map(str, (*common, files.write("twenty.json", [twenty])))]) == 2
    told = " ".join(capsys.readouterr().err.split())
    emitted = twenty["drafts"] + sum(twenty["accepted"])
    assert f"invalid counts, {twenty['drafts']} rounds with {sum(twenty['accepted'])} accepted drafts" in told
    assert f"which emit {emitted} tokens: expected those of --prompts, at most 3072 rounds and 3216 tokens" in told
    third = {"drafts": one["drafts"] // 3, "accepted": [count // 3 for count in one["accepted"]]}
    code, report = files.audit(*common, files.write("third.json", [third]))
    assert (code, report["verdict"], report["rounds"]) == (125, "INCONCLUSIVE", expected["rounds"])
    assert report["observed_rounds"] == third["drafts"]
    tokens = third["drafts"] + sum(third["accepted"])
    assert f"the engine counted {third['drafts']} rounds with drafts that emit {tokens} tokens" in report["says"]
    shown = f"{expected['rounds']:,} rounds expected after 48 prompts; {third['drafts']} observed"
    assert shown in capsys.readouterr().out


def test_counts_of_an_engine_that_hardly_drafts_are_no_pass(files: Files, expected: dict[str, Any]):
    """As much is accepted a round as should be, in four of five rounds."""
    one, common = observed(expected, 1.0), (*files.many, "--observed")
    lazy = {"drafts": 4 * one["drafts"] // 5, "accepted": [4 * count // 5 for count in one["accepted"]]}
    code, report = files.audit(*common, files.write("lazy.json", [lazy]))
    assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
    told = f"and a right one has {one['drafts']} of {one['drafts'] + sum(one['accepted'])} tokens after these prompts"
    assert f'{told}: rounds without drafts (give all rounds as "rounds" of --observed), other prompts' in report["says"]


def test_counts_that_could_show_no_shortfall_are_no_pass(files: Files):
    """Of so few prompts, and a draft that is seldom right, zero accepted drafts would not be noticed."""
    few = ("--prompts", files.prompts, "--tokens", 24)
    right = observed(files.audit(*few, "--steps", 3)[1], 1.0)
    for counts in (right, right | {"accepted": [0, 0, 0]}):
        code, report = files.audit(*few, "--observed", files.write("few.json", [counts]))
        assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
        assert report["noticeable"] > report["expected"]
        told = f"only a shortfall of {report['noticeable']:.2f} would have been noticed, and there is no more than 0.27"
        assert told in report["says"]
    enough = int(report["says"].rpartition("give ")[2].split()[0])
    assert 30 < enough < 90


def metrics(files: Files, name: str, drafts: int, accepted: list[int]) -> str:
    """Write what /metrics of a server with two engines says, one of which is idle."""
    lines = [f'vllm:spec_decode_num_drafts_total{{engine="{engine}"}} {n}.0' for engine, n in enumerate((drafts, 0))]
    for place, count in enumerate(accepted):
        labels = f'engine="0",position="{place}"'
        lines.append(f"vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels}}} {count}.0")
    path = files.folder / name
    path.write_text("# HELP nothing\n" + "\n".join(lines) + "\n")
    return str(path)


def test_two_texts_of_metrics_are_counts(files: Files, expected: dict[str, Any]):
    one = observed(expected, 1.0)
    page = files.folder / "audit.html"
    before = metrics(files, "before.txt", 100, [60, 50, 10])
    after = metrics(
        files, "after.txt", 100 + one["drafts"], [a + b for a, b in zip((60, 50, 10), one["accepted"], strict=True)]
    )
    common = files.many
    code, report = files.audit(*common, "--metrics", before, "--metrics", after, "--html", page)
    assert (code, report["verdict"]) == (0, "PASS")
    assert report["observed_rounds"] == one["drafts"]
    assert report["observed"] == pytest.approx(expected["expected"], abs=0.01)
    drawn = page.read_text()
    assert drawn.count('class="interval"') == drawn.count('class="event"') == 3
    assert report["says"] in drawn


def test_texts_that_are_no_metrics_are_refused(files: Files, capsys: pytest.CaptureFixture[str]):
    early, late = metrics(files, "early.txt", 10, [5]), metrics(files, "late.txt", 20, [8])
    bad = {
        ("--metrics", late, "--metrics", early): "fell from 20 to 10",
        ("--metrics", early, "--metrics", early): "there were none",
        ("--metrics", files.prompts): "expected counters vllm:spec_decode_num_drafts_total",
        ("--metrics", "nowhere.txt"): "cannot be read",
        ("--metrics", early, "--metrics", late, "--metrics", late): "before and after",
        ("--metrics", late, "--observed", "x"): "expected one of them",
        ("--metrics", late, "--steps", "3"): "as --steps",
    }
    for options, told in bad.items():
        assert run([*files.options, "--prompts", files.prompts, *options]) == 2
        assert told in capsys.readouterr().err


def test_the_engine_passes_and_its_log_is_one(files: Files, capsys: pytest.CaptureFixture[str]):
    log = files.folder / "log.jsonl"
    ran = ("--prompts", files.prompts, "--tokens", 12, "--steps", 3, "--save-log", log, "--subject")
    page = files.folder / "audit.html"
    code, report = files.audit(*ran, "draftproof:EngineSubject", "--set", "device=cpu", "--html", page)
    assert (code, report["verdict"]) == (0, "PASS")
    python = platform.python_version()
    told = (report["subject"], report["settings"], report["versions"])
    assert told == ("engine", {"device": "cpu"}, {"python": python})
    assert capsys.readouterr().out.startswith(f"engine with python {python}, device=cpu\n")
    assert all(one in page.read_text() for one in (">engine<", ">device=cpu<", f">python {python}<"))
    assert report["same_rounds"] == report["observed_rounds"] == report["rounds"]
    again, of_log = files.audit("--log", log)
    assert (again, of_log["observed"], of_log["positions"]) == (0, report["observed"], report["positions"])
    assert run(["judge", str(log), "--model", str(files.target)]) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line.get("drafts"):
            line |= {"drafts": [(token + 1) % VOCAB for token in line["drafts"]]}
    capsys.readouterr()
    code, report = files.audit("--log", files.write("other.jsonl", lines))
    assert report["same_rounds"] == sum(line.get("drafts") == [] for line in lines) < report["observed_rounds"]
    # As many are accepted as before; the drafts are others, as `judge` says, too.
    assert (code, report["verdict"]) == (1, "FAIL")
    assert run(["judge", str(files.folder / "other.jsonl"), "--model", str(files.target), "--draft", "ngram"]) == 1
    assert "rounds went otherwise, more than rounding explains; none of the known mistakes" in report["says"]


def test_drafts_of_the_prompts_own_round_are_audited_and_judged_alike(files: Files):
    log, again = files.folder / "early.jsonl", [{"prompt": prompt + prompt[:2]} for prompt in PROMPTS]
    ran = ("--prompts", files.write("again.jsonl", again), "--tokens", 12, "--steps", 3, "--save-log", log)
    code, report = files.audit(*ran, "--subject", "tests.harness.test_follow:WithPrompt")
    assert (code, report["same_rounds"]) == (0, report["observed_rounds"])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(line.get("drafts") for line in lines if line.get("round") == 0)
    assert files.audit("--log", log)[1]["positions"] == report["positions"]
    assert run(["judge", str(log), "--model", str(files.target), "--draft", "ngram"]) == 0


def test_tokens_that_are_not_the_targets_are_in_the_verdict(files: Files):
    log = files.folder / "whole.jsonl"
    ran = ("--prompts", files.prompts, "--tokens", 12, "--steps", 3, "--save-log", log)
    assert files.audit(*ran, "--subject", "draftproof:EngineSubject")[0] == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[-1]["emitted"][-1] = (lines[-1]["emitted"][-1] + 1) % VOCAB
    code, report = files.audit("--log", files.write("wrong.jsonl", lines))
    assert (code, report["verdict"]) == (0, "PASS")
    assert report["other_texts"] > 0
    assert report["says"].endswith(f"but tokens of the log that are not the target's: {report['other_texts']}")


def test_a_subject_runs_on_fewer_prompts_than_it_has_rows(files: Files):
    prompts = files.write("one.jsonl", [{"prompt": PROMPTS[0]}])
    code, report = files.audit("--prompts", prompts, "--tokens", 8, "--subject", "draftproof:EngineSubject")
    assert (code, report["prompts"]) == (125, 1)
    assert report["same_rounds"] == report["observed_rounds"] > 0


def test_texts_beyond_the_positions_of_the_target_are_refused(files: Files, capsys: pytest.CaptureFixture[str]):
    assert run([*files.options, "--prompts", files.prompts, "--tokens", "252"]) == 2
    told = "invalid prompt 1 of 5 tokens with 252 to decode: expected at most 256 together, max_position_embeddings"
    assert told in capsys.readouterr().err


def test_a_log_without_a_draft_is_no_pass(files: Files, capsys: pytest.CaptureFixture[str]):
    asked = [{"request": number, "prompt": prompt} for number, prompt in enumerate(PROMPTS)]
    first = [{"request": number, "round": 0, "emitted": [1]} for number in range(len(PROMPTS))]
    second = [{"request": number, "round": 1, "drafts": [], "emitted": [2]} for number in range(len(PROMPTS))]
    for rounds in (first, [*first, *second]):
        code, report = files.audit("--log", files.write("none.jsonl", [*asked, *rounds]))
        assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
        assert report["says"].endswith("no draft was seen in the log, so nothing is said of drafting")


def test_a_log_of_more_drafts_than_steps_is_refused(files: Files, capsys: pytest.CaptureFixture[str]):
    rounds = [{"request": 0, "round": number, "emitted": [1], "num_drafts": 4} for number in (1, 2)]
    log = files.write("four.jsonl", [REQUEST, {"request": 0, "round": 0, "emitted": [1]}, *rounds])
    for steps in (1, 3):
        assert run([*files.options, "--log", log, "--steps", str(steps)]) == 2
        assert f"invalid --steps {steps}: expected at least 4, as a round of the log has" in capsys.readouterr().err
    assert run([*files.options, "--log", log, "--steps", "5"]) == 125


def test_copies_of_a_prompt_are_one(files: Files):
    copied = files.write("copied.jsonl", [{"prompt": PROMPTS[0]}] * 12 + [{"prompt": PROMPTS[1]}] * 12)
    log = files.folder / "copied-log.jsonl"
    ran = ("--prompts", copied, "--tokens", 24, "--steps", 3)
    of_subject = files.audit(*ran, "--subject", "draftproof:EngineSubject", "--save-log", log)
    counts = files.write("copied.json", [observed(files.audit(*ran)[1], 1.0)])
    for code, report in (of_subject, files.audit("--log", log), files.audit(*ran, "--observed", counts)):
        assert (code, report["verdict"], report["prompts"]) == (125, "INCONCLUSIVE", 24)
        told = "no difference that 2 prompts, 22 copies of them left out, could show; give at least 10"
        assert told in report["says"]


def test_a_log_of_accepted_drafts_alone_is_no_pass(files: Files):
    """Whatever an engine proposed, as much is right as it says: nothing could fail."""
    log = files.folder / "all.jsonl"
    ran = ("--prompts", files.prompts, "--tokens", 24, "--steps", 3, "--save-log", log)
    assert files.audit(*ran, "--subject", "draftproof:EngineSubject")[0] == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    accepted = [line | {"num_drafts": len(line["emitted"]) - 1} if line.get("round") else line for line in lines]
    numbers = [{name: value for name, value in line.items() if name != "drafts"} for line in accepted]
    tokens = [line | {"drafts": line["emitted"][:-1]} if line.get("round") else line for line in lines]
    neither = [{name: value for name, value in line.items() if name != "num_drafts"} for line in numbers]
    for log_lines in (numbers, tokens):
        code, report = files.audit("--log", files.write("accepted.jsonl", log_lines))
        assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
        assert "no draft of the log was rejected, and not every round has 3: it may have the" in report["says"]
    assert "was rejected" not in files.audit("--log", files.write("neither.jsonl", neither))[1]["says"]


def test_a_log_without_the_drafts_is_no_pass_where_nothing_accepted_would_be_one(files: Files):
    """Here one round of 83 has a draft accepted, which an engine whose drafts are all rejected looks like."""
    log, options = files.folder / "random.jsonl", [*files.eagle, "--json", str(files.folder / "audit.json")]
    run([*options, "--prompts", files.prompts, "--tokens", "8", "--subject", "engine", "--save-log", str(log)])
    whole = [json.loads(line) for line in log.read_text().splitlines()]
    numbers = [{name: value for name, value in line.items() if name != "drafts"} for line in whole]
    for line, full in zip(numbers, whole, strict=True):
        line |= {"num_drafts": len(full["drafts"])} if "drafts" in full else {}
    for lines, code in ((whole, 0), (numbers, 125)):
        assert run([*options, "--log", files.write("random.jsonl", lines)]) == code
    says = json.loads((files.folder / "audit.json").read_text())["says"]
    assert "the log does not have the drafts, and an engine that gets none accepted would not be told from one" in says
    few = [line for line in whole if line["request"] < 9 or line.get("round", 0) == 0]
    assert run([*options, "--log", files.write("random.jsonl", few)]) == 125
    assert "9 prompts could show; give at least 10" in json.loads((files.folder / "audit.json").read_text())["says"]


def test_eagle_without_hidden_states_says_what_mistakes_cost(files: Files, capsys: pytest.CaptureFixture[str]):
    prompts = files.write("two.jsonl", [{"prompt": prompt, "max_tokens": 6} for prompt in PROMPTS[:2]])
    assert run([*files.eagle, "--prompts", prompts, "--steps", "2", "--mistakes"]) == 0
    out = capsys.readouterr().out
    assert "draft positions one ahead" in out
    assert "a right engine gets" in out


BAD: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "no prompts": ("--prompts", [], "expected at least one prompt"),
    "an empty prompt": ("--prompts", [{"prompt": []}], "line 1: invalid prompt []: expected `array` of length >= 1"),
    "a text without a round": (
        "--prompts",
        [{"prompt": [1], "max_tokens": 1}],
        "line 1: invalid max_tokens 1: expected `int` >= 2",
    ),
    "a round that is none": ("--log", [REQUEST, {"request": 0, "emitted": [1]}], "line 2: invalid round: expected a"),
    "counts that are a list": ("--observed", [[5]], "expected a JSON object, observed counts, got list"),
    "a token beyond the vocabulary": ("--prompts", [{"prompt": [VOCAB]}], f"expected 0 .. {VOCAB - 1}"),
    "a missing round": (
        "--log",
        [
            REQUEST,
            {"request": 0, "round": 0, "emitted": [1]},
            {"request": 0, "round": 2, "drafts": [1], "emitted": [1]},
        ],
        "round 1 of request 0 is missing",
    ),
    "a request twice": (
        "--log",
        [REQUEST, {"request": 0, "round": 0, "emitted": [1]}, REQUEST],
        "line 3: invalid request 0: expected a number of its own",
    ),
    "a round without its request": ("--log", [{"request": 3, "round": 0, "emitted": [1]}], "before its rounds"),
    "more emitted than verified": (
        "--log",
        [
            REQUEST,
            {"request": 0, "round": 0, "emitted": [1]},
            {"request": 0, "round": 1, "drafts": [1], "emitted": [1, 1, 1]},
        ],
        "expected at most 2 tokens",
    ),
    "more emitted by the prompt's round": (
        "--log",
        [REQUEST, {"request": 0, "round": 0, "drafts": [], "emitted": [1, 1]}],
        "round 0: expected at most 1 tokens",
    ),
    "more accepted than drafts": ("--observed", [{"drafts": 4, "accepted": [5]}], "expected at most 4, the drafts"),
    "more at a later position": ("--observed", [{"drafts": 9, "accepted": [5, 6]}], "those of position 1"),
    "fewer rounds than drafts": ("--observed", [{"drafts": 9, "accepted": [5], "rounds": 3}], "at least 9"),
    "no counts at all": ("--observed", [{"drafts": 0, "accepted": [0]}], "drafts"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(name: str, files: Files, capsys: pytest.CaptureFixture[str]):
    option, lines, told = BAD[name]
    file = files.write("bad.jsonl", lines)
    prompts = ["--prompts", files.prompts] if option == "--observed" else []
    assert run([*files.options, *prompts, option, file]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "expected one of them"),
        (["--prompts", "p", "--log", "l"], "expected one of them"),
        (["--prompts", "p", "--observed", "o", "--fault", "x"], "expected one of them"),
        (["--prompts", "p", "--save-log", "l"], "expected together with"),
        (["--prompts", "nowhere.jsonl"], "cannot be read"),
        (["--log", "l", "--tokens", "5"], "invalid --tokens 5: expected without --log"),
        (["--prompts", "p", "--min-n", "4"], "expected at most --max-n"),
        (["--prompts", "p", "--match", "latest", "--draft", "mtp"], "invalid --match latest: expected only together"),
        (["--prompts", "p", "--min-n", "2", "--draft", "mtp"], "invalid --min-n 2: expected only together with"),
        (["--prompts", "p", "--draft-model", "x", "--draft", "mtp"], "MTP layers"),
        (["--prompts", "p", "--draft", "eagle"], "a directory with the draft"),
        (["--prompts", "p", "--draft", "dflash", "--mtp"], "expected --draft eagle"),
        (["--prompts", "p", "--draft", "egale"], "eagle"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], told: str, files: Files, capsys: pytest.CaptureFixture[str]
):
    assert run([*files.options, *options]) == 2
    assert told in capsys.readouterr().err


def test_drafts_with_the_prompt_of_a_head_are_refused(files: Files, capsys: pytest.CaptureFixture[str]):
    log = files.write("head.jsonl", [REQUEST, {"request": 0, "round": 0, "drafts": [1], "emitted": [1, 1]}])
    assert run([*files.eagle, "--log", log]) == 2
    assert "request 0 has drafts in round 0: expected none" in capsys.readouterr().err


def test_a_draft_of_another_target_is_refused(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tiny_llama(tmp_path / "other", hidden_size=24)
    options = ["audit", "--model", str(other), "--draft", "eagle", "--draft-model", str(files.head)]
    for subject in ([], ["--subject", f"{__name__}:Raising"]):
        assert run([*options, "--prompts", files.prompts, *subject]) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert told.startswith("error: invalid hidden_size 30 in ")
        assert told.endswith("expected 24 for an EAGLE head of this target")


class Bent(Subject):
    """Reports something else than it did: what `how` makes of its observations."""

    name = "bent"

    def __init__(self, how: str) -> None:
        self._how = BENT[how][0]

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted", "propose.tokens"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        channels = self.channels(scenario)
        ran = EngineSubject(device="cpu").run(scenario, script)
        bent = self._how([one for one in ran.observations if one.channel in channels])
        return bent if bent is None else Trace(self.name, channels, tuple(bent))


def valued(change: Callable[[tuple[int, ...]], Any]) -> Callable[[list[Observation]], list[Observation]]:
    """Return what changes every value."""
    return lambda seen: [one._replace(value=change(cast("Any", one.value))) for one in seen]


def of_key(is_left: Callable[[Observation], bool]) -> Callable[[list[Observation]], list[Observation]]:
    return lambda seen: [one for one in seen if is_left(one)]


BENT: dict[str, tuple[Callable[[list[Observation]], Any], str]] = {
    "none": (lambda _: None, "run() returned None: expected a Trace"),
    "twice": (lambda seen: seen + seen, "is reported twice"),
    "lists": (valued(list), "expected a tuple of int"),
    "floats": (valued(lambda value: tuple(map(float, value))), "expected a tuple of int"),
    "negative": (valued(lambda value: tuple(-1 for _ in value)), "request 0: -1: expected token ids 0 .. "),
    "early": (of_key(lambda one: one.key.round <= 2), "accept.emitted of request 0 has 3 tokens in rounds 0 to 2"),
    "no drafts": (
        of_key(lambda one: one.channel == "accept.emitted" or one.key.round != 2),
        "the trace lacks propose.tokens of request 0, round 2: expected the tokens of every round",
    ),
    "no tokens": (
        lambda seen: [one._replace(value=()) if one.key.round == 1 else one for one in seen],
        "accept.emitted of request",
    ),
}


@pytest.mark.parametrize("how", BENT)
def test_a_trace_that_is_not_whole_is_a_crash(how: str, files: Files, capsys: pytest.CaptureFixture[str]):
    options = ["--prompts", files.prompts, "--tokens", "12", "--steps", "3", "--subject", f"{__name__}:Bent"]
    assert run([*files.options, *options, "--set", f"how={how}"]) == 3
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("CRASH: MalformedTraceError: ")
    assert BENT[how][1] in told


class Raising(Subject):
    """Raises, as an engine does whose weights do not fit."""

    name = "raising"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_subject_that_raises_is_a_crash(files: Files, capsys: pytest.CaptureFixture[str]):
    assert run([*files.options, "--prompts", files.prompts, "--subject", f"{__name__}:Raising"]) == 3
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("CRASH: RuntimeError: mat1 and mat2 shapes cannot be multiplied, in ")
    assert told.endswith(", on the prompts")
