"""What a step of a CI tells: summary, badge and annotations, of every verdict and of hostile text."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict
from draftproof.report.ci_step import CiStep, StepReport, amount, annotated, badge, summary
from tests.report.test_text import SEED_BUG


def failed(name: str) -> Verdict:
    return Verdict(name=name, verdict=Outcome.FAIL, scenarios=2, divergence=replace(SEED_BUG, contract=name))


def step(code: int = 1, output: str = "a\nlast\n\n", contracts: tuple[Verdict, ...] = (), **more: str) -> CiStep:
    return CiStep(**{"name": "x", "command": "draftproof check", **more}, code=code, output=output, contracts=contracts)


PASSED = Verdict(name="draft.ids", verdict=Outcome.PASS, scenarios=2)
LACKING = Verdict(name="tree.slots", verdict=Outcome.INCONCLUSIVE, scenarios=2, missing=("trees >= 1",))


@pytest.mark.parametrize(
    ("code", "verdict", "color"),
    [
        *((EXIT_CODES[one], one, "red") for one in (Outcome.FAIL, Outcome.ERROR, Outcome.CRASH, Outcome.HANG)),
        (0, Outcome.PASS, "brightgreen"),
        (125, Outcome.INCONCLUSIVE, "yellow"),
        (137, Outcome.CRASH, "red"),
    ],
)
def test_the_exit_code_is_the_verdict(code, verdict, color):
    made = badge(step(code))
    assert (step(code).verdict, made.message, made.color) == (verdict, str(verdict), color)
    assert made.is_error == (color == "red")
    levels = [line.split(" ")[0] for line in annotated(step(code))]
    assert levels == {"red": ["::error"], "yellow": ["::warning"], "brightgreen": []}[color]


def test_each_failure_is_told_once_and_what_lacked_something_in_a_table():
    page = summary(step(contracts=(failed("draft.positions"), PASSED, LACKING)))
    assert page.count("draft step 1, request 0, round 2") == 1
    assert "| `tree.slots` | INCONCLUSIVE | 2 | trees >= 1 |" in page
    assert "1 contract passed." in page
    assert "<details open><summary>Output (all)</summary>" in page
    assert "<details><summary>" in summary(step(0))


def test_no_more_annotations_than_are_shown():
    told = list(annotated(step(contracts=tuple(failed(f"draft.c{number}") for number in range(14)))))
    assert len(told) == 10
    assert told[-1].startswith("::error title=x%3A 5 more::draft.c9, draft.c10")


def test_what_was_printed_opens_nothing():
    output = "\n".join(["```", "<details>", "::error::x", *map(str, range(300))])
    page = summary(step(output=f"{output}\n````\n", name="a|<b>"))
    assert page.startswith("## a/&lt;b>: FAIL\n")
    assert "the last 120 of 304 lines" in page
    assert page.count("`````") == 2
    (line,) = annotated(step(output="50%\r::error::y", name="a:b,c"))
    assert line == "::error title=a%3Ab%2Cc%3A FAIL::::error::y%0Adraftproof check"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ('{"examples": 1, "seed": 3}', "1 scenario"),
        ('{"scenarios": 7}', "7 scenarios"),
        ('{"requests": 2, "counts": {}}', "2 requests"),
        ("{}", ""),
    ],
)
def test_how_much_was_run_is_read_of_every_report(report, said):
    assert amount(msgspec.json.decode(report, type=StepReport)) == said
    assert badge(step(0, amount=said)).message == ("PASS, " + said if said else "PASS")
