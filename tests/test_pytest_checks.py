"""What the plugin is made of: checks of a subject, their summary, and annotations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from draftproof.faults import tiny_checkpoints as tiny
from draftproof.plugin import without_share
from draftproof.properties.fit import UnfitError
from draftproof.properties.formats.case import case_subject, read_case
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.trace import Trace
from draftproof.pytest_checks import Check, ContractError, ProfileScenarios, assert_holds, make_subject
from draftproof.pytest_summary import LACKING, summary, workflow_commands
from draftproof.reference.run import ReferenceSubject  # numpy cannot be imported twice by one process
from tests.named import named

EAGLES = ("eagle_padded", "hybrid_replay", "sampled_eagle", "logprobs", "five_in_graphs", "hybrid_snapshot")


class Report:
    """A test report, as far as it is read."""

    def __init__(self, nodeid: str, *properties: tuple[str, object], when: str = "call") -> None:
        self.nodeid, self.when, self.user_properties, self.failed = nodeid, when, list(properties), True
        self.location = ("tests/a,b.py", 6, "test")


FINDING: tuple[tuple[str, object], ...] = (
    ("draftproof.contract", "a:b\n::error::c"),
    ("draftproof.identity", "x"),
    ("draftproof.replay", "pytest 100%"),
    ("draftproof.divergence", "first\r\nsecond"),
)


def test_nothing_breaks_out_of_an_annotation():
    lines = list(workflow_commands([Report("t", *FINDING), Report("t", *FINDING, when="teardown")], "sub"))
    assert lines == [
        "::error file=sub/tests/a%2Cb.py,line=7,title=Draftproof%3A a%3Ab%0A%3A%3Aerror%3A%3Ac"
        "::first%0D%0Asecond%0Apytest 100%25"
    ]


def test_what_failed_was_judged():
    shares = [
        Report("t[share1of2]", ("draftproof.contract", "accept.greedy"), *FINDING[1:]),
        Report("t[share2of2]", ("draftproof.inconclusive", "accept.greedy memory.bounds")),
    ]
    assert "t: not enough was exercised to judge memory.bounds" in list(summary(shares, without_share))


def test_no_scenarios_prove_nothing(tmp_path):
    with pytest.raises(AssertionError, match="INCONCLUSIVE: reference was given no scenarios: expected at least one"):
        Check(ReferenceSubject, [], tmp_path)()
    with pytest.raises(AssertionError, match="was given no scenarios"):
        Check(ReferenceSubject, [], tmp_path, share=(1, 2))(scenarios=iter(()))
    # A share may have none where there are fewer scenarios than workers.
    assert Check(ReferenceSubject, [], tmp_path, share=(1, 2))().scenarios == 0


class Partly(ReferenceSubject):
    """Shows these channels of one scenario after the other, and again from the first."""

    name = "partly"

    def __init__(self, *shown: str) -> None:
        self._shown = itertools.cycle(frozenset(one.split()) for one in shown)
        self._now = frozenset[str]()

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._now

    def run(self, scenario: Scenario, script: Script) -> Trace:
        self._now = next(self._shown)
        seen = [one for one in super().run(scenario, script).observations if one.channel in self._now]
        return Trace(self.name, self._now, tuple(seen))


WHOLE = "accept.emitted propose.tokens"


def test_a_text_that_only_some_scenarios_show_fails(tmp_path: Path):
    scenarios = list(map(named, EAGLES))
    told = "INCONCLUSIVE: partly: 2 of 6 scenarios showed no text, and others did"
    with pytest.raises(AssertionError, match=told):
        Check(ReferenceSubject, scenarios, tmp_path)(Partly(WHOLE, WHOLE, "accept.correct_len"))
    assert Check(ReferenceSubject, scenarios, tmp_path)(Partly(WHOLE)).scenarios == 6


def test_a_subject_that_shows_no_draft_fails_but_a_share_does_not(tmp_path: Path):
    scenario = named("eagle_padded")
    none = (RoundPlan(num_drafts=0, num_correct=0),)
    requests = tuple(structs.replace(one, rounds=none) for one in scenario.requests)
    idle = [structs.replace(scenario, requests=requests)]
    with pytest.raises(AssertionError, match="INCONCLUSIVE: partly: no draft was seen, so nothing is said of drafting"):
        Check(ReferenceSubject, idle, tmp_path)(Partly(WHOLE))
    assert Check(ReferenceSubject, idle, tmp_path, share=(1, 2))(Partly(WHOLE)).scenarios == 1


def test_what_is_kept_is_what_is_told(tmp_path):
    """The first of a kind is told, and later ones do not take the place of its case; shares have files of their own."""

    class Off(ReferenceSubject):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            trace = super().run(scenario, script)
            wrong = (
                one._replace(value=one.value + 1) if one.channel == "draft.step.positions" else one
                for one in trace.observations
            )
            return replace(trace, observations=tuple(wrong))

    scenarios = list(map(named, EAGLES))
    for share in ((0, 1), (1, 2)):
        with pytest.raises(ContractError) as caught:
            Check(Off, scenarios, tmp_path, test="t", share=share)()
        (found,) = caught.value.found
        kept = read_case(Path(found.case))[0]
        assert kept == scenarios[0]
        with pytest.raises(ContractError) as again:
            assert_holds(Off(), kept, cases=tmp_path / "again")
        assert again.value.found[0].sentence == found.sentence
    assert len(list(tmp_path.glob("t*/*.json"))) == 2


def test_cases_of_two_drafts_do_not_overwrite_each_other(tmp_path):
    class Crashing(ReferenceSubject):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            raise IndexError("page 9 is out of range")

    held = [named("eagle_padded"), named("mtp_chain_partial")]
    found = []
    for scenario in held:
        with pytest.raises(ContractError) as caught:
            assert_holds(Crashing(), scenario, cases=tmp_path)
        found += caught.value.found
    assert [read_case(Path(one.case))[0] for one in found] == held


@pytest.mark.parametrize("leave", [pytest.skip, pytest.exit, pytest.xfail, lambda _: os._exit(0)])
def test_a_subject_cannot_leave_its_test(leave: Callable[[str], None], tmp_path):
    class Leaving(ReferenceSubject):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            leave("not today")
            return super().run(scenario, script)

    with pytest.raises(ContractError, match=r"CRASH .*(not today|os\._exit\(0\))"):
        assert_holds(Leaving(), named("eagle_padded"), cases=tmp_path)


def test_what_one_share_could_judge_is_judged():
    reports = [
        Report("t[share1of2]", ("draftproof.scenarios", 2), ("draftproof.inconclusive", "a b"), *FINDING),
        Report(
            "t[share2of2]", ("draftproof.scenarios", 3), ("draftproof.inconclusive", "b"), ("draftproof.judged", "a")
        ),
        Report("other", ("unknown", 1)),
    ]
    first, lacking, *_ = summary(reports, without_share)
    assert first == "5 scenarios in 1 test (2 shares), 1 finding"
    assert lacking == "t: not enough was exercised to judge b"
    assert list(summary(reports[2:], without_share)) == []


def test_a_check_in_a_fixture_counts_too():
    reports = [Report("t", *FINDING, when="setup"), Report("t", *FINDING, when="teardown")]
    assert len(list(workflow_commands(reports, "."))) == 1
    reports[0].failed = False
    assert list(workflow_commands(reports, ".")) == []


def test_the_engine_is_replayed_by_the_command_line(tmp_path, monkeypatch):
    from draftproof.engine.subject import EngineSubject

    def out_of_range(*_: object) -> None:
        raise IndexError("page 9 is out of range")

    scenarios = [named("eagle_padded")]
    recorded: list[tuple[str, object]] = []
    monkeypatch.setattr(EngineSubject, "run", out_of_range)
    check = Check(
        subject=lambda: make_subject(BUILT_IN_SUBJECT, "cpu"),
        scenarios=scenarios,
        cases=tmp_path,
        test="t",
        device="cpu",
        record=recorded.append,
    )
    with pytest.raises(
        ContractError, match=r"replay: draftproof replay .*crash-indexerror-\w+-\w+\.json --device cpu"
    ) as caught:
        check()
    (found,) = caught.value.found
    assert read_case(Path(found.case))[0] == scenarios[0]
    assert found.outcome == "CRASH"
    told = list(summary([Report("t", *recorded)], without_share))
    assert "t: no subject was named, so this is the built-in engine: draftproof_check(SUBJECT)" in told
    with pytest.raises(ContractError, match="replay: draftproof replay"):
        assert_holds(make_subject(BUILT_IN_SUBJECT, "cpu"), scenarios[0], cases=tmp_path)


def test_a_subject_that_options_name_is_replayed_by_the_command_line(tmp_path):
    """Without its options the command would replay the case on the built-in engine."""

    class Raises(Subject):
        name = "raises"

        def channels(self, scenario):
            return frozenset({"accept.emitted"})

        def run(self, scenario, script):
            raise IndexError("page 9 is out of range")

    choice = SubjectChoice(name="mine", python="env/bin/python", settings={"url": "http://x", "runner": "v1"})
    recorded: list[tuple[str, object]] = []
    check = Check(Raises, [named("eagle_padded")], cases=tmp_path, test="t", choice=choice, record=recorded.append)
    options = "--device cpu --subject mine --python env/bin/python --url http://x --set runner=v1"
    with pytest.raises(ContractError, match=f"replay: draftproof replay .*json {options}") as caught:
        check()
    assert case_subject(Path(caught.value.found[0].case)) == choice
    assert (LACKING, "") in recorded
    with pytest.raises(ContractError, match=r"replay: pytest t --draftproof-case .*json$"):
        check(Raises())


@pytest.mark.parametrize(
    ("name", "without"),
    [("t[share1of2]", "t"), ("t[a-share2of12]", "t[a]"), ("t[share1of2-a]", "t[a]"), ("t[share]", "t[share]")],
)
def test_the_share_is_no_part_of_a_tests_name(name, without):
    assert without_share(name) == without


class Hiding(ReferenceSubject):
    """Shows its first scenario only."""

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return super().channels(scenario) if scenario == HIDDEN[0] else frozenset()

    def run(self, scenario: Scenario, script: Script) -> Trace:
        shown = self.channels(scenario)
        return super().run(scenario, script) if shown else Trace(self.name, shown, ())


HIDDEN = [named("eagle_padded"), named("hybrid_replay")]


def test_a_scenario_that_shows_nothing_is_told(tmp_path):
    recorded = dict[str, object]()
    check = Check(Hiding, HIDDEN, tmp_path, record=lambda one: recorded.update([one]))
    told = r"INCONCLUSIVE: reference: 1 of 2 scenarios showed nothing \(number 1, from 0\): channels\(\) has to name"
    with pytest.raises(AssertionError, match=told):
        check(contracts=["output.lossless"])
    assert "runs" in str(recorded[LACKING]).split()


class OfCheckpoints(Hiding):
    """It runs no probes."""

    limits = Limits(models=("checkpoint",))


def test_what_a_subject_cannot_run_is_told_in_a_sentence(tmp_path):
    check = Check(OfCheckpoints, HIDDEN, tmp_path)
    with pytest.raises(UnfitError, match=r"expected checkpoint, .*; name one with --draftproof-model") as at:
        check()
    assert len(at.traceback) == 2  # the test, and the check that it calls
    assert at.value.__suppress_context__


class OfLookups(ReferenceSubject):
    """It has one kind of draft."""

    limits = Limits(drafts=("ngram",))


def test_scenarios_of_a_profile_have_the_drafts_of_the_subject(tmp_path):
    checked = Check(OfLookups, ProfileScenarios(seed=0, count=2), tmp_path)(contracts=["output.lossless"])
    assert checked.scenarios == 2
    named = ProfileScenarios(seed=0, count=1, drafts=("eagle",))
    with pytest.raises(UnfitError, match="invalid draft 'eagle': expected one that the subject has, ngram"):
        Check(OfLookups, named, tmp_path)()


def test_the_first_mtp_layer_of_a_checkpoint_may_be_the_head(tmp_path):
    alike = tiny.Alike(2)
    mimo = tiny.write(tiny.model("Qwen2ForCausalLM", tiny.TINY_SIZES), tmp_path / "mimo", alike)
    tiny.add_mtp_of_mimo(mimo, alike, 2)
    drafts = [one.draft for one in ProfileScenarios(seed=0, count=2, model=str(mimo), mtp=True)]
    assert [(algorithm(one), one.built_in) for one in drafts] == 2 * [("eagle", True)]
