"""What `draftproof check` prints: a line a group, every exception, and everything if asked."""

from __future__ import annotations

import re

import msgspec
import pytest

from draftproof.cli import inputs, screen
from draftproof.cli.advice import advice
from draftproof.cli.check import show
from draftproof.cli.subjects import UnderTest
from draftproof.harness.check import CheckFinding, CheckReport, unless_skipped
from draftproof.properties.contracts.registry import ALL, CONTRACTS_BY_NAME
from draftproof.properties.kernels.table import KERNEL_CONTRACTS
from draftproof.properties.lib.names import group_of
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome, Verdict
from tests.harness.doubles import diverging

FIRST = diverging(got=6)


def verdict(name: str, outcome: Outcome = Outcome.PASS, **more) -> Verdict:
    return Verdict(name=name, verdict=outcome, scenarios=7, **more)


def report(*verdicts: Verdict, outcome: Outcome, findings: tuple[CheckFinding, ...] = ()) -> CheckReport:
    counts = {"rounds": 12, "accept_all": 3, "rare_thing": 1}
    return CheckReport(
        verdict=outcome, seed=1, examples=7, contracts=verdicts, counts=counts, drafts={}, findings=findings
    )


PASSING = (verdict("draft.ids"), verdict("draft.positions"), verdict("pool.owned", Outcome.SKIP, reason="no pool"))


@pytest.fixture
def printed(capsys):
    def run(*verdicts: Verdict, verbose: bool = False, **more) -> list[str]:
        show(report(*verdicts, **more), 1.0, "draftproof check", {}, verbose=verbose)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return run


def test_a_passing_check_is_a_line_a_group(printed):
    lines = printed(*PASSING, outcome=Outcome.PASS)
    assert [line.split(maxsplit=1) for line in lines[2:4]] == [["draft", "2 PASS"], ["pool", "1 SKIP"]]
    assert "exercised: rounds 12, accept_all 3; all 3 counts with --verbose" in lines
    assert not [line for line in lines if "draft.ids" in line or "no pool" in line or "rare_thing" in line]
    assert lines[-1] == "PASS: 7 scenarios in 1.0 s. Again: draftproof check"


def test_everything_is_listed_if_asked_for(printed):
    lines = printed(*PASSING, outcome=Outcome.PASS, verbose=True)
    for name in ("draft.ids", "draft.positions", "pool.owned"):
        assert [line for line in lines if line.startswith(f"{name} ")]
    assert [line for line in lines if "no pool" in line]
    assert [line for line in lines if "rare_thing" in line]


def test_what_happened_is_listed_in_shares_of_scenarios(capsys):
    of = msgspec.structs.replace(
        report(*PASSING, outcome=Outcome.PASS),
        examples=50,
        shares={"tree": {"topk above 1": 3}, "adaptive steps": {"up": 20, "and back": 0}, "stop": {"in the run": 0}},
    )
    show(of, 1.0, "draftproof check", {}, verbose=True)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("what happened ")] != []
    assert [
        re.split(r" {2,}", line, maxsplit=1)[1]
        for line in lines
        if line.startswith(("tree ", "adaptive steps ", "stop "))
    ] == [
        "topk above 1 6",
        "up 40, and back 0",
    ]
    show(of, 1.0, "draftproof check", {}, verbose=False)
    assert "topk above 1" not in capsys.readouterr().out


def test_every_exception_is_listed(printed):
    short = verdict("runs.mtp", Outcome.INCONCLUSIVE, missing=("blocks >= 1",))
    crash = verdict("kernel.rope", Outcome.CRASH, reason="IndexError: 9")
    lines = printed(*PASSING, short, crash, outcome=Outcome.CRASH)
    assert [line.split() for line in lines if line.startswith("runs.mtp")] == [
        ["runs.mtp", "INCONCLUSIVE", "7", *["not", "enough", "was", "exercised:", "blocks", ">=", "1"]]
    ]
    assert [line for line in lines if line.startswith("kernel.rope") and line.endswith("IndexError: 9")]
    assert [line.split(maxsplit=1) for line in lines[2:6]][2:] == [["runs", "1 INCONCLUSIVE"], ["kernel", "1 CRASH"]]


def test_a_failure_has_a_line_for_each_of_its_sides(printed):
    failing = verdict("draft.positions", Outcome.FAIL, divergence=FIRST)
    finding = CheckFinding(identity="x", verdict=Outcome.FAIL, scenario=3, case="a case.json", first=FIRST)
    lines = printed(verdict("draft.ids"), failing, outcome=Outcome.FAIL, findings=(finding,))
    assert [line.split(maxsplit=1) for line in lines if line.startswith("draft ")] == [["draft", "1 FAIL, 1 PASS"]]
    assert [line for line in lines if line.startswith("FAIL draft.positions: draft step 1, request 0, round 1")]
    assert "FAIL in scenario 3, first of all:" in lines
    block = lines[lines.index("FAIL in scenario 3, first of all:") + 1 :]
    starts = [line.split()[0] for line in block]
    assert starts[:5] == ["FAIL", "what", "where", "expected", "got"]
    assert [line.split(maxsplit=1) for line in block if line.startswith("  replay")] == [
        ["replay", "draftproof replay 'a case.json'"]
    ]


def test_a_failure_is_replayed_on_the_subject_that_it_was_found_with(capsys):
    finding = CheckFinding(identity="x", verdict=Outcome.CRASH, scenario=3, case="case.json", detail="gone")
    of_cases = UnderTest(SubjectChoice(name="mine:Mine"), "cpu", is_named=True).of_cases
    show(report(outcome=Outcome.CRASH, findings=(finding,)), 1.0, "draftproof check", of_cases, verbose=False)
    assert "draftproof replay case.json --subject mine:Mine\n" in capsys.readouterr().out


def test_a_pass_by_the_text_alone_says_that_no_draft_was_seen(printed, capsys):
    told = "no draft was seen, so nothing is said of drafting"
    seen = msgspec.structs.replace(report(*PASSING, outcome=Outcome.PASS), level="text", unseen=(told,))
    show(seen, 1.0, "draftproof check", {}, verbose=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"PASS at the level of text: {told}: 7 scenarios in 1.0 s. Again: draftproof check"


def test_scenarios_that_showed_nothing_are_told(capsys):
    short = verdict("runs", Outcome.INCONCLUSIVE, missing=("scenarios_shown >= 7",))
    told = "3 of 7 scenarios showed nothing"
    seen = msgspec.structs.replace(report(*PASSING, short, outcome=Outcome.INCONCLUSIVE), unseen=(told,))
    show(seen, 1.0, "draftproof check", {}, verbose=False)
    assert capsys.readouterr().out.splitlines()[-2] == f"Nothing failed, but {told}."


def test_the_last_line_says_in_how_many_scenarios_a_feature_was_in_effect(capsys):
    short = verdict("runs", Outcome.INCONCLUSIVE, missing=("window_rounds or window_drafts >= 1",))
    seen = report(*PASSING, short, outcome=Outcome.INCONCLUSIVE)
    seen = msgspec.structs.replace(seen, features={"preemption": 3, "windows": 0}, together=0)
    show(seen, 1.0, "draftproof check", {}, verbose=False)
    *_, lacking, _more, last = capsys.readouterr().out.splitlines()
    assert lacking == "Of 7 scenarios none that they judge had window_rounds or window_drafts (runs)."
    assert last.startswith(
        "INCONCLUSIVE: 7 scenarios (in effect: preemption in 3, windows in 0, together in 0) in 1.0 s."
    )


def test_a_contract_that_was_asked_for_and_judged_nothing_is_told_with_the_reason(capsys):
    show(report(*PASSING, outcome=Outcome.INCONCLUSIVE), 1.0, "draftproof check", {}, verbose=False)
    assert "pool.owned judged nothing: no pool." in capsys.readouterr().out.splitlines()


def test_of_a_group_that_was_asked_for_something_has_to_be_judged():
    """Of a contract that was asked for alone, too; what else is skipped is told in the table."""
    passed = report(*PASSING, outcome=Outcome.PASS)
    for names, expected in (
        ([], Outcome.PASS),
        (["draft"], Outcome.PASS),
        (["draft.ids", "draft"], Outcome.PASS),
        (["pool.owned"], Outcome.INCONCLUSIVE),
        (["draft", "pool"], Outcome.INCONCLUSIVE),
    ):
        assert unless_skipped(passed, names).verdict is expected


def test_contracts_are_named_alone_and_by_their_group():
    of_traces, of_kernels = inputs.contracts(["draft", "overlap.pages", "kernel.rope"])
    assert {one.name for one in of_traces} == {
        *(name for name in CONTRACTS_BY_NAME if group_of(name) == "draft"),
        "overlap.pages",
    }
    assert of_kernels == ("kernel.rope",)
    assert inputs.contracts(["kernel"]) == ((), KERNEL_CONTRACTS)
    assert inputs.contracts(None) == (ALL, KERNEL_CONTRACTS)


@pytest.mark.parametrize(("examples", "advised"), [(7, 30), (12, 50), (240, 730)])
def test_inconclusive_says_what_was_lacking_and_how_many_scenarios_most_likely_have_it(
    examples: int, advised: int, capsys
):
    names = ("runs", "draft.ids", "verify.ids")
    short = [verdict(name, Outcome.INCONCLUSIVE, missing=("rare_thing >= 1",)) for name in names]
    short = [msgspec.structs.replace(one, scenarios=examples) for one in short]
    tied = verdict("output.lossless", Outcome.INCONCLUSIVE, missing=("token_ties <= 20 per 1000 tokens",))
    few = msgspec.structs.replace(report(*short, tied, outcome=Outcome.INCONCLUSIVE), examples=examples)
    show(few, 1.0, "draftproof check", {}, verbose=False)
    *_, meaning, lacking, more, ties, _last = capsys.readouterr().out.splitlines()
    assert meaning == "This is not a failure: 4 verdicts rest on too little."
    assert lacking == f"Of {examples} scenarios none that they judge had rare_thing (runs and 2 more)."
    assert more.startswith(f"For a conclusion use --examples {advised}, which has each of these most likely")
    assert ties == "More examples hardly help where token_ties <= 20 per 1000 tokens is asked for (output.lossless)."


def test_contracts_that_no_scenario_concerns_are_told_so():
    idle = verdict("rank.idle", Outcome.INCONCLUSIVE, missing=("idle_launches >= 1", "scenarios >= 1"))
    _meaning, *told = advice([msgspec.structs.replace(idle, scenarios=0)], 3)
    assert told[0] == "Of 3 scenarios none concerns rank.idle."
    assert "use --examples 20," in told[1]


def test_what_few_scenarios_were_judged_for_takes_as_many_more():
    one = msgspec.structs.replace(verdict("runs.mtp", Outcome.INCONCLUSIVE, missing=("accept_all >= 1",)), scenarios=2)
    assert any("--examples 120," in told for told in advice([one], 20))


def test_what_a_kernel_meets_is_called_calls(capsys):
    verdicts = [Verdict(name=name, verdict=Outcome.PASS, scenarios=12) for name in ("kernel.rope", "draft.positions")]
    screen.show_verdicts(verdicts)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[-2:] == [["kernel.rope", "PASS", "12", "calls"], ["draft.positions", "PASS", "12"]]
