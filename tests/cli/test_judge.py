"""`draftproof judge`: logs that the engine makes pass; one with anything wrong in it fails, or cannot be read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftproof.cli.app import run
from draftproof.engine.subject import EngineSubject
from draftproof.harness.checkpoint_scenarios import one_draft
from draftproof.properties.formats.judged_log import LoggedRun, encode_log
from draftproof.properties.formats.round_log import LoggedRequest, LoggedRound
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.script import steering
from draftproof.properties.values.trace import Key
from draftproof.reference.solved import solved
from tests.checkpoints import tiny_head, tiny_llama
from tests.named.real import real

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Any]
NAME = "eagle_padded"
"""Two requests, of which the first has stop tokens."""
PLAIN = Limits(models=("checkpoint",))
"""What a log can say: greedy requests without any feature."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Path:
    return tiny_head(tmp_path_factory.mktemp("head"), llama)


def log_of(scenario: Scenario, *, own: bool) -> Rows:
    """What the engine does, as a log; its drafts `own` or forced."""
    plans = tuple(RoundPlan(num_drafts=3, num_correct=right) for right in ((-1,) if own else (1, 3, 0, 2)))
    requests = tuple(
        msgspec.structs.replace(one, rounds=plans, arrival=0, budget=min(one.budget, 9), prompt=one.prompt[-9:])
        for one in scenario.requests[:2]
    )
    scenario = msgspec.structs.replace(
        scenario, requests=requests, variant="none", adaptive_steps=None, steps=3, taps=True
    )
    scenario = put_in(scenario, "schedule", draft_batch=0, services=1)
    script = solved(scenario).script
    trace = EngineSubject().run(scenario, steering(script))
    drafts = trace.typed("round.drafts", TokenIds)
    log = []
    for index, (request, solution) in enumerate(zip(requests, script.requests, strict=True)):
        asked = LoggedRequest(
            request=10 + index,
            prompt=request.prompt,
            max_tokens=min(request.budget, scenario.memory.max_len - len(request.prompt)),
            stop=solution.stop,
            max_drafts=3,
        )
        emitted = {
            key.round: tokens for key, tokens in trace.typed("accept.emitted", TokenIds).items() if key[0] == index
        }
        rounds = tuple(
            LoggedRound(request=10 + index, round=number, drafts=drafts.get(Key(index, number), ()), emitted=tokens)
            for number, tokens in sorted(emitted.items())
        )
        log.append(LoggedRun(asked, rounds))
    return [json.loads(line) for line in encode_log(log)]


@pytest.fixture(scope="module")
def forced(llama: Path) -> Rows:
    """A log of two requests of nine tokens, of which one has stop tokens and the other has none."""
    rows = log_of(*real(llama, [NAME], "ngram", PLAIN), own=False)
    assert [(bool(one["stop"]), one["max_tokens"]) for one in asked(rows)] == [(True, 9), (False, 9)]
    return rows


def asked(rows: Rows) -> Rows:
    return [row for row in rows if "prompt" in row]


@pytest.fixture(scope="module")
def looked_up(llama: Path) -> Rows:
    """A log of rounds whose drafts the engine looked up: some right, and several rounds of a request."""
    rows = log_of(*real(llama, [NAME], "ngram", PLAIN), own=True)
    proposed = [row for row in rows if row.get("drafts")]
    assert {row["emitted"][0] == row["drafts"][0] for row in proposed} == {True, False}
    return rows


@pytest.fixture
def judged(tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Judge rows; return the exit code, and the report if there is one."""
    monkeypatch.chdir(tmp_path)

    def judge(rows: Rows, *options: str) -> tuple[int, Any]:
        Path("log.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        code = run(["judge", "log.jsonl", "--model", str(llama), *options, "--json", "report.json"])
        return code, json.loads(Path("report.json").read_text()) if code != 2 else None

    return judge


def failed(report: Any) -> set[str]:
    return {one["name"] for one in report["contracts"] if one["verdict"] == "FAIL"}


def a_round(rows: Rows, *, drafts: bool = True) -> dict[str, Any]:
    """The first round of a log that accepts some of its drafts, and not all."""
    return next(row for row in rows if row.get("drafts") and 1 < len(row["emitted"]) <= len(row["drafts"]))


def test_what_the_engine_does_passes(judged: Callable[..., Any], forced: Rows, looked_up: Rows) -> None:
    code, report = judged(forced)
    assert (code, report["verdict"]) == (0, "PASS")
    assert {one["name"] for one in report["contracts"]} == {"runs", "output.lossless", "accept.emitted"}
    assert report["counts"]["drafts_accepted"] > 3
    code, report = judged(looked_up, "--draft", "ngram")
    assert (code, report["verdict"]) == (0, "PASS")
    assert "draft.proposed" in {one["name"] for one in report["contracts"]}


def test_a_head_is_judged_by_its_checkpoint(judged: Callable[..., Any], llama: Path, head: Path) -> None:
    draft = one_draft(llama, "eagle", head, 0)
    rows = log_of(*real(llama, [NAME], draft, PLAIN), own=True)
    code, report = judged(rows, "--draft", "eagle", "--draft-model", str(head))
    assert (code, report["verdict"]) == (0, "PASS")
    a = next(row for row in rows if len(row.get("drafts", ())) > 1 and len(row["emitted"]) < 2)
    a["drafts"][1] = (a["drafts"][1] + 1) % 7
    code, report = judged(rows, "--draft", "eagle", "--draft-model", str(head))
    assert (code, failed(report)) == (1, {"draft.proposed"})
    assert [(one["request"], one["round"]) for one in report["first"]] == [(a["request"], a["round"])]


@pytest.mark.parametrize("budget", [1, 5])
def test_a_log_without_a_draft_is_no_pass(
    judged: Callable[..., Any], forced: Rows, capsys: pytest.CaptureFixture[str], budget: int
) -> None:
    asked = next(row for row in forced if "prompt" in row and not row["stop"])
    mine = (row for row in forced if row["request"] == asked["request"] and "round" in row)
    tokens = [token for row in mine for token in row["emitted"]][:budget]
    rounds = [{"request": asked["request"], "round": number, "emitted": [token]} for number, token in enumerate(tokens)]
    code, report = judged([{**asked, "max_tokens": budget}, *rounds])
    assert (code, report["verdict"], len(rounds)) == (125, "INCONCLUSIVE", budget)
    assert {one["name"]: one["verdict"] for one in report["contracts"]}["output.lossless"] != "FAIL"
    told = {1: "no request has a round after round 0", 5: "no draft was seen in 4 rounds"}[budget]
    assert f"Nothing failed, but {told}" in capsys.readouterr().out


def test_wrong_tokens_are_no_ties_and_a_missing_one_is_one_fewer(
    judged: Callable[..., Any], forced: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(json.dumps(forced))
    other_token(rows)
    report = judged(rows)[1]
    assert report["counts"]["token_ties"] == 0
    out = capsys.readouterr().out
    assert len(failed(report)) > 1
    assert all(f"\nFAIL {name}: " in out for name in failed(report))
    shorter = json.loads(json.dumps(forced))
    next(row for row in shorter if "prompt" in row and not row["stop"])["max_tokens"] += 1
    capsys.readouterr()
    assert failed(judged(shorter)[1]) >= {"output.lossless"}
    assert "(shorter by 1)" in capsys.readouterr().out.split("FAIL output.lossless")[1].splitlines()[0]


def another(token: int) -> int:
    return token - 1 if token else 1


def other_token(rows: Rows) -> None:
    one = a_round(rows)
    one["emitted"][-1] = another(one["emitted"][-1])


def one_too_few(rows: Rows) -> None:
    """A right text, cut otherwise."""
    neighbours = (pair for pair in itertools.pairwise(rows) if pair[0]["request"] == pair[1]["request"])
    one, after = next(
        (one, after) for one, after in neighbours if len(one.get("emitted", ())) > 1 and len(after["emitted"]) < 4
    )
    after["emitted"].insert(0, one["emitted"].pop())
    after["drafts"] = [*after["drafts"], 0, 0, 0][:3]


def last_round_lost(rows: Rows) -> None:
    last = max(at for at, row in enumerate(rows) if row["request"] == rows[0]["request"])
    del rows[last]


def goes_on(rows: Rows) -> None:
    last = max(at for at, row in enumerate(rows) if row["request"] == rows[0]["request"])
    rows.insert(last + 1, {**rows[last], "round": rows[last]["round"] + 1, "drafts": [], "emitted": [1]})


@pytest.mark.parametrize(
    ("change", "contracts"),
    [
        (other_token, {"output.lossless", "accept.emitted"}),
        (one_too_few, {"accept.emitted"}),
        (last_round_lost, {"output.lossless", "accept.emitted"}),
        (goes_on, {"output.lossless", "accept.emitted"}),
    ],
)
def test_a_log_with_something_wrong_fails(
    judged: Callable[..., Any], forced: Rows, change: Change, contracts: set[str]
) -> None:
    rows = json.loads(json.dumps(forced))
    change(rows)
    code, report = judged(rows)
    assert (code, failed(report)) == (1, contracts)
    assert report["first"][0]["request"] >= 10


def test_a_wrong_draft_fails_where_it_is_proposed(judged: Callable[..., Any], looked_up: Rows) -> None:
    rows = json.loads(json.dumps(looked_up))
    one = next(row for row in rows if len(row.get("drafts", ())) > 1 and row["emitted"][0] != row["drafts"][0])
    one["drafts"][-1] = another(one["drafts"][-1])
    assert judged(rows)[0] == 0, "a draft that was rejected is any"
    code, report = judged(rows, "--draft", "ngram")
    assert (code, failed(report)) == (1, {"draft.proposed"})


def without_a_round(rows: Rows) -> None:
    before = next(at for at, row in enumerate(rows) if row.get("round") == 2)
    del rows[before - 1]


def put(field: str, value: object, at: int = 2) -> Change:
    return lambda rows: rows[at].update({field: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_a_round, "line 3: invalid round 2: expected round 1 of request 10"),
        (put("request", 77), "line 3: invalid request 77: expected one whose prompt is above: 10"),
        (put("emitted", [999]), "line 3: invalid emitted 999: expected token ids 0 .. 52 of the model"),
        (put("drafts", [1, -1]), "line 3: invalid drafts [1,-1]: expected `int` >= 0, of a round"),
        (put("drafts", [1, 2, 3, 4]), "line 3: invalid drafts, 4 of them: expected at most max_drafts 3"),
        (put("emitted", [1] * 5), "line 3: invalid emitted, 5 of them: expected at most 4, a token more than drafts"),
        (put("emitted", "1"), 'line 3: invalid emitted "1": expected `array`, got `str`, of a round'),
        (put("accepted", 1), "line 3: invalid line: object contains unknown field `accepted`, of a round"),
        (put("prompt", [], 0), "line 1: invalid prompt []: expected `array` of length >= 1, of a request"),
        (put("max_tokens", 0, 0), "line 1: invalid max_tokens 0: expected `int` >= 1, of a request"),
        (lambda rows: rows[0].pop("max_tokens"), "line 1: invalid line: expected max_tokens"),
        (lambda rows: rows[2].update(drafts=None, num_drafts=2), "line 3: invalid num_drafts 2: expected drafts"),
        (
            lambda rows: rows[2].update(drafts=None, emitted=[1, 1]),
            "expected at most 1, a token more than drafts (a log without them can be audited: draftproof audit --log)",
        ),
        (put("stop", [60], 0), "line 1: invalid stop 60: expected token ids 0 .. 52 of the model"),
        (lambda rows: rows.clear(), "expected at least one request, as a line with its prompt"),
        (lambda rows: rows.insert(1, rows[0]), "line 2: invalid request 10: expected a number of its own"),
        (lambda rows: rows.append({**rows[0], "request": 5}), "expected round 0 of request 5"),
        (lambda rows: rows.insert(0, 3), "line 1: invalid line 3: expected a JSON object"),  # type: ignore[arg-type]
    ],
)
def test_a_log_that_cannot_be_read_is_an_error(
    judged: Callable[..., Any], forced: Rows, capsys: pytest.CaptureFixture[str], change: Change, told: str
) -> None:
    rows = json.loads(json.dumps(forced))
    change(rows)
    assert judged(rows)[0] == 2
    assert told in capsys.readouterr().err


def test_lines_that_are_no_json(tmp_path: Path, llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"request": 0, \n')
    assert run(["judge", str(log), "--model", str(llama)]) == 2
    assert "line 1: expected a JSON object" in capsys.readouterr().err
    assert run(["judge", str(tmp_path / "none.jsonl"), "--model", str(llama)]) == 2
    assert "it cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--draft", "eagle"], "expected --draft-model with its checkpoint, or --mtp"),
        (["--draft", "all"], "invalid --draft 'all': expected eagle, mtp, dflash, ngram, standalone, eagle3"),
        (["--max-n", "2"], "expected only together with --draft ngram"),
        (["--draft", "ngram", "--max-n", "2", "--min-n", "3"], "invalid --min-n 3: expected at most --max-n, 2"),
        (["--match", "latest"], "expected only together with --draft ngram"),
        (["--draft-model", "."], "expected only together with --draft"),
        (["--draft", "mtp"], "target and draft do not fit"),
        (["--draft", "standalone", "--draft-model", "."], "target and draft do not fit"),
    ],
)
def test_a_draft_that_does_not_fit_is_an_error(
    judged: Callable[..., Any], forced: Rows, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    assert judged(forced, *options)[0] == 2
    assert told in capsys.readouterr().err


def test_an_acceptance_length_is_judged_beside_the_exact_rule(
    judged: Callable[..., Any], looked_up: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = judged(looked_up, "--draft", "ngram", "--at-least", "1")
    length = report["length"]
    assert (code, length["verdict"], length["of"]) == (0, "PASS", "of a right draft")
    assert length["observed"] == length["expected"] > 1
    Path("golden.yaml").write_text("tiny: {greedy: {3: 3.9}}")
    golden = ("--golden", "golden.yaml", "--at-least")
    code, report = judged(looked_up, *golden, "0.95")
    assert (code, failed(report), report["length"]["of"]) == (1, {"accept.length"}, "golden of tiny.greedy[3]")
    assert f"{report['length']['observed']:.2f} in " in capsys.readouterr().out
    assert judged(looked_up, *golden, "0.1")[0] == 0
    worse = [dict(row) for row in looked_up]
    for row in worse:
        if len(row.get("emitted", ())) == 1 and len(row.get("drafts", ())) == 3:
            row["drafts"] = row["drafts"][:1]
    assert judged(worse, "--draft", "ngram", "--at-least", "0.99")[0] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--golden", "golden.yaml"], "invalid --golden 'golden.yaml': expected only together with --at-least"),
        (["--at-least", "1"], "invalid --at-least 1: expected together with --golden, or with --draft"),
        (
            ["--at-least", "1", "--draft", "ngram", "--mode", "x"],
            "invalid --mode: expected only together with --golden",
        ),
        (["--at-least", "1", "--golden", "none.yaml"], "none.yaml: it cannot be read"),
    ],
)
def test_a_rule_for_lengths_is_whole(
    judged: Callable[..., Any], looked_up: Rows, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(looked_up, *options)[0] == 2
    assert told in capsys.readouterr().err
