"""Verdicts over many scenarios: what a failing, crashing or hanging subject leaves behind."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.check import Checker, CheckReport
from draftproof.harness.execute import Executor
from draftproof.harness.lockstep import evidence
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.workers.messages import Order
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.formats.case import encode, read_case
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, algorithm
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.relations import OffBy
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, MalformedTraceError, Trace
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict
from draftproof.reference.solved import solved
from tests.harness.subjects import Altered, Raising, Retold, Sleeping, as_it_is, one_ahead
from tests.named import OF_DRAFT, named

SCENARIOS = [named(name) for name in ("eagle_padded", "five_in_graphs", "mixed_eagle")]
REJECTING = named("five_in_graphs")
ONLY_TOKENS = [contract for contract in ALL if contract.name == "output.lossless"]


def verdict(report: CheckReport, name: str) -> Verdict:
    return next(verdict for verdict in report.contracts if verdict.name == name)


def test_the_same_seed_gives_the_same_report(tmp_path: Path):
    one, two = (Checker(EngineSubject(), cases=tmp_path).check(SCENARIOS[:1], 3) for _ in range(2))
    assert encode(one) == encode(two)
    assert one.counts["scenarios"] == 1
    assert not one.findings
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_position_fails_its_contract_and_is_kept_once(tmp_path: Path):
    report = Checker(Altered(one_ahead), cases=tmp_path).check(SCENARIOS[:3], 3)
    failed = verdict(report, "draft.positions")
    assert report.verdict is Outcome.FAIL
    assert failed.verdict is Outcome.FAIL
    assert failed.divergence is not None
    assert (failed.divergence.channel, failed.divergence.relation) == ("draft.step.positions", OffBy(1))
    finding = next(one for one in report.findings if one.first and one.first.contract == "draft.positions")
    assert finding.first.output_changed is False
    scenario, script = read_case(Path(finding.case))
    assert scenario == SCENARIOS[finding.scenario]
    assert script == solved(scenario).script
    identities = [one.identity for one in report.findings]
    assert len(identities) == len(set(identities))


class Refusing(Altered):
    """Refuses every scenario."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise InvalidScenarioError("max_batch is 9: expected at most 4")


def test_a_refusal_of_a_scenario_of_our_own_is_a_crash(tmp_path: Path):
    report = Checker(Refusing(as_it_is), cases=tmp_path).check(SCENARIOS[:2], 3)
    assert report.verdict is Outcome.CRASH
    (found,) = report.findings
    assert read_case(Path(found.case))[0] == SCENARIOS[0]


def test_a_crash_is_kept_with_its_traceback(tmp_path: Path):
    report = Checker(Raising(as_it_is), cases=tmp_path).check(SCENARIOS[:2], 3)
    assert report.verdict is Outcome.CRASH
    assert EXIT_CODES[report.verdict] == 3
    assert verdict(report, "runs").verdict is Outcome.CRASH
    assert "page 9 is out of range" in verdict(report, "runs").reason
    assert "Traceback" in report.findings[0].detail
    assert len(list(tmp_path.iterdir())) == 1


def test_cases_of_two_drafts_do_not_overwrite_each_other(tmp_path: Path):
    for draft in ("eagle", "mtp"):
        scenarios = [named(OF_DRAFT[draft])]
        (found,) = Checker(Raising(as_it_is), cases=tmp_path).check(scenarios, 3).findings
        assert read_case(Path(found.case))[0] == scenarios[0]
    assert len(list(tmp_path.iterdir())) == 2


def test_every_draft_of_the_list_has_counts_and_a_verdict_of_its_own(tmp_path: Path):
    scenarios = [named(name) for name in (*OF_DRAFT.values(), "five_in_graphs")]
    report = Checker(Altered(as_it_is), cases=tmp_path).check(scenarios, 3)
    assert list(report.drafts) == list(ALGORITHMS)
    for name in ALGORITHMS:
        own = [scenario for scenario in scenarios if algorithm(scenario.draft) == name]
        alone = Checker(Altered(as_it_is), cases=tmp_path).check(own, 3)
        assert report.drafts[name] == alone.counts
        assert verdict(report, f"runs.{name}").scenarios == len(own)
    assert report.counts == {name: sum(of[name] for of in report.drafts.values()) for name in report.counts}


def test_nothing_is_asked_of_single_drafts_where_that_is_said(tmp_path: Path):
    report = Checker(Altered(as_it_is), cases=tmp_path, each=None).check([named("five_in_graphs")], 3)
    assert not any(one.name.startswith("runs.") for one in report.contracts)
    few = Checker(Altered(as_it_is), cases=tmp_path, each=("scenarios",)).check([named("five_in_graphs")], 3)
    assert set(verdict(few, "runs.eagle").missing) <= {f"{name} >= 1" for name in DRAFT_KINDS_BY_NAME["eagle"].minimum}
    every = Checker(Altered(as_it_is), cases=tmp_path).check([named("five_in_graphs")], 3)
    assert set(verdict(every, "runs.eagle").missing) > set(verdict(few, "runs.eagle").missing)


def test_a_draft_that_only_crashed_is_inconclusive_on_its_own(tmp_path: Path):
    report = Checker(Raising(as_it_is), cases=tmp_path).check([named("mtp_chain_partial"), named("mtp_unchained")], 3)
    assert verdict(report, "runs.mtp").verdict is Outcome.INCONCLUSIVE
    assert report.drafts["mtp"]["scenarios"] == 0
    assert report.findings[0].case


def test_a_hang_is_a_verdict(tmp_path: Path):
    report = Checker(Sleeping(as_it_is), cases=tmp_path, deadline=0.2).check(SCENARIOS[:1], 3)
    assert report.verdict is Outcome.HANG
    assert EXIT_CODES[report.verdict] == 4


def test_too_little_work_is_inconclusive(tmp_path: Path):
    report = Checker(Altered(as_it_is), cases=tmp_path).check(SCENARIOS[:1], 3)
    assert report.verdict is Outcome.INCONCLUSIVE
    nothing = Checker(Altered(as_it_is), cases=tmp_path).check([], 3)
    assert nothing.verdict is Outcome.INCONCLUSIVE
    assert "rounds >= 1" in verdict(nothing, "runs").missing


def test_an_error_of_the_reference_is_not_the_subjects():
    def broken(_scenario):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evidence(Altered(as_it_is), SCENARIOS[0], broken)
    with pytest.raises(SubjectCrashedError, match="in the base run"):
        evidence(Raising(as_it_is), SCENARIOS[0])


def test_a_variant_is_run():
    ran = evidence(Altered(as_it_is), named("alone_preempted"))
    assert ran.varied is not None
    assert ran.varied.observations


def _twice(trace: Trace) -> Trace:
    """The first observation wrong, then right: a mapping would only know the right one."""
    first = trace.observations[0]
    return replace(trace, observations=(first._replace(value=-1), *trace.observations))


def _silent(trace: Trace) -> Trace:
    return replace(trace, channels=frozenset(), observations=())


def _untyped(trace: Trace) -> Trace:
    """A row of a batch as a tuple, which no contract could read."""
    first, *rest = trace.observations
    return replace(trace, observations=(first._replace(value=(7, 7)), *rest))


def _of_nobody(trace: Trace) -> Trace:
    first, *rest = trace.observations
    return replace(trace, observations=(first._replace(key=first.key._replace(request=99)), *rest))


def _mute_of_a_bonus(trace: Trace) -> Trace:
    kept = trace.channels - {"accept.bonus"}
    return replace(trace, channels=kept, observations=tuple(one for one in trace.observations if one.channel in kept))


def _bonus_not_observed(trace: Trace) -> Trace:
    """Declared all the same."""
    return replace(trace, observations=tuple(one for one in trace.observations if one.channel != "accept.bonus"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_twice, "MalformedTraceError: .* is reported twice"),
        (_untyped, r"MalformedTraceError: invalid [a-z.]+ Key\(.*\): \(7, 7\): expected "),
        (_of_nobody, r"MalformedTraceError: invalid [a-z.]+ Key\(.*99.*\): expected a request from 0 to \d+, or -1"),
        (_silent, "MalformedTraceError: the trace lacks accept.bonus, .*, which its subject declares"),
        (_mute_of_a_bonus, "MalformedTraceError: the trace lacks accept.bonus, which its subject declares"),
        (lambda _trace: None, r"MalformedTraceError: run\(\) returned None: expected a Trace"),
    ],
)
def test_no_run_escapes_its_contracts(change: Callable[[Trace], Trace], message: str):
    with pytest.raises(SubjectCrashedError, match=message):
        evidence(Retold(change), REJECTING)


def test_silence_is_a_crash_where_nothing_else_is_wrong(tmp_path: Path):
    scenario = REJECTING
    message = "the trace has no observation of accept.bonus, which its subject declares"
    with pytest.raises(MalformedTraceError, match=message):
        judge(evidence(Retold(_bonus_not_observed), scenario), ())
    report = Checker(Retold(_bonus_not_observed), cases=tmp_path, contracts=ONLY_TOKENS).check([scenario], 3)
    assert report.verdict is Outcome.CRASH
    assert message in report.findings[0].detail


def test_a_misspelt_channel_does_not_take_its_contracts_along():
    with pytest.raises(SubjectCrashedError, match=r"invalid channel 'accept.emited' of .*did you mean accept.emitted"):
        evidence(Retold(lambda trace: trace, frozenset({"accept.emited"})), SCENARIOS[0])


class _Outcome(BaseException):
    """What a test framework raises to skip."""


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), _Outcome()])
def test_a_subject_cannot_end_the_check(error: BaseException, tmp_path: Path):
    class Ending(Altered):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            raise error

    report = Checker(Ending(as_it_is), cases=tmp_path).check(SCENARIOS[:2], 3)
    assert report.verdict is Outcome.CRASH


@pytest.mark.parametrize("is_caught", [False, True])
def test_a_subject_cannot_end_the_process_in_silence(is_caught: bool):
    class Exiting(Altered):
        def run(self, scenario: Scenario, script: Script) -> Trace:
            with contextlib.suppress(SystemExit if is_caught else ()):
                os._exit(0)
            return super().run(scenario, script)

    with pytest.raises(SubjectCrashedError, match=r"SystemExit: os\._exit\(0\)"):
        evidence(Exiting(as_it_is), SCENARIOS[0])
    assert os._exit.__module__ == "posix"


def test_who_decides_the_rounds_and_does_not_tell_is_not_judged_by_them(tmp_path: Path):
    """Only the text is what it is whatever the rounds."""
    dynamic = [named(name) for name in ("adaptive_rising", "draft_batch", "preempted")]
    assert all(one.dynamic for one in dynamic)

    channels = frozenset({"commit.length", "accept.emitted"})

    def terse(trace: Trace) -> Trace:
        kept = tuple(one for one in trace.observations if one.channel in channels)
        return replace(trace, channels=channels, observations=kept)

    report = Checker(Retold(terse, channels), cases=tmp_path).check(dynamic, 3)
    judged = {one.name: one.scenarios for one in report.contracts}
    assert judged["output.lossless"] == len(dynamic)
    assert judged["commit.length"] == 0
    assert not report.findings


class Hiding(Altered):
    """Shows the text of its first scenario, and nothing of any other; or, of the others, no text."""

    channel = ""

    def channels(self, scenario: Scenario) -> frozenset[str]:
        names = ("accept.emitted", self.channel) if scenario == SCENARIOS[0] else (self.channel,)
        return frozenset(filter(None, names))

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace, shown = super().run(scenario, script), self.channels(scenario)
        return Trace(self.name, shown, tuple(one for one in trace.observations if one.channel in shown))


SILENT = (
    "1 of 2 scenarios showed nothing (number 1, from 0): channels() has to name what run() reports there, and limits"
    " what it cannot run"
)


class Textless(Hiding):
    channel = "round.drafts"


@pytest.mark.parametrize(
    ("kind", "missing", "told"),
    [
        (Hiding, "scenarios_shown >= 2", SILENT),
        (Textless, "texts_shown >= 2", "1 of 2 scenarios showed no text, and others did"),
    ],
)
def test_a_scenario_that_shows_nothing_does_not_vanish_behind_a_pass(
    kind: type[Hiding], missing: str, told: str, tmp_path: Path
):
    subject = kind(as_it_is)
    report = Checker(subject, ONLY_TOKENS, cases=tmp_path, work=(), each=None, guarded=False).check(SCENARIOS[:2], 3)
    assert verdict(report, "runs").missing == (missing,)
    assert report.verdict is Outcome.INCONCLUSIVE
    assert told in report.unseen


@pytest.mark.parametrize("channel", ["verify.hidden", "accept.index"])
def test_who_leaves_a_channel_out_in_some_scenarios_only_does_not_show_the_whole(channel: str, tmp_path: Path):
    class Choosing(EngineSubject):
        def channels(self, scenario: Scenario) -> frozenset[str]:
            shown = super().channels(scenario)
            return shown - {channel} if scenario == SCENARIOS[0] else shown

        def run(self, scenario: Scenario, script: Script) -> Trace:
            trace, shown = super().run(scenario, script), self.channels(scenario)
            return Trace(self.name, shown, tuple(one for one in trace.observations if one.channel in shown))

    whole, part = (Checker(one(), cases=tmp_path, guarded=False) for one in (EngineSubject, Choosing))
    assert whole.check(SCENARIOS[:2], 3).level == "whole"
    report = part.check(SCENARIOS[:2], 3)
    assert (report.findings, report.level) == ((), "tensors")
    assert f"{channel} shown in 1 of 2 scenarios only" in report.unseen
    assert Executor(Choosing()).examine(Order(number=0, scenario=SCENARIOS[0])).left_out == (channel,)


class Telling(Trace):
    """Says of its text what it is asked for."""

    lies: Trace

    def channel(self, name: str) -> Mapping[Key, Datum]:
        return self.lies.channel(name)


def _with_another_class(trace: Trace, right: Trace) -> Trace:
    told = Telling(trace.subject, trace.channels, trace.observations)
    object.__setattr__(told, "lies", right)
    return told


def _with_another_index(trace: Trace, right: Trace) -> Trace:
    told = Trace(trace.subject, trace.channels, trace.observations)
    vars(told).update(index=right.index, texts=right.texts)
    return told


@pytest.mark.parametrize("lie", [_with_another_class, _with_another_index])
def test_a_trace_is_what_was_observed_and_not_what_it_answers(lie: Callable[[Trace, Trace], Trace], tmp_path: Path):
    def wrong(right: Trace) -> Trace:
        seen = (
            one._replace(value=(0,) * len(one.value)) if one.channel == "accept.emitted" else one  # type: ignore[arg-type]
            for one in right.observations
        )
        return lie(replace(right, observations=tuple(seen)), right)

    checker = Checker(Retold(wrong), ONLY_TOKENS, cases=tmp_path, work=(), each=None, guarded=False)
    report = checker.check(SCENARIOS[:1], 3)
    assert verdict(report, "output.lossless").verdict is Outcome.FAIL
