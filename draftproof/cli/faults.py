"""`draftproof faults`: the catalogue and the detection matrix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.cli.wording import sentence
from draftproof.fuzz.catalogue import FaultFile, catalogue, find, read_fault, read_sources, refreshed
from draftproof.fuzz.faults import CLEAN, FaultReport, FaultResult, run_faults
from draftproof.fuzz.patching import Stale, apply
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, worst

SEEDS, EXAMPLES = 5, 30
app = typer.Typer(help="Known bugs that can be brought back, and whether they are noticed.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this fault (may be repeated).")]
Patches = Annotated[list[Path] | None, typer.Option("--patch", help="A fault file from anywhere (may be repeated).")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, help="How many seeds to try.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Most scenarios for each seed.")]
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
    applies: bool


class FaultList(Value, frozen=True, kw_only=True):
    faults: tuple[Listed, ...]


@app.command("list")
def list_(json: inputs.Json = None) -> None:
    """Every fault of the catalogue."""
    sources = read_sources()
    listed = tuple(_listed(file, sources) for file in catalogue().values())
    table = screen.table("id", "patches", "draft", "contract", "channel", "source", "")
    for fault in listed:
        state = "" if fault.applies else "stale"
        table.add_row(fault.id, fault.patches, fault.draft, fault.contract, fault.channel, fault.source, state)
    screen.console().print(table)
    inputs.write_json(json, FaultList(faults=listed))


@app.command()
def show(name: Name, json: inputs.Json = None) -> None:
    """One fault: what it is, where it comes from, and its diff."""
    file = find(name, catalogue())
    listed = _listed(file, read_sources())
    for field in ("id", "source", "mechanism", "patches", "draft", "contract", "channel", "strategies"):
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
    seed: inputs.Seed = 0,
    seeds: Seeds = SEEDS,
    examples: Examples = EXAMPLES,
    device: inputs.Device = "cpu",
    json: inputs.Json = None,
) -> None:
    """Bring faults back, one process each, and see who notices after how many scenarios."""
    known = catalogue()
    files = [find(name, known) for name in dict.fromkeys(id_ or ())] + [read_fault(path) for path in patch or ()]
    files = files or list(known.values())
    if len({file.fault.id for file in files}) < len(files):
        raise inputs.BadInput("two of the faults have the same id")
    inputs.device(device)
    with screen.progress("faults", len(files)) as advance:
        numbers = range(seed, seed + seeds)
        done = lambda name: advance() if name != CLEAN else None  # noqa: E731
        report = run_faults(files, numbers, examples, device=device, progress=done)
    _show_report(report, _again(id_, patch, seed, seeds, examples, device))
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


@app.command()
def refresh() -> None:
    """Bring the line numbers of stale faults up to date, where their lines still are there once."""
    sources, failed = read_sources(), 0
    for file in catalogue().values():
        try:
            text = refreshed(file, sources)
        except Stale as error:
            failed += 1
            screen.line(f"stale {file.fault.id}: {error}", "red")
            continue
        if text is not None:
            Path(file.path).write_text(text, encoding="utf-8")
            screen.line(f"refreshed {file.fault.id}")
    if failed:
        raise inputs.BadInput(f"{failed} faults are stale: their lines are gone, or there more than once")


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
        applies=_applies(file, sources),
    )


def _applies(file: FaultFile, sources: dict[str, str]) -> bool:
    hunks = file.hunks()
    try:
        for path in {hunk.path for hunk in hunks}:
            apply(sources.get(path, ""), [hunk for hunk in hunks if hunk.path == path])
    except Stale:
        return False
    return True


def _again(ids: list[str] | None, patches: list[Path] | None, seed: int, seeds: int, examples: int, device: str) -> str:
    parts = ["draftproof", "faults", "run"]
    for name in ids or ():
        parts += ["--id", name]
    for path in patches or ():
        parts += ["--patch", str(path)]
    parts += ["--seed", str(seed), "--seeds", str(seeds), "--examples", str(examples), "--device", device]
    return shlex.join(parts)


def _show_report(report: FaultReport, again: str) -> None:
    columns = ("fault", "outcome", "draft", "contract", "channel", "examples to detect", "median")
    table = screen.table(*columns, right=("median",))
    for fault in report.faults:
        counts = " ".join("-" if count is None else str(count) for count in fault.examples_to_detect)
        median = "-" if fault.median is None else f"{fault.median:g}"
        table.add_row(fault.id, fault.outcome.value, fault.draft, fault.contract, fault.channel, counts, median)
    screen.console().print(table)
    for fault in report.faults:
        _show_fault(fault, brief=len(report.faults) > 3)
    twins: list[Outcome] = [fault.clean_twin for fault in report.faults if fault.clean_twin is not Outcome.SKIP]
    clean = worst(twins) if twins else "none"
    screen.line(f"{report.verdict}: {len(report.faults)} faults, clean twin {clean}. Again: {again}", "bold")


def _show_fault(fault: FaultResult, brief: bool) -> None:
    """What noticed a fault; of many only what is odd."""
    if fault.divergence is not None and (not brief or fault.outcome.value != "detected"):
        found = fault.divergence
        screen.line(f"{fault.id}: FAIL {found.contract}: {sentence(found, fault.output_changed)}")
    if fault.detail:
        screen.line(f"{fault.id}: {fault.outcome.value}: {fault.detail}")
    if fault.inert_hunks and fault.outcome.value != "stale":
        screen.line(f"{fault.id}: never had an effect: {', '.join(fault.inert_hunks)}")
