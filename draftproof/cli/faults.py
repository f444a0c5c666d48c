"""`draftproof faults`: the catalogue and the detection matrix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, matrix, screen
from draftproof.faults.catalogue import FaultFile, catalogue, find, read_fault, read_sources, refreshed
from draftproof.faults.matrix import FaultReport, FaultResult, Totals
from draftproof.faults.patching import StalePatchError, apply
from draftproof.faults.run import CLEAN, run_faults
from draftproof.faults.trial import FaultOutcome
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, worst
from draftproof.report.text import sentence

SEEDS, EXAMPLES = 5, 30
app = typer.Typer(help="Known bugs that can be brought back, and whether they are noticed.", no_args_is_help=True)
app.command("matrix")(matrix.matrix)

Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this fault (may be repeated).")]
Patches = Annotated[list[Path] | None, typer.Option("--patch", help="A fault file from anywhere (may be repeated).")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, help="How many seeds to try.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Most scenarios for each seed.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Only the faults that every CI run tries.")]
Usual = Annotated[
    bool, typer.Option("--usual", help="Also run what an engine's usual tests would: output, acceptance.")
]
Parallel = Annotated[
    int | None, typer.Option("--parallel", min=1, max=64, help="Faults at a time (2 on CPU, 12 on a GPU).")
]
Name = Annotated[str, typer.Argument(help="Its id.", metavar="ID")]


class Listed(Value, frozen=True, kw_only=True):
    """One fault as `faults list` shows it; `applies` is false for a stale one."""

    id: str
    patches: str
    contract: str
    channel: str
    draft: str
    source: str
    mechanism: str
    strategies: str
    smoke: bool
    explained: str
    applies: bool


class FaultList(Value, frozen=True, kw_only=True):
    faults: tuple[Listed, ...]


@app.command("list")
def list_(json: inputs.Json = None) -> None:
    """Every fault of the catalogue."""
    sources = read_sources()
    listed = tuple(_listed(file, sources) for file in catalogue().values())
    whole = ("patches", "draft", "contract", "channel")
    table = screen.table("id", *whole, "", whole=whole)
    for fault in listed:
        state = "" if fault.applies else "stale"
        table.add_row(fault.id, fault.patches, fault.draft, fault.contract, fault.channel, state)
    screen.console().print(table)
    inputs.write_json(json, FaultList(faults=listed))


@app.command()
def show(name: Name, json: inputs.Json = None) -> None:
    """One fault: what it is, where it comes from, and its diff."""
    file = find(name, catalogue())
    listed = _listed(file, read_sources())
    for field in ("id", "source", "mechanism", "patches", "draft", "contract", "channel", "strategies", "explained"):
        if value := getattr(listed, field):
            screen.line(f"{field}: {value}")
    if not listed.applies:
        screen.line("stale: it does not apply to these sources; try `draftproof faults refresh`")
    screen.line(f"\n{file.diff.rstrip()}\n")
    screen.line(f"Try it: draftproof faults run --id {file.fault.id}")
    inputs.write_json(json, FaultList(faults=(listed,)))


@app.command()
def run(
    id_: Ids = None,
    patch: Patches = None,
    smoke: Smoke = False,
    seed: inputs.Seed = 0,
    seeds: Seeds = SEEDS,
    examples: Examples = EXAMPLES,
    device: inputs.Device = "cpu",
    usual: Usual = False,
    parallel: Parallel = None,
    json: inputs.Json = None,
) -> None:
    """Bring faults back, one process each, and see who notices after how many scenarios."""
    files = _chosen(id_ or [], patch or [], smoke)
    inputs.device(device)
    with screen.progress("faults", len(files)) as advance:
        numbers = range(seed, seed + seeds)
        done = lambda name: advance() if not name.startswith(CLEAN) else None  # noqa: E731
        report = run_faults(files, numbers, examples, device=device, usual=usual, parallel=parallel, progress=done)
    which = [*(part for name in id_ or () for part in ("--id", name)), *(["--smoke"] if smoke else [])]
    which += [part for path in patch or () for part in ("--patch", str(path))]
    numbers_too = ["--seed", str(seed), "--seeds", str(seeds), "--examples", str(examples), "--device", device]
    again = ["draftproof", "faults", "run", *which, *numbers_too, *(["--usual"] if usual else [])]
    _show_report(report, shlex.join(again))
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _chosen(ids: list[str], patches: list[Path], smoke: bool) -> list[FaultFile]:
    """The faults that were named, or all. Raises InputError, PatchError or UnknownFaultError."""
    known = catalogue()
    files = [find(name, known) for name in dict.fromkeys(ids)] + [read_fault(path) for path in patches]
    if smoke and files:
        raise inputs.InputError("--smoke is given, allowed: without --id and --patch")
    files = files or [file for file in known.values() if file.fault.smoke or not smoke]
    if len({file.fault.id for file in files}) < len(files):
        raise inputs.InputError("two of the faults have the same id")
    return files


@app.command()
def refresh() -> None:
    """Bring the line numbers of stale faults up to date, where their lines still are there once."""
    sources, failed = read_sources(), 0
    for file in catalogue().values():
        try:
            text = refreshed(file, sources)
        except StalePatchError as error:
            failed += 1
            screen.line(f"stale {file.fault.id}: {error}", "red")
            continue
        if text is not None:
            Path(file.path).write_text(text, encoding="utf-8")
            screen.line(f"refreshed {file.fault.id}")
    if failed:
        raise inputs.InputError(f"{failed} faults are stale: their lines are gone, or there more than once")


def _listed(file: FaultFile, sources: dict[str, str]) -> Listed:
    fault = file.fault
    return Listed(
        id=fault.id,
        patches=fault.patches,
        contract=fault.contract,
        channel=fault.channel,
        draft=fault.draft,
        source=fault.source,
        mechanism=" ".join(fault.mechanism.split()),
        strategies=fault.strategies,
        smoke=fault.smoke,
        explained=fault.explained,
        applies=_applies(file, sources),
    )


def _applies(file: FaultFile, sources: dict[str, str]) -> bool:
    hunks = file.hunks()
    try:
        for path in {hunk.path for hunk in hunks}:
            apply(sources.get(path, ""), [hunk for hunk in hunks if hunk.path == path])
    except StalePatchError:
        return False
    return True


def _show_report(report: FaultReport, again: str) -> None:
    columns = ("fault", "outcome", "contract", "channel", "examples", "median", "90 %", "seconds")
    table = screen.table(*columns, right=("median", "seconds"))
    for fault in report.faults:
        table.add_row(*_cells(fault))
    screen.console().print(table)
    if report.totals.measured:
        _show_usual(report)
    for fault in report.faults:
        _show_fault(fault, brief=len(report.faults) > 3)
    _show_totals(report.totals)
    screen.line(f"strategies: version {report.strategies}, {len(report.changes)} changes forced by faults")
    twins: list[Outcome] = [fault.clean_twin for fault in report.faults if fault.clean_twin is not Outcome.SKIP]
    clean = worst(twins) if twins else "none"
    screen.line(f"{report.verdict}: {len(report.faults)} faults, clean twin {clean}. Again: {again}", "bold")


def _show_usual(report: FaultReport) -> None:
    table = screen.table("beside it, the usual tests", "output", "mean acceptance")
    for fault in report.faults:
        if fault.usual is not None:
            table.add_row(fault.id, *matrix.usual_cells(fault.usual))
    screen.console().print(table)


def _cells(fault: FaultResult) -> tuple[str, ...]:
    counts = " ".join("-" if count is None else str(count) for count in fault.examples_to_detect)
    median, interval = matrix.median_of(fault.examples), matrix.interval_of(fault.examples)
    seconds = matrix.median_of(fault.time, ".2f")
    return (fault.id, fault.outcome.value, fault.contract, fault.channel, counts, median, interval, seconds)


def _show_totals(totals: Totals) -> None:
    screen.line(f"{totals.detected} of {totals.faults} detected as named, {totals.noticed} noticed in all")
    if of := totals.measured:
        seen = f"output {totals.output}, mean acceptance {totals.acceptance}, either {totals.either}"
        screen.line(f"of {of} that met the usual tests, too: ours {totals.ours}, {seen}")


def _show_fault(fault: FaultResult, brief: bool) -> None:
    """What noticed a fault; of many only what is odd."""
    if fault.divergence is not None and (not brief or fault.outcome is not FaultOutcome.DETECTED):
        found = fault.divergence
        screen.line(f"{fault.id}: FAIL {found.contract}: {sentence(found, fault.output_changed)}")
    if fault.detail and not (brief and fault.outcome is FaultOutcome.ABSENT):
        screen.line(f"{fault.id}: {fault.outcome.value}: {fault.detail}")
    if fault.inert_hunks and fault.outcome is not FaultOutcome.STALE:
        screen.line(f"{fault.id}: never had an effect: {', '.join(fault.inert_hunks)}")
