"""The detection matrix as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from math import ceil, inf
from statistics import median_low
from typing import NamedTuple

import jinja2

from draftproof.faults.baseline import Baseline
from draftproof.faults.matrix import UNTRIED, FaultResult, Lanes, Spread, Totals
from draftproof.faults.trial import FaultOutcome
from draftproof.report.numbers import plural


class Runs(NamedTuple):
    """How many faults met how many seeds, how many of these noticed them, and after how many scenarios."""

    tried: int
    noticed: int
    median: str
    high: str


_COLUMNS = ("", " examples", " 90 %", " seconds", " 90 %")


def page(lanes: Lanes) -> str:
    """Return the page; it depends on the reports only."""
    template = resources.files("draftproof.report").joinpath("matrix.md.j2").read_text(encoding="utf-8")
    made = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return made.from_string(template).render(
        lanes=lanes,
        columns=[lane + column for lane in lanes.reports for column in _COLUMNS],
        runs={lane: runs_of(report.faults) for lane, report in lanes.reports.items()},
        rows=[_row(lanes, name) for name in lanes.ids],
        odd=[
            (lane, fault)
            for lane, report in lanes.reports.items()
            for fault in report.faults
            if fault.outcome not in (FaultOutcome.DETECTED, FaultOutcome.ABSENT)
        ],
        share=lambda count, of: f"{count} ({100 * count / of:.1f} %)" if of else "-",
    )


def runs_of(faults: Sequence[FaultResult]) -> Runs:
    """Count the seeds of faults that were tried, and how soon each was noticed."""
    needed = sorted(
        inf if one is None else one
        for fault in faults
        if fault.outcome not in UNTRIED
        for one in fault.examples_to_detect
    )
    if not needed:
        return Runs(0, 0, "-", "-")
    middle, high = median_low(needed), needed[ceil(0.9 * len(needed)) - 1]
    noticed = sum(one < inf for one in needed)
    return Runs(len(needed), noticed, *("∞" if one == inf else f"{one:g}" for one in (middle, high)))


def _row(lanes: Lanes, name: str) -> tuple[str, ...]:
    found = lanes.of(name)
    fault = next(iter(found.values()))
    cells = [cell for lane in lanes.reports for cell in _lane_cells(found.get(lane))]
    return (name, fault.draft, fault.contract, fault.channel, *cells, *baseline_cells(lanes.baseline(name)))


def _lane_cells(fault: FaultResult | None) -> tuple[str, ...]:
    if fault is None or fault.outcome in UNTRIED:
        return ("stale" if fault and fault.outcome is FaultOutcome.STALE else "-", "-", "-", "-", "-")
    whole = f" (in whole scenarios: {fault.whole})" if fault.whole else ""
    examples = (median_of(fault.examples), interval_of(fault.examples))
    return (f"{fault.outcome}{whole}", *examples, median_of(fault.time, ".2f"), interval_of(fault.time, ".2f"))


def noticed(sums: Totals) -> str:
    """Say how many faults were detected as named, and how many noticed: what names no contract is only that."""
    if sums.unnamed and not sums.named:
        who = "it names" if sums.unnamed == 1 else "they name"
        return f"{sums.noticed} of {sums.faults} noticed ({who} no contract)"
    nameless = f" ({plural(sums.unnamed, 'fault')} without the name of a contract)" if sums.unnamed else ""
    return f"{sums.detected} of {sums.named} detected as named, {sums.noticed} noticed in all{nameless}"


def median_of(spread: Spread, form: str = "g") -> str:
    """Return the median, or a dash."""
    return "-" if spread.median is None else format(spread.median, form)


def interval_of(spread: Spread, form: str = "g") -> str:
    """Return the 90 % interval as LOW..HIGH."""
    ends = ("∞" if end is None else format(end, form) for end in (spread.low, spread.high))
    return "-" if spread.low is None else "..".join(ends)


def baseline_cells(baseline: Baseline | None) -> tuple[str, str]:
    """Return what the usual tests saw: output, acceptance."""
    if baseline is None:
        return "-", "-"
    if baseline.crash:
        return "crash", "crash"
    means = " for ".join("-" if mean is None else f"{mean:.3f}" for mean in (baseline.mean, baseline.expected))
    return "seen" if baseline.output else "unseen", f"{'seen' if baseline.acceptance else 'unseen'} ({means})"
