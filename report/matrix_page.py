"""The detection matrix as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.faults.baseline import Baseline
from draftproof.faults.lanes import Lanes
from draftproof.faults.matrix import FaultResult, Spread, Totals
from draftproof.faults.trial import FaultOutcome

_COLUMNS = ("examples", "90 %", "seconds", "90 %")
_ABOUT = """\
A fault is a known bug, brought back by a small patch. It meets the scenarios of each seed, in their order, until the
contract that its header names fails in the channel that it names: **detected**. What else notices it counts as
*detected_by_other*, a crash as *crashed*, a silence as *hung*. A fault counts as what it is at its worst seed.

**Examples** is how many scenarios (calls of its kernel, for a fault of a Triton kernel on the CPU) ran until then,
**seconds** what they took in the subject and in judging; the reference is solved before, once for all faults. Both are
medians over seeds, with the least value that 5 % of the seeds do not exceed and the least that 95 % do not; a seed that
noticed nothing counts as infinite.

**Output** and **acceptance** are what the usual tests of an engine see of the same fault, on as many scenarios as all
seeds have together, unsteered and without taps, with drafts that agree with the target by share: whether a text
differs from plain greedy decoding, and whether the mean number of accepted drafts a round is more than 5 % off that of
the clean twin. A crash counts as seen by both. Faults of Triton kernels meet these tests on a GPU, all others on the
CPU.
"""


def page(lanes: Lanes) -> str:
    """Return the page; it depends on the reports only."""
    parts = (
        "# Detection matrix\n\nWritten by `make matrix`; see CONTRIBUTING.md for a GPU's lane.",
        _ABOUT.rstrip(),
        "## In all\n\n" + _lines(_sums(lanes)),
        "## Made with\n\n" + _lines(_made(lanes)),
        "## Faults\n\n" + _lines(_rows(lanes)),
        "## Not detected as named\n\n" + (_lines(_odd(lanes)) or "None."),
        "## What faults changed in the strategies\n\n" + _lines(_changes(lanes)),
    )
    return "\n\n".join(parts) + "\n"


def _lines(lines: Iterator[str]) -> str:
    return "\n".join(lines)


def _table(*header: str) -> Iterator[str]:
    yield _row(*header)
    yield _row(*("---" for _ in header))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sums(lanes: Lanes) -> Iterator[str]:
    yield from _table("lane", "faults", "detected as named", "noticed", "survived")
    for lane, report in lanes.reports.items():
        sums = report.totals
        shares = (_share(count, sums.faults) for count in (sums.detected, sums.noticed, sums.survived))
        yield _row(lane, str(sums.faults), *shares)
    yield ""
    yield from _table("lane", "faults that met both", "ours", "output", "mean acceptance", "either of the usual two")
    for lane, report in lanes.reports.items():
        yield _row(lane, str(report.totals.measured), *_seen(report.totals))
    if len(lanes.reports) > 1:
        yield _row("each fault once", str(lanes.once.measured), *_seen(lanes.once))


def _seen(sums: Totals) -> Iterator[str]:
    for count in (sums.ours, sums.output, sums.acceptance, sums.either):
        yield _share(count, sums.measured)


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.1f} %)" if of else "-"


def _made(lanes: Lanes) -> Iterator[str]:
    yield from _table("lane", "verdict", "strategies", "seeds", "examples a seed", "versions")
    for lane, report in lanes.reports.items():
        used = ", ".join(f"{made.package} {made.version}" for made in report.versions)
        seeds = ", ".join(map(str, report.seeds))
        yield _row(lane, report.verdict, f"version {report.strategies}", seeds, str(report.examples), used)


def _rows(lanes: Lanes) -> Iterator[str]:
    names = list(lanes.reports)
    heads = [f"{lane} {column}" for lane in names for column in ("", *_COLUMNS)]
    yield from _table(
        "fault", "draft", "contract", "channel", *(head.strip() for head in heads), "output", "acceptance"
    )
    for name in lanes.ids:
        found = lanes.of(name)
        any_lane = next(iter(found.values()))
        cells = [cell for lane in names for cell in _lane_cells(found.get(lane))]
        yield _row(
            name, any_lane.draft, any_lane.contract, any_lane.channel, *cells, *baseline_cells(lanes.baseline(name))
        )


def _lane_cells(fault: FaultResult | None) -> tuple[str, ...]:
    if fault is None or fault.outcome in (FaultOutcome.ABSENT, FaultOutcome.STALE):
        return ("-" if fault is None or fault.outcome is FaultOutcome.ABSENT else "stale", *("-" for _ in _COLUMNS))
    whole = f" (in whole scenarios: {fault.whole})" if fault.whole else ""
    examples, seconds = fault.examples, fault.time
    return (
        f"{fault.outcome}{whole}",
        median_of(examples),
        interval_of(examples),
        median_of(seconds, ".2f"),
        interval_of(seconds, ".2f"),
    )


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


def _odd(lanes: Lanes) -> Iterator[str]:
    """Return what each lane did not detect as named, and why."""
    fine = (FaultOutcome.DETECTED, FaultOutcome.ABSENT)
    for lane, report in lanes.reports.items():
        for fault in report.faults:
            if fault.outcome not in fine:
                why = fault.explained or fault.detail.strip().partition("\n")[0] or "not explained"
                yield f"- {lane}: `{fault.id}`: {fault.outcome}. {why}"


def _changes(lanes: Lanes) -> Iterator[str]:
    yield f"Version {lanes.cpu.strategies} of the strategies stands on these changes, each forced by a fault:"
    yield ""
    for change in lanes.cpu.changes:
        yield f"- `{change.fault}`: {change.text}"
