"""Intervals over seeds, sums over faults, and the page that has both lanes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from draftproof.cli.app import run
from draftproof.faults.baseline import Baseline
from draftproof.faults.catalogue import Fault, FaultFile
from draftproof.faults.matrix import FaultReport, FaultResult, Lanes, MadeWith, Spread, spread, totals, versions
from draftproof.faults.matrix_rows import Beside, tried, verdict_of
from draftproof.faults.orders import CLEAN, TaskResult
from draftproof.faults.trial import FaultOutcome, SeedResult
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.verdict import Outcome
from draftproof.report.matrix_page import interval_of, median_of, noticed, page, runs_of

SEEN = Baseline(output=False, acceptance=True, mean=0.6, expected=1.3, scenarios=4, changed=0)
CRASHED = Baseline(output=True, acceptance=True, mean=None, expected=1.3, scenarios=0, changed=0, crash="IndexError")


def row(name: str, outcome: FaultOutcome, counts: tuple[int | None, ...] = (3, 1, 2), **more: object) -> FaultResult:
    made = FaultResult(
        id=name,
        outcome=outcome,
        contract="accept.greedy",
        channel="accept.bonus",
        draft="eagle",
        examples_to_detect=counts,
        clean_twin=Outcome.PASS,
        examples=spread(counts),
        time=spread([None if count is None else count / 8 for count in counts]),
    )
    return msgspec.structs.replace(made, **more)


def report(*rows: FaultResult, device: str = "cpu") -> FaultReport:
    return FaultReport(
        verdict=verdict_of(rows),
        seeds=(0, 1, 2),
        examples=30,
        device=device,
        faults=rows,
        totals=totals(rows),
        versions=(MadeWith(package="torch", version="9.9"),),
    )


ROWS = (
    row("a", FaultOutcome.DETECTED, baseline=SEEN),
    row("b", FaultOutcome.SURVIVED, (4, None, None), baseline=CRASHED, explained="Nobody reads that buffer."),
    row("c", FaultOutcome.DETECTED_BY_OTHER),
    row("d", FaultOutcome.CRASHED),
)


@pytest.mark.parametrize(
    ("values", "median", "low", "high"),
    [
        ([7], 7, 7, 7),
        ([5, 1, 3, 2, 4], 3, 1, 5),
        ([1, 2, 3, None], 2.5, 1, None),
        ([1, None, None], None, 1, None),
        ([None, None], None, None, None),
        (list(range(1, 41)), 20.5, 2, 38),
        ([*range(1, 40), None], 20.5, 2, 38),
        ([], None, None, None),
    ],
)
def test_an_interval_is_of_order_statistics(values, median, low, high):
    """A seed that noticed nothing counts as infinite: nothing is interpolated with it."""
    assert spread(values) == Spread(median=median, low=low, high=high)


def test_intervals_in_words():
    assert (median_of(spread([1, 2])), interval_of(spread([1, 2]))) == ("1.5", "1..2")
    assert (median_of(spread([1, None, None])), interval_of(spread([1, None, None]))) == ("-", "1..∞")
    assert interval_of(spread([None])) == "-"


def test_runs_of_faults_are_counted_one_by_one():
    """A seed that noticed nothing is behind all that did."""
    tried = (FaultOutcome.DETECTED, (1, 3)), (FaultOutcome.SURVIVED, (None, 4)), (FaultOutcome.ABSENT, (None,))
    faults = tuple(row(str(number), *one) for number, one in enumerate(tried))
    assert runs_of(faults) == (4, 3, "3", "∞")
    assert runs_of(faults[:1]) == (2, 2, "1", "3")
    assert runs_of(faults[2:]) == (0, 0, "-", "-")


def test_sums_count_what_was_tried():
    untried = (row("e", FaultOutcome.ABSENT), row("f", FaultOutcome.STALE))
    sums = totals((*ROWS, *untried))
    assert (sums.faults, sums.detected, sums.noticed, sums.survived) == (4, 1, 3, 1)
    assert (sums.measured, sums.ours, sums.output, sums.acceptance, sums.either) == (2, 1, 1, 2, 2)


NAMELESS = row("g", FaultOutcome.DETECTED, named=False)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS, "1 of 4 detected as named, 3 noticed in all"),
        ((NAMELESS,), "1 of 1 noticed (it names no contract)"),
        ((NAMELESS, row("h", FaultOutcome.SURVIVED, named=False)), "1 of 2 noticed (they name no contract)"),
        ((*ROWS, NAMELESS), "1 of 4 detected as named, 4 noticed in all (1 fault without the name of a contract)"),
    ],
)
def test_a_fault_that_names_no_contract_is_not_detected_as_named(rows: tuple[FaultResult, ...], told: str):
    assert noticed(totals(rows)) == told


def test_the_page_holds_what_is_detected_as_named_against_what_names_a_contract():
    assert "| CPU | 5 | 1 (25.0 %) | 4 (80.0 %) | 1 (20.0 %) |" in page(Lanes(cpu=report(*ROWS, NAMELESS)))


@pytest.mark.parametrize(
    ("header", "named"),
    [({}, False), ({"contract": "draft.match"}, True), ({"channel": "propose.match"}, True)],
)
def test_a_row_knows_whether_its_fault_names_anything(header: dict[str, str], named: bool):
    file = FaultFile(fault=Fault(id="a", **header), text="engine/a.py\n-x = 1\n+x = 2\n", path="")
    seed = SeedResult(seed=0, outcome=FaultOutcome.DETECTED, examples=1, seconds=0.1)
    twin = TaskResult(id=CLEAN, seeds=(SeedResult(seed=0, outcome=FaultOutcome.SURVIVED),))
    assert tried(file, Beside(TaskResult(id="a", seeds=(seed,)), twin), None).named is named


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (FaultOutcome.DETECTED, Outcome.PASS),
        (FaultOutcome.CRASHED, Outcome.PASS),
        (FaultOutcome.ABSENT, Outcome.PASS),
        (FaultOutcome.DETECTED_BY_OTHER, Outcome.FAIL),
        (FaultOutcome.SURVIVED, Outcome.FAIL),
        (FaultOutcome.INERT, Outcome.ERROR),
        (FaultOutcome.STALE, Outcome.ERROR),
    ],
)
def test_a_fault_that_says_nothing_of_the_suite_is_an_error(outcome, verdict):
    assert verdict_of((ROWS[0], row("x", outcome))) is verdict
    assert verdict_of(()) is Outcome.INCONCLUSIVE


def test_an_unclean_twin_is_what_it_is():
    assert verdict_of((ROWS[0], row("x", FaultOutcome.DETECTED, clean_twin=Outcome.HANG))) is Outcome.HANG


def test_versions_are_of_packages_and_not_of_the_machine():
    assert {"python", "torch"} <= {made.package for made in versions()}


def test_a_report_is_read_as_it_was_written():
    made = report(*ROWS)
    assert decode(encode(made), FaultReport) == made


def test_the_page_has_both_lanes_side_by_side():
    gpu = report(
        row("a", FaultOutcome.DETECTED, whole=FaultOutcome.DETECTED),
        row("c", FaultOutcome.ABSENT, detail="not here"),
        device="cuda",
    )
    text = page(Lanes(cpu=report(*ROWS), gpu=gpu))
    cells = next(line.split(" | ") for line in text.splitlines() if line.startswith("| a |"))
    assert cells[4:9] == ["detected", "2", "1..3", "0.25", "0.12..0.38"]
    assert cells[9:11] == ["detected (in whole scenarios: detected)", "2"]
    assert cells[-2:] == ["unseen", "seen (0.600 for 1.300) |"]
    assert "| b | eagle | accept.greedy | accept.bonus | survived | - | 4..∞ |" in text
    assert "crash | crash |" in text
    absent = next(line for line in text.splitlines() if line.startswith("| c |"))
    assert absent.endswith("| - | - | - | - | - | - | - |")
    assert "- CPU: `b`: survived. Nobody reads that buffer." in text
    assert "`c`: absent" not in text
    assert "| CPU | 4 | 1 (25.0 %) | 3 (75.0 %) | 1 (25.0 %) |" in text
    assert "| GPU | 1 | 1 (100.0 %) |" in text
    assert "| each fault once | 2 | 1 (50.0 %) | 1 (50.0 %) | 2 (100.0 %) | 2 (100.0 %) |" in text
    assert f"version {STRATEGIES_VERSION}" in text


def test_the_page_is_written_from_reports(tmp_path: Path, capsys):
    cpu, gpu, out = tmp_path / "cpu.json", tmp_path / "gpu.json", tmp_path / "matrix.md"
    cpu.write_text(encode(report(*ROWS)))
    gpu.write_text(encode(report(*ROWS[:1], device="cuda")))
    assert run(["lab", "matrix", "--cpu", str(cpu), "--gpu", str(gpu), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("# Detection matrix")
    assert run(["lab", "matrix", "--cpu", str(gpu), "--out", str(out)]) == 2
    assert "expected a report of --device cpu, not cuda" in capsys.readouterr().err
    cpu.write_text("{")
    assert run(["lab", "matrix", "--cpu", str(cpu), "--out", str(out)]) == 2
    assert run(["lab", "matrix", "--cpu", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert "none': it cannot be read" in capsys.readouterr().err


def test_lanes_of_different_strategies_are_not_merged(tmp_path: Path, capsys):
    cpu, gpu, out = tmp_path / "cpu.json", tmp_path / "gpu.json", tmp_path / "matrix.md"
    cpu.write_text(encode(report(*ROWS)))
    older = msgspec.structs.replace(report(*ROWS[:1], device="cuda"), strategies=STRATEGIES_VERSION - 1)
    gpu.write_text(encode(older))
    assert run(["lab", "matrix", "--cpu", str(cpu), "--gpu", str(gpu), "--out", str(out)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"expected strategies version {STRATEGIES_VERSION}, which" in told
    assert f"not {STRATEGIES_VERSION - 1}; run the older one again" in told
    assert not out.exists()
