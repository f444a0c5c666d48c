"""What `draftproof replay` says of a case: the scenario, what was exercised, what was judged, and with which fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from draftproof.cli import inputs
from draftproof.cli.app import run
from draftproof.fuzz.campaign.drive import _origin
from draftproof.fuzz.campaign.settings import Settings
from draftproof.harness.check import WORK
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.features import features_of
from draftproof.properties.formats.case import Case, case_fault, case_text
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solved import solved
from tests.harness.subjects import Raising, as_it_is
from tests.named import named
from tests.warm import Warm

PLAIN, ALONE = named("eagle_padded"), named("alone_preempted")
FAULT = "draft-positions-advanced-early"
EARLIER = f"draftproof fuzz --seed 0 --device cpu --fault {FAULT}, scenario 3: draft.positions"


def written(path: Path, scenario: Scenario = PLAIN, origin: str = "") -> str:
    path.write_text(case_text(Case(scenario=scenario, script=solved(scenario).script, origin=origin)))
    return str(path)


def test_a_pass_says_what_was_run_and_judged(tmp_path, capsys):
    case, report = written(tmp_path / "case.json"), tmp_path / "report.json"
    assert run(["replay", case, "--json", str(report)]) == 0
    scenario, features, exercised, contracts, _, last = capsys.readouterr().out.splitlines()
    assert scenario.startswith(f"scenario: {len(PLAIN.requests)} request")
    for part in (
        f"with at most {PLAIN.steps} draft",
        f"batches of at most {PLAIN.schedule.max_batch} row",
        f"graphs of {'/'.join(map(str, PLAIN.graphs.sizes))},",
    ):
        assert part in scenario
    assert features.partition(" (")[0] == f"features: {', '.join(features_of(PLAIN)) or 'none'}"
    told = json.loads(report.read_text())
    counts = ", ".join(f"{name} {told['counts'][name]}" for name in WORK)
    assert exercised == f"exercised: {counts}; all {len(told['counts'])} counts with --json"
    assert told["counts"]["rounds"] > 0
    assert told["features"] == list(features_of(PLAIN))
    verdicts = [one["verdict"] for one in told["contracts"]]
    assert len(verdicts) == len(ALL)
    few, good, none = (verdicts.count(name) for name in ("INCONCLUSIVE", "PASS", "SKIP"))
    assert min(few, good, none) > 0
    assert few + good + none == len(ALL)
    assert contracts.startswith(
        f"contracts: {few + good} of {len(ALL)} judged it: {few} INCONCLUSIVE, {good} PASS, {none} SKIP (one scenario"
    )
    judged = {one["name"] for one in told["contracts"] if one["scenarios"]}
    assert judged == {one["name"] for one in told["contracts"] if one["verdict"] != "SKIP"}
    assert last.startswith("PASS. Again: ")


def test_a_feature_that_did_nothing_is_told_and_a_case_needs_no_script(tmp_path, capsys):
    """A request is aborted long after its end."""
    late = msgspec.structs.replace(PLAIN.requests[0], abort_at=PLAIN.requests[0].arrival + 1000)
    scenario = msgspec.structs.replace(PLAIN, requests=(late, *PLAIN.requests[1:]))
    path = tmp_path / "case.json"
    path.write_text(case_text(Case(scenario=scenario)))
    assert run(["replay", str(path)]) == 0
    features = capsys.readouterr().out.splitlines()[1]
    assert "(without effect: aborts)" in features


def test_a_crash_says_what_was_run_and_nothing_of_what_was_judged(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inputs, "engine", lambda _device: Raising(as_it_is))
    report = tmp_path / "report.json"
    assert run(["replay", written(tmp_path / "case.json"), "--json", str(report)]) == 3
    out = capsys.readouterr().out
    assert out.startswith("scenario: ")
    assert "exercised" not in out
    assert "judged it" not in out
    told = json.loads(report.read_text())
    assert (told["features"], told["contracts"]) == (list(features_of(PLAIN)), [])


class Limited(Raising):
    """It cannot run every scenario."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(as_it_is)
        self.limits = limits


@pytest.mark.parametrize(
    ("name", "limits", "told"),
    [
        ("tree_eagle", Limits(features=("aborts",)), "feature 'trees': expected some of those of this subject, aborts"),
        ("eagle_padded", Limits(max_drafts=1), "steps 5: expected 1, for this subject"),
        ("eagle_padded", Limits(models=("checkpoint",)), "model 'probe': expected checkpoint, for this subject"),
        ("eagle_padded", Limits(drafts=("mtp",)), "draft 'eagle': expected one that the subject has, mtp"),
    ],
)
def test_a_case_beyond_what_the_subject_can_run_is_bad_input(tmp_path, capsys, monkeypatch, name, limits, told):
    monkeypatch.setattr(inputs, "engine", lambda _device: Limited(limits))
    case = written(tmp_path / "case.json", named(name))
    assert run(["replay", case]) == 2
    assert f"{case}: invalid {told}" in capsys.readouterr().err


def test_a_case_that_is_compared_with_its_requests_alone_replays(tmp_path, capsys):
    """Its variant is another scenario, which is solved as well."""
    assert run(["replay", written(tmp_path / "case.json", ALONE)]) == 0
    assert "variant alone" in capsys.readouterr().out


def test_a_case_that_was_found_with_a_fault_says_so(tmp_path, capsys):
    case, report = written(tmp_path / "case.json", origin=EARLIER), tmp_path / "report.json"
    told = f"found with --fault {FAULT}; this run is without it"
    assert run(["replay", case, "--json", str(report)]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == told
    assert json.loads(report.read_text())["without"] == FAULT


@pytest.mark.parametrize(("fault", "without"), [(FAULT, ""), ("pages-leak-on-finish", FAULT)])
def test_a_run_with_the_fault_says_nothing_of_it(fault: str, without: str, tmp_path, warm: Warm):
    """The engine with a fault has a process of its own."""
    case, report = written(tmp_path / "case.json", origin=EARLIER), tmp_path / "report.json"
    words = ["replay", case, "--fault", fault, "--json", str(report)]
    done = warm.run([sys.executable, "-P", "-m", "draftproof.cli", *words], tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert ("found with" in done.stdout) is bool(without)
    assert json.loads(report.read_text())["without"] == without


@pytest.mark.parametrize(
    ("origin", "fault"),
    [
        (f"{_origin(Settings(fault=FAULT))}, scenario 3: x", FAULT),
        (f"{_origin(Settings())}, scenario 3: --faulty", ""),
        (f"shrunk from case.json with --fault {FAULT}", FAULT),
        ("draftproof check --seed 0 --with preemption, scenario 3, draft eagle: x", ""),
        ("", ""),
    ],
)
def test_an_origin_names_the_fault(tmp_path, origin: str, fault: str):
    assert case_fault(Path(written(tmp_path / "case.json", origin=origin))) == fault
