"""The whole way in seconds: a scenario is solved, run by an engine, judged, worded, and drawn in a report."""

from pathlib import Path

import msgspec
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.diagnosis.timeline import timeline
from draftproof.properties.formats.case import encode, read_case
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solved import Solved, solved
from draftproof.report.html.page import render, report
from draftproof.report.html.source import read_run
from draftproof.report.text import block
from tests.harness.subjects import Altered, one_ahead
from tests.named import OF_DRAFT, named
from tests.report.report_run import finding, make


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return named("eagle_padded")


@pytest.fixture(scope="module")
def known(scenario: Scenario) -> Solved:
    return solved(scenario)


def test_a_scenario_survives_its_file(scenario: Scenario, tmp_path: Path):
    path = tmp_path / "case.json"
    path.write_text(encode(scenario))
    assert validate(read_case(path)[0]) == scenario


@pytest.mark.parametrize("draft", ALGORITHMS)
def test_the_engine_equals_the_reference(draft):
    judgement = judge(evidence(EngineSubject(), named(OF_DRAFT[draft])))
    assert judgement.first is None
    assert {"output.lossless", "commit.length"} <= judgement.results.keys()


def test_a_wrong_position_goes_all_the_way_to_the_report(scenario: Scenario, known: Solved, tmp_path: Path):
    ran = evidence(Altered(one_ahead), scenario, {scenario: known}.__getitem__)
    first = judge(ran).first
    assert first is not None
    assert (first.contract, first.channel) == ("draft.positions", "draft.step.positions")
    text = block(first, replay="draftproof replay case.json")
    assert "one ahead" in text
    assert "replay" in text

    folder = make(tmp_path / "run", [finding(divergence=msgspec.json.encode(first).decode())], seconds=60)
    drawn = folder / "findings/draft-positions-0a/timeline.json"
    drawn.write_bytes(msgspec.json.encode(timeline(ran, first)))
    page = render(report(read_run(folder), []))
    assert page.startswith("<!DOCTYPE html>")
    assert "draft.positions" in page
    assert "one ahead" in page
    assert "<svg" in page
