"""`run`, `check` and `assert_holds` as an author of a subject meets them: fitted scenarios, and what they raise."""

from __future__ import annotations

from pathlib import Path

import pytest

import draftproof
from draftproof.subject import Limits, Scenario, Script, Trace
from tests.harness.subjects import Altered, Raising, as_it_is, one_ahead
from tests.named import named


class Serial(Altered):
    limits = Limits(max_rows=1, drafts=("eagle",), variants=())


class OfCheckpoints(Altered):
    limits = Limits(models=("checkpoint",))


@pytest.fixture
def scenario() -> Scenario:
    return named("eagle_padded")


def test_a_run_has_both_sides_and_no_verdict(scenario: Scenario):
    ran = draftproof.run(Altered(one_ahead), scenario)
    assert ran.scenario == scenario
    right, got = (trace.channel("draft.step.positions") for trace in (ran.reference, ran.subject))
    assert right.keys() == got.keys()
    assert {key: value + 1 for key, value in right.items()} == dict(got)
    assert not draftproof.judge(ran).passed
    assert draftproof.judge(draftproof.run(Altered(as_it_is), scenario)).passed


def test_a_scenario_is_fitted(scenario: Scenario, tmp_path: Path):
    subject = Serial(as_it_is)
    assert scenario.schedule.max_batch > 1
    assert draftproof.run(subject, scenario).scenario.schedule.max_batch == 1
    with pytest.raises(draftproof.ContractError) as failed:
        draftproof.assert_holds(Serial(one_ahead), scenario, cases=tmp_path)
    (found,) = failed.value.found
    assert draftproof.read_case(Path(found.case))[0].schedule.max_batch == 1


def test_what_cannot_be_run_is_told(scenario: Scenario):
    with pytest.raises(draftproof.UnfitError, match="invalid model 'probe': expected checkpoint"):
        draftproof.run(OfCheckpoints(as_it_is), scenario)
    with pytest.raises(draftproof.UnfitError, match="invalid model 'probe': expected checkpoint"):
        draftproof.assert_holds(OfCheckpoints(as_it_is), scenario)
    with pytest.raises(draftproof.UnfitError, match=r"expected those of a checkpoint, .* altered takes no probes"):
        draftproof.check(OfCheckpoints(as_it_is))
    with pytest.raises(draftproof.DraftproofError, match=r"expected name, limits, .* draftproof\.subject\.Subject"):
        draftproof.check(object(), [scenario])  # type: ignore[arg-type]


def test_what_a_subject_raises_is_a_crash(scenario: Scenario):
    with pytest.raises(draftproof.SubjectCrashedError, match="page 9 is out of range"):
        draftproof.run(Raising(as_it_is), scenario)


def test_a_check_generates_scenarios_of_what_the_subject_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    report = draftproof.check(Serial(as_it_is), seed=5, count=2)
    assert (report.seed, report.examples, list(report.drafts)) == (5, 2, ["eagle"])
    assert [one.name for one in report.contracts if one.verdict is draftproof.Outcome.FAIL] == []


class Silent(Altered):
    """Runs, and reports nothing."""

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset()

    def run(self, scenario: Scenario, script: Script) -> Trace:
        return Trace(self.name, frozenset(), ())


def test_nothing_holds_of_a_subject_that_shows_nothing(scenario: Scenario):
    silent = Silent(as_it_is)
    assert not draftproof.judge(draftproof.run(silent, scenario)).passed
    with pytest.raises(AssertionError, match=r"INCONCLUSIVE: .* reports nothing of it that any contract could judge"):
        draftproof.assert_holds(silent, scenario)
