"""The command line as a user meets it: reports, exit codes, and what becomes of wrong input."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import drafts, inputs, subjects
from draftproof.cli.app import run
from draftproof.properties.formats.case import Case, encode
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, Algorithm, algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.trace import Trace
from draftproof.reference.solved import solved
from tests.harness.subjects import Altered, Raising, as_it_is, one_ahead
from tests.named import OF_DRAFT, named

SCENARIO = named("eagle_padded")
Raw = dict[str, Any]


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a command that must end with 2."""
    code = run(list(arguments))
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def scenario_file(folder: Path, change: Callable[[Raw], object]) -> str:
    raw = json.loads(encode(SCENARIO))
    change(raw)
    path = folder / "scenario.json"
    path.write_text(json.dumps(raw))
    return str(path)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda raw: raw.update(chunks=3), ["invalid chunks 3, no field: expected one of the fields model, draft"]),
        (lambda raw: raw["draft"].update(kind="medusa"), ["invalid draft.kind 'medusa': expected one of eagle, mtp"]),
        (
            lambda raw: raw["requests"][0].update(promt=[]),
            ["invalid requests[0].promt an empty JSON array, no field: expected one of the fields arrival, prompt"],
        ),
        (
            lambda raw: raw.update(variant="mirrored"),
            ["invalid variant 'mirrored': expected one of", "graph_vs_eager, none"],
        ),
        (
            lambda raw: raw["memory"].update(page=3),
            ["invalid memory.page 3, no field: expected one of the fields page_size, pages"],
        ),
        (lambda raw: raw.update(version=7), ["invalid version 7", "expected 5"]),
        (lambda raw: raw["memory"].update(max_len=10**12), ["invalid memory.max_len 1000000000000: expected `int` <="]),
        (
            lambda raw: raw["requests"][0].update(sampling={"temperature": 10**400, "seed": 1}),
            ["invalid requests[0].sampling.temperature a number of 1329 bits: expected a number of at most 64 bits"],
        ),
        (lambda raw: raw["memory"].update(page_size=-2), ["invalid memory.page_size -2: expected `int` >= 1"]),
        (
            lambda raw: (raw.update(ranks={"tensor": 3}), raw["model"].update(heads=2, kv_heads=1)),
            ["invalid ranks.tensor 3: expected a divisor of model.heads = 2"],
        ),
        (
            lambda raw: raw["schedule"].update(max_batch=64),
            ["invalid schedule.max_batch 64: expected at most memory.request_slots"],
        ),
        (
            lambda raw: raw["schedule"].update(overlap=["late", "soon"]),
            ["invalid schedule.overlap[1] 'soon': expected one of early, late, none"],
        ),
        (
            lambda raw: raw["schedule"].update(disaggregation=True, overlap=["late"]),
            ["invalid disaggregation beside overlap: expected one of them: S-OVERLAP-1 delays the results"],
        ),
        (lambda raw: raw["model"].update(vocab="many"), ["invalid model.vocab 'many': expected `int`, got `str`"]),
        (lambda raw: raw.pop("requests"), ["invalid requests, which is missing: expected a value"]),
        (
            lambda raw: raw["schedule"].update(overlapp=["late"]),
            ["invalid schedule.overlapp a JSON array, no field: expected one of the fields", "; did you mean overlap?"],
        ),
    ],
)
def test_a_bad_scenario_names_field_value_and_what_is_allowed(tmp_path, capsys, change, parts):
    path = scenario_file(tmp_path, change)
    message = error_of(capsys, "replay", path)
    assert path in message
    for part in parts:
        assert part in message


def test_more_requests_at_once_than_slots(tmp_path, capsys):
    def crowd(raw: Raw) -> None:
        raw["memory"]["request_slots"] = raw["schedule"]["max_batch"] = 1
        raw["requests"] = [raw["requests"][0]] * 3

    message = error_of(capsys, "replay", scenario_file(tmp_path, crowd))
    assert "invalid requests.arrival 0 of 3 requests: expected at most memory.request_slots = 1" in message


def test_broken_json_and_missing_files(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"a": ')
    assert "expected a JSON object, a scenario" in error_of(capsys, "replay", str(broken))
    assert "cannot be read" in error_of(capsys, "replay", str(tmp_path / "none.json"))
    for text, told in (
        ("\n", "expected a JSON object, a scenario, got an empty file"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "got one that is nested too deeply to be read"),
        ('{"steps": ' + "9" * 5000 + "}", "expected a JSON object, a scenario: Exceeds the limit"),
        ("{}", "expected a case, which has scenario, or a scenario, which has model, draft, steps, memory"),
        ('{"steps": 3, "st\\ud800eps": 3}', "invalid 'st\\ud800eps': expected characters of Unicode"),
        ('{"memory": {"pages": 3, "pages": 4}}', "invalid pages, which is there twice: expected each field once"),
    ):
        broken.write_text(text)
        assert told in error_of(capsys, "replay", str(broken))
    broken.write_bytes(b"\xff\xfe\x00")
    assert "got bytes that are no text in UTF-8" in error_of(capsys, "replay", str(broken))


def test_too_few_pages_are_told_with_who_needs_more(tmp_path, capsys):
    few = scenario_file(tmp_path, lambda raw: raw["memory"].update(pages=1))
    assert "invalid memory.pages 1: expected at least" in error_of(capsys, "replay", few)
    short = scenario_file(tmp_path, lambda raw: raw["memory"].update(max_len=4))
    assert "tokens: expected fewer than memory.max_len = 4" in error_of(capsys, "replay", short)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["check", "--contract", "draft.position"],
            ["invalid --contract 'draft.position'", "(check --verbose has all); did you mean draft.positions?"],
        ),
        (["check", "--device", "cudaa"], ["invalid --device 'cudaa'", "expected cpu, cuda", "did you mean cuda?"]),
        (["faults", "run", "--id", "draft-positions-advanced"], ["did you mean draft-positions-advanced-early?"]),
        (["faults", "show", "pages-leak"], ["did you mean pages-leak-on-finish?"]),
        (["faults", "run", "--patch", "none.patch"], ["none.patch", "cannot be read"]),
        (["check", "--seed", "-1"], ["--seed"]),
        (["faults", "run", "--seed", "4294967295", "--seeds", "2"], ["invalid --seeds 2: expected at most 1 with"]),
        (["check", "--draft-model", "somewhere"], ["invalid --draft-model 'somewhere'", "only together with --model"]),
        (["check", "--draft", "dflsh"], ["invalid --draft 'dflsh'", f"{', '.join(ALGORITHMS)}, all", "dflash?"]),
        (["check", "--draft", "ngram", "--draft", "mtp"], ["expected one name or all, not ngram and mtp"]),
        (["check", "--model", "nowhere"], ["invalid --model 'nowhere'", "expected a directory", "config.json"]),
        (["check", "--model", "README.md"], ["invalid --model 'README.md'", "expected a directory"]),
        (["chek"], ["chek"]),
        (["check", "--bogus"], ["--bogus"]),
        (["replay"], ["CASE.json"]),
    ],
)
def test_wrong_names_and_numbers(capsys, arguments, parts):
    message = error_of(capsys, *arguments)
    for part in parts:
        assert part in message


def test_a_checkpoint_that_cannot_be_read_is_named_once(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    message = error_of(capsys, "check", "--model", str(tmp_path))
    assert message.count(str(tmp_path)) == 1
    assert "invalid architectures None" in message


def test_a_named_contract_that_met_nothing_is_inconclusive(capsys, monkeypatch):
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([SCENARIO]))
    options = ["--draft", "eagle", "--examples", "1"]
    assert run(["check", "--contract", "draft.match", *options]) == 125
    shown = capsys.readouterr().out
    assert "SKIP" in shown
    assert "INCONCLUSIVE" in shown


def test_cuda_without_a_device_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "expected cpu" in error_of(capsys, "check", "--device", "cuda")


def test_an_error_of_our_own_is_2_with_its_traceback(capsys, monkeypatch):
    def broken(_name: str) -> None:
        raise ZeroDivisionError("in our code")

    monkeypatch.setattr(inputs, "device", broken)
    assert run(["check"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == "error: draftproof itself failed: ZeroDivisionError: in our code"


def test_check_writes_the_same_report_for_the_same_seed(tmp_path, capsys, monkeypatch):
    """That a seed generates the same scenarios again is tested where they are generated."""
    one, again, other = (drafts.scenarios(drafts.chosen(drafts.given()), seed, 6) for seed in (1, 1, 2))
    assert one == again != other
    assert [algorithm(scenario.draft) for scenario in one] == list(ALGORITHMS)
    given = []

    def generated(options: drafts.Chosen, seed: int, count: int) -> Iterator[Scenario]:
        given.append((options.name, seed, count))
        return map(named, OF_DRAFT.values())

    monkeypatch.setattr(drafts, "generated", generated)
    monkeypatch.chdir(tmp_path)
    codes = [run(["check", "--seed", "1", "--examples", "6", "--json", name]) for name in ("one.json", "two.json")]
    report = json.loads(Path("one.json").read_text())
    assert Path("one.json").read_text() == Path("two.json").read_text()
    assert codes == [{"PASS": 0, "INCONCLUSIVE": 125}[report["verdict"]]] * 2
    assert (report["seed"], given) == (1, [("all", 1, 6)] * 2)
    assert all(isinstance(count, int) for count in report["counts"].values())
    rows = {row["name"]: row for row in report["contracts"]}
    assert rows["verify.positions"]["verdict"] in ("PASS", "INCONCLUSIVE")
    assert rows["verify.positions"]["scenarios"] == report["counts"]["scenarios"] == 6
    assert list(report["drafts"]) == list(ALGORITHMS)
    assert sum(counts["scenarios"] for counts in report["drafts"].values()) == 6
    for name, counts in report["drafts"].items():
        assert rows[f"runs.{name}"]["scenarios"] == counts["scenarios"] == 1
        assert counts["decode_rounds"] >= counts["rounds_with_drafts"]
    assert rows["kernel.kv_write"]["scenarios"] == 6
    assert report["weights"]
    assert not Path(".draftproof").exists()
    out = capsys.readouterr().out
    assert "Again: draftproof check --seed 1 --examples 6 --device cpu --draft all" in out


@pytest.mark.parametrize("name", ALGORITHMS)
def test_check_of_one_draft_counts_what_is_its_own(name: Algorithm, tmp_path, capsys, monkeypatch):
    (drawn,) = drafts.scenarios(drafts.chosen(drafts.given([name])), 0, 1)
    assert algorithm(drawn.draft) == name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drafts, "generated", lambda options, *_: iter([named(OF_DRAFT[options.name])]))
    code = run(["check", "--draft", name, "--examples", "1", "--verbose", "--json", "report.json"])
    report = json.loads(Path("report.json").read_text())
    assert code in (0, 125)
    assert list(report["drafts"]) == [name]
    rows = {row["name"]: row["verdict"] for row in report["contracts"]}
    assert [row for row in rows if row.startswith("runs.")] == [f"runs.{name}"]
    assert set(rows.values()) <= {"PASS", "INCONCLUSIVE", "SKIP"}
    counts = report["drafts"][name]
    assert counts == {count: number for count, number in report["counts"].items() if count != "kernel_calls"}
    out = capsys.readouterr().out
    shown = next(line for line in out.splitlines() if line.split()[:2] == [name, "1"])
    accepted, rejected = counts["own_accepted"], counts["own_rejected"]
    forced = (counts["drafts_accepted"] - accepted, counts["drafts_rejected"] - rejected)
    assert shown.split()[1:5] == [
        "1",
        str(counts["decode_rounds"]),
        f"{accepted}/{rejected}",
        "{}/{}".format(*forced),
    ]
    least = DRAFT_KINDS_BY_NAME[name].minimum[0]
    assert f"{least} {counts[least]}" in shown
    assert f"--draft {name}" in out


def test_a_draft_without_scenarios_of_every_kind_is_inconclusive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([named("mtp_chain_partial")]))
    assert run(["check", "--draft", "mtp", "--examples", "1", "--json", "report.json"]) == 125
    rows = {row["name"]: row for row in json.loads(Path("report.json").read_text())["contracts"]}
    assert rows["runs.mtp"]["verdict"] == "INCONCLUSIVE"
    assert "layers_unchained >= 1" in rows["runs.mtp"]["missing"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_scenario_of_any_draft_replays(name: Algorithm, tmp_path, capsys):
    path = tmp_path / "scenario.json"
    path.write_text(encode(named(OF_DRAFT[name])))
    assert run(["replay", str(path)]) == 0
    assert "PASS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("check --examples 0", "invalid --examples '0': "),
        ("check --examples=some", "invalid --examples 'some': "),
        ("audit --model M --draft ngram --tokens 1", "invalid --tokens '1': "),
    ],
)
def test_a_number_that_cannot_be_is_told_with_what_was_given(words, told, capsys):
    assert run(words.split()) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_report_is_no_case(tmp_path, capsys):
    path = tmp_path / "report.json"
    for report, told in (
        ({"verdict": "FAIL", "findings": [{"scenario": 3, "case": "a.json"}]}, "expected one that it names, as a.json"),
        ({"verdict": "FAIL", "case": "b.json", "first": None}, "expected one that it names, as b.json"),
        ({"verdict": "PASS", "findings": []}, "expected a case file, and it names none"),
    ):
        path.write_text(json.dumps(report))
        said = error_of(capsys, "replay", str(path))
        assert f"{path}: this is the report of a command, not a case: {told}" in said


def test_a_failing_check_leaves_a_case_that_replays(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "engine", lambda _device: Altered(one_ahead))
    some = ("eagle_padded", "hybrid_replay", "sampled_eagle")
    monkeypatch.setattr(drafts, "generated", lambda *_: map(named, some))
    wanted = ["--draft", "eagle", "--contract", "draft.positions"]
    code = run(["check", "--seed", "3", "--examples", "3", *wanted, "--json", "report.json"])
    out = capsys.readouterr().out
    finding = json.loads(Path("report.json").read_text())["findings"][0]
    assert code == 1
    assert "(one ahead), at every step; first seen in draft.step.positions" in out
    assert f"draftproof replay {finding['case']}" in out

    assert run(["replay", finding["case"], "--json", "again.json"]) == 1
    again = json.loads(Path("again.json").read_text())
    out = capsys.readouterr().out
    assert "draft.positions" in again["failed"]
    assert "the output tokens did not change" in out

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(["replay", finding["case"]]) == 0


@pytest.mark.parametrize("words", [["replay"], ["explain"], ["lab", "bisect", "parts"]])
def test_a_case_of_another_engine_is_not_run_on_ours_unasked(words, tmp_path, capsys):
    """It would pass, as if the failure were gone."""
    path, whose = tmp_path / "case.json", SubjectChoice(name="mine:Mine", settings={"bug": "late"})
    path.write_text(encode(Case(scenario=SCENARIO, script=solved(SCENARIO).script, subject=whose)))
    told = error_of(capsys, *words, str(path))
    assert "found with --subject mine:Mine --set bug=late: expected the same, or --subject engine" in told


def test_a_case_of_another_engine_runs_on_ours_where_that_is_asked(tmp_path):
    path = tmp_path / "case.json"
    case = Case(scenario=SCENARIO, script=solved(SCENARIO).script, subject=SubjectChoice(name="mine:Mine"))
    path.write_text(encode(case))
    assert run(["replay", str(path), "--subject", "engine"]) == 0


def test_a_case_that_was_found_with_other_options_says_so(tmp_path, capsys):
    path, name = tmp_path / "case.json", "draftproof.reference.run:ReferenceSubject"
    whose = SubjectChoice(name=name, settings={"bug": "late"})
    path.write_text(encode(Case(scenario=SCENARIO, script=solved(SCENARIO).script, subject=whose)))
    told = f"found with --subject {name} --set bug=late; this run has other options"
    for words in (["replay"], ["explain"]):
        run([*words, str(path), "--subject", name])
        assert told in capsys.readouterr().out.splitlines()


def test_a_fault_says_that_the_engine_is_ours(tmp_path):
    """--subject engine does not go with it."""
    path = tmp_path / "case.json"
    case = Case(scenario=SCENARIO, script=solved(SCENARIO).script, subject=SubjectChoice(name="mine:Mine"))
    path.write_text(encode(case))
    for choice in (subjects.chosen(fault="draft-positions-advanced-early"), subjects.chosen(patch=path)):
        subjects.require_whose(path, choice)
    with pytest.raises(inputs.InputError, match="found with --subject mine:Mine"):
        subjects.require_whose(path, subjects.chosen())


def test_a_check_that_is_interrupted_names_what_it_had_found(tmp_path, capsys, monkeypatch):
    runs = []

    class Interrupted(Altered):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            runs.append(scenario)
            if len(runs) == 3:
                raise KeyboardInterrupt
            return super().run(scenario, script)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "engine", lambda _device: Interrupted(one_ahead))
    some = ("eagle_padded", "eagle_padded", "sampled_eagle")
    monkeypatch.setattr(drafts, "generated", lambda *_: map(named, some))
    assert run(["check", "--examples", "3", "--contract", "draft.positions", "--json", "report.json"]) == 1
    report, out = json.loads(Path("report.json").read_text()), capsys.readouterr().out
    assert (report["verdict"], report["examples"], len(report["findings"])) == ("FAIL", 2, 1)
    (case,) = Path(".draftproof/cases").iterdir()
    assert f"draftproof replay {case}" in out
    assert "interrupted after 2 of 3 scenarios, of which some failed" in out


def test_a_crash_exits_with_3_and_its_traceback(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "engine", lambda _device: Raising(as_it_is))
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([SCENARIO]))
    assert run(["check", "--draft", "eagle", "--examples", "1"]) == 3
    assert "page 9 is out of range" in capsys.readouterr().out
    case = next(Path(".draftproof/cases").iterdir())
    assert run(["replay", str(case)]) == 3
    assert "Traceback" in capsys.readouterr().out


def test_replay_refuses_a_case_whose_script_is_another(tmp_path, capsys):
    path = tmp_path / "case.json"
    raw = json.loads(encode(Case(scenario=SCENARIO, script=solved(SCENARIO).script)))
    raw["script"]["requests"][0]["tokens"][0] += 1
    path.write_text(json.dumps(raw))
    assert "script.requests[0].tokens[0] is" in error_of(capsys, "replay", str(path))
    raw["scenario"]["version"] = 9
    path.write_text(json.dumps(raw))
    assert "invalid scenario.version 9: expected 5" in error_of(capsys, "replay", str(path))


def test_doctor_lists_lanes(tmp_path, capsys):
    path = tmp_path / "doctor.json"
    assert run(["doctor", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    lanes = {lane["name"]: lane for lane in found["lanes"]}
    assert lanes["CPU HostGraph"]["runs"]
    assert all(lane["runs"] or lane["missing"] for lane in lanes.values())
    assert found["versions"]["torch"] in capsys.readouterr().out


def test_whoever_reads_no_further_ends_a_command_without_a_word():
    command = [sys.executable, "-P", "-m", "draftproof.cli", "faults", "list"]
    read, write = os.pipe()
    # The whole list would fit into a pipe as it is, so that the command could end before anybody has closed it.
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as started:
        os.close(write)
        assert os.read(read, 1)
        os.close(read)
        assert started.stderr.read() == ""
    assert started.returncode == 141


def test_the_installed_command_runs_from_anywhere(tmp_path):
    command = Path(sys.executable).parent / "draftproof"
    done = subprocess.run([command, "faults", "list"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "draft-positions-advanced-early" in done.stdout


@pytest.mark.parametrize("group", ["", "faults", "lab", "lab bisect", "lab kernels", "lab head", "lab bench"])
def test_what_commands_do_is_told_in_80_columns(group, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*group.split(), "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert commands
    assert [line for line in commands if line.endswith("...")] == []


def test_the_version_is_told(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"draftproof {version('draftproof')}\n"
