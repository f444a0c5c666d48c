"""`draftproof faults matrix`: the reports of both lanes side by side, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from draftproof.cli import inputs, screen
from draftproof.faults.baseline import Usual
from draftproof.faults.matrix import UNTRIED, FaultReport, FaultResult, Spread, Totals, totals
from draftproof.faults.trial import FaultOutcome
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import decode
from draftproof.properties.values.validate import InvalidScenarioError

Lane = Annotated[Path, typer.Option("--cpu", help="What `faults run --json` wrote on a CPU.", dir_okay=False)]
OtherLane = Annotated[Path | None, typer.Option("--gpu", help="What it wrote with --device cuda.", dir_okay=False)]
Out = Annotated[Path, typer.Option("--out", help="The page to write.", dir_okay=False)]

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


def matrix(cpu: Lane, gpu: OtherLane = None, out: Out = Path("docs/matrix.md"), json: inputs.Json = None) -> None:
    """Write the detection matrix of one lane or two as a page of Markdown."""
    lanes = Lanes(cpu=_read(cpu, "cpu"), gpu=_read(gpu, "cuda") if gpu else None)
    try:
        out.write_text(page(lanes), encoding="utf-8")
    except OSError as error:
        raise inputs.InputError(f"--out is {out}, which cannot be written: {error.strerror}") from None
    screen.line(f"wrote {out}: {len(lanes.ids)} faults")
    inputs.write_json(json, lanes)


class Lanes(Value, frozen=True, kw_only=True):
    """The same catalogue on the CPU (host graphs, eager engine, interpreted kernels) and on a GPU, if it ran there."""

    cpu: FaultReport
    gpu: FaultReport | None = None

    @property
    def reports(self) -> dict[str, FaultReport]:
        """Name of the lane -> its report."""
        return {"CPU": self.cpu, **({"GPU": self.gpu} if self.gpu else {})}

    @property
    def ids(self) -> tuple[str, ...]:
        """Every fault of any lane, sorted."""
        return tuple(sorted({fault.id for report in self.reports.values() for fault in report.faults}))

    @property
    def once(self) -> Totals:
        """Sums in which every fault counts once: noticed if it is in each lane that tried it."""
        return totals([self._one(name) for name in self.ids])

    def _one(self, name: str) -> FaultResult:
        """A fault at its worst lane, with what the usual tests saw of it anywhere."""
        found = list(self.of(name).values())
        tried = [one for one in found if one.outcome not in UNTRIED] or found
        least = next((one for one in tried if not one.noticed), tried[0])
        return msgspec.structs.replace(least, usual=self.usual(name))

    def usual(self, name: str) -> Usual | None:
        """What the usual tests saw of a fault, in the first lane where they ran."""
        return next((one.usual for one in self.of(name).values() if one.usual), None)

    def of(self, name: str) -> dict[str, FaultResult]:
        """Lane -> the row of a fault, where there is one."""
        found = {lane: {one.id: one for one in report.faults} for lane, report in self.reports.items()}
        return {lane: rows[name] for lane, rows in found.items() if name in rows}


def _read(path: Path, device: str) -> FaultReport:
    try:
        report = decode(path.read_bytes(), FaultReport, name=str(path))
    except OSError as error:
        raise inputs.InputError(f"{path} cannot be read: {error.strerror}") from None
    if report.device != device:
        raise InvalidScenarioError(f"{path}: device is {report.device!r}, allowed: {device}")
    return report


def page(lanes: Lanes) -> str:
    """The page; a function of the reports only."""
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
        yield _row(name, any_lane.draft, any_lane.contract, any_lane.channel, *cells, *usual_cells(lanes.usual(name)))


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
    """The median, or a dash."""
    return "-" if spread.median is None else format(spread.median, form)


def interval_of(spread: Spread, form: str = "g") -> str:
    """The 90 % interval: LOW..HIGH."""
    ends = ("∞" if end is None else format(end, form) for end in (spread.low, spread.high))
    return "-" if spread.low is None else "..".join(ends)


def usual_cells(usual: Usual | None) -> tuple[str, str]:
    """What the usual tests saw: output, acceptance."""
    if usual is None:
        return "-", "-"
    if usual.crash:
        return "crash", "crash"
    means = " for ".join("-" if mean is None else f"{mean:.3f}" for mean in (usual.mean, usual.expected))
    return "seen" if usual.output else "unseen", f"{'seen' if usual.acceptance else 'unseen'} ({means})"


def _odd(lanes: Lanes) -> Iterator[str]:
    """What each lane did not detect as named, and why."""
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
