"""`draftproof fuzz` as a user meets it, with the engine in workers."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from draftproof.cli import live, screen
from draftproof.cli.app import run
from draftproof.fuzz.campaign import run as campaign
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import CampaignError, RequestedSettings, Settings
from draftproof.fuzz.campaign.standing import CampaignStatus
from draftproof.harness.workers.pool import Pool
from draftproof.properties.formats.case import encode, read_case
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.subject_choice import SubjectChoice
from tests.harness.forked import FORKED

FAULT = "draft-positions-advanced-early"
STATUS = CampaignStatus(
    at=75.2,
    left=3725.0,
    scenarios=412,
    rate=5.31,
    hit=300,
    possible=400,
    last_new="draft x end: draft=eagle, end=stop in run",
    since=4.0,
    findings=1,
    crashes=2,
    hangs=0,
    errors=0,
    stability=0.875,
    stability_runs=8,
    troubles=3,
    replaced=2,
    workers=4,
    doing="running",
)


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = run(["fuzz", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--time", "10"], ["invalid --time '10'", "90s, 10m or 2h"]),
        (["--time", "0s"], ["invalid --time '0s'"]),
        (["--memory", "4"], ["invalid --memory '4'", "as in 900M or 4G"]),
        (["--until", "closed"], ["invalid --until 'closed'", "closure, stall", "did you mean closure?"]),
        (["--draft", "eagl"], ["invalid --draft 'eagl'", "did you mean eagle?"]),
        (["--device", "gpu"], ["invalid --device 'gpu'", "cpu, cuda"]),
        (["--subject", "module"], ["invalid --subject 'module'", "package.module:name"]),
        (["--subject", "a:b", "--fault", FAULT], ["invalid --subject 'a:b'", "without --fault"]),
        (["--fault", "draft-positions-advanced"], [f"did you mean {FAULT}?"]),
        (["--fault", FAULT, "--patch", "x.patch"], ["invalid --patch", "without --fault"]),
        (["--patch", "none.patch"], ["none.patch: cannot be read"]),
        (["--workers", "0"], ["--workers"]),
        (["--seed", "-1"], ["--seed"]),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, capsys, arguments: list[str], parts: list[str]):
    message = error_of(capsys, "--run", str(tmp_path / "run"), *arguments)
    for part in parts:
        assert part in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("subject", [[], ["--subject", "transformers"]])
def test_closure_of_what_nobody_can_say_is_refused(tmp_path: Path, capsys, subject: list[str]):
    options = [*subject, "--model", str(tmp_path)]
    message = error_of(capsys, "--run", str(tmp_path / "run"), "--until", "closure", *options)
    assert f"invalid --until closure with {' '.join(subject or options)}: expected stall" in message
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    kept = Settings(model="some", subject=SubjectChoice(name="transformers"))
    (tmp_path / "run" / "campaign.json").write_text(encode(kept))
    message = error_of(capsys, "--run", str(tmp_path / "run"), "--until", "closure")
    assert "invalid --until closure with --subject transformers" in message


def test_a_campaign_that_goes_on_is_held_to_the_limits_of_its_subject(tmp_path: Path, monkeypatch):
    asked = []

    def ended(_run: Path, *rest: Any, subject_limits: Limits, **_more: Any) -> Any:
        asked.append((rest[0], subject_limits))
        raise CampaignError("enough was seen")

    monkeypatch.setattr(campaign, "run_campaign", ended)
    name = "tests.subjects.other.lean_subjects:Lean"
    (tmp_path / "campaign.json").write_text(encode(Settings(subject=SubjectChoice(name=name), model="some")))
    assert run(["fuzz", "--run", str(tmp_path)]) == 2
    ((again, limits),) = asked
    assert (again.subject.name, again.model, limits.max_rows) == (name, "some", 3)


def test_a_directory_is_needed(capsys):
    assert "--run" in error_of(capsys)


def test_a_fault_of_triton_needs_a_gpu(tmp_path: Path, capsys):
    patch = tmp_path / "one.patch"
    patch.write_text("kernels/triton_x.py\n-a\n+b\n")
    message = error_of(capsys, "--run", str(tmp_path / "run"), "--patch", str(patch))
    assert "invalid --device 'cpu': expected cuda, as fault one changes Triton kernels" in message


def test_a_stale_patch_begins_nothing(tmp_path: Path, capsys):
    patch = tmp_path / "one.patch"
    patch.write_text("--- a/engine/engine.py\n+++ b/engine/engine.py\n@@ -1,1 +1,1 @@\n-a\n+b\n")
    message = error_of(capsys, "--run", str(tmp_path / "run"), "--patch", str(patch))
    assert "engine/engine.py: 'a' must be there once, and are not there" in message
    assert not (tmp_path / "run" / "campaign.json").exists()


def test_directories_of_others_are_refused(tmp_path: Path, capsys):
    with RunDir(tmp_path / "run"):
        assert "runs a campaign there; expected a directory of its own" in error_of(
            capsys, "--run", str(tmp_path / "run")
        )
    (tmp_path / "notes.txt").write_text("")
    assert "holds other things" in error_of(capsys, "--run", str(tmp_path))


def test_other_settings_are_refused(tmp_path: Path, capsys):
    with RunDir(tmp_path) as directory:
        directory.begin(RequestedSettings(seed=3, drafts=("mtp",)), {})
    for arguments, said in (
        (["--seed", "4"], "invalid seed '4': expected 3, as in this campaign so far, or a new directory"),
        (["--draft", "all"], "invalid draft 'all': expected mtp, as"),
        (["--fault", FAULT], f"invalid fault '{FAULT}': expected none, as"),
    ):
        assert said in error_of(capsys, "--run", str(tmp_path), *arguments)


def test_a_damaged_database_is_named(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(campaign, "Pool", partial(Pool, start=FORKED, deadline=120.0))
    with RunDir(tmp_path) as directory:
        directory.begin(RequestedSettings(), {})
    (tmp_path / "results.sqlite").write_text("nonsense" * 1000)
    assert "results.sqlite cannot be used: file is not a database" in error_of(capsys, "--run", str(tmp_path))


def report(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def states(folder: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(folder / "results.sqlite")) as db:
        return db.execute("SELECT number, outcome FROM scenarios WHERE state = 'done' ORDER BY number").fetchall()


def test_a_healthy_engine_has_no_finding(tmp_path: Path, capsys, monkeypatch):
    """Its workers are forked and not calibrated, which takes long; those of the fault below are as a user's."""
    monkeypatch.setattr(campaign, "Pool", partial(Pool, start=FORKED, deadline=120.0))
    path, folder = tmp_path / "report.json", tmp_path / "run"
    code = run(["fuzz", "--run", str(folder), "--time", "5m", "--workers", "2", "--examples", "3", "--json", str(path)])
    said, out = report(path), capsys.readouterr().out
    assert code == 125
    assert (said["verdict"], said["reason"], said["findings"]) == ("INCONCLUSIVE", "examples", [])
    assert states(folder) == [(number, "PASS") for number in range(3)]
    assert 100 < said["bins"] < said["possible"]
    assert len(said["holes"]) == said["possible"] - said["bins"]
    assert said["stability"] == 1.0
    rows = {row["name"]: row["verdict"] for row in said["contracts"]}
    assert "FAIL" not in rows.values()
    assert rows["verify.positions"] in ("PASS", "INCONCLUSIVE")
    assert f"holes, the first: {said['holes'][0]}" in out
    assert f"Go on: draftproof fuzz --run {folder} --time 5m --workers 2" in out


def test_a_fault_is_one_finding_and_the_campaign_goes_on(tmp_path: Path, capsys):
    path, folder = tmp_path / "report.json", tmp_path / "run"
    common = ["fuzz", "--run", str(folder), "--time", "60s", "--workers", "1", "--json", str(path)]
    assert run([*common, "--fault", FAULT, "--examples", "3"]) == 1
    (found,) = report(path)["findings"]
    assert found["identity"].startswith("draft.positions | draft.step.positions")
    assert (found["state"], found["runs"]) == ("confirmed", "3/3")
    assert found["requests"] <= 2
    assert found["rounds"] <= 3
    assert report(path)["settings"]["drafts"] == ["eagle"]
    out = capsys.readouterr().out
    assert "expected position" in out
    assert f"replay: draftproof replay {found['case']} --fault {FAULT}" in out
    assert f"explain: draftproof explain {found['case']} --fault {FAULT}" in out
    scenario, script = read_case(Path(found["case"]))
    assert script is not None
    assert len(scenario.requests) == found["requests"]
    assert (Path(found["case"]).parent / "timeline.json").exists()
    # Healthy again, as nothing of the fault is in the installed engine; the campaign keeps its own copy.
    assert run(["replay", found["case"]]) == 0
    assert run([*common, "--examples", "12"]) == 1
    assert [number for number, _ in states(folder)] == list(range(12))
    (again,) = report(path)["findings"]
    assert (again["identity"], again["state"]) == (found["identity"], "confirmed")
    assert again["hits"] > found["hits"]
    assert report(path)["settings"]["fault"] == FAULT


def test_the_screen_says_how_it_stands():
    out = io.StringIO()
    Console(file=out, width=120).print(live.table(STATUS))
    shown = " ".join(out.getvalue().split())
    for part in (
        "1 min 15 s, 1 h 2 min left",
        "412, 5.3 a second",
        "300 of 400 bins (75.0 %)",
        "4 s ago: draft x end",
        "findings 1",
        "crashes, hangs 2, 0",
        "87.5 % of 8",
        "4, replaced 2",
    ):
        assert part in shown
    assert live.line(STATUS).startswith(
        "1 min 15 s running, 412 scenarios (5.3/s), bins 300/400, 1 findings, 2 crashes"
    )


def test_without_a_terminal_there_is_a_line_now_and_then(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    with live.watching() as watch:
        for now[0] in (100.0, 110.0, 129.9, 130.1, 131.0):
            watch(STATUS)
    assert len(capsys.readouterr().err.splitlines()) == 2
