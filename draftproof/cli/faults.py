"""`draftproof faults`: the catalogue of faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.cli.faults_run import run
from draftproof.cli.matrix import matrix

app = typer.Typer(help="Bring known bugs back and see whether they are noticed.", no_args_is_help=True)
app.command("run")(run)
app.command("matrix")(matrix)

FaultName = Annotated[str, typer.Argument(help="The id of a fault.", metavar="ID")]
_FIELDS = ("id", "source", "mechanism", "patches", "draft", "contract", "channel", "strategies", "explained")


@app.command("list")
def list_(json: inputs.Json = None) -> None:
    """List every fault of the catalogue."""
    from draftproof.faults.catalogue import catalogue, read_sources
    from draftproof.faults.summary import FaultList, summary

    sources = read_sources()
    listed = tuple(summary(file, sources) for file in catalogue().values())
    shown = ("id", "patches", "draft", "contract", "channel")
    rows = [(*(getattr(fault, field) for field in shown), "" if fault.applies else "stale") for fault in listed]
    screen.columns([(*shown, ""), *rows])
    inputs.write_json(json, FaultList(faults=listed))


@app.command()
def show(name: FaultName, json: inputs.Json = None) -> None:
    """Show one fault: what it does, where it comes from, and its diff."""
    from draftproof.faults.catalogue import catalogue, find, read_sources
    from draftproof.faults.summary import FaultList, summary

    file = find(name, catalogue())
    fault = summary(file, read_sources())
    for field in _FIELDS:
        if value := getattr(fault, field):
            screen.line(f"{field}: {value}")
    if not fault.applies:
        screen.line("stale: it does not apply to these sources; try `draftproof faults refresh`")
    screen.line(f"\n{file.diff.rstrip()}\n")
    screen.line(f"Try it: draftproof faults run --id {fault.id}")
    inputs.write_json(json, FaultList(faults=(fault,)))


@app.command()
def refresh() -> None:
    """Update the line numbers of stale faults whose lines still occur exactly once."""
    from draftproof.faults.catalogue import catalogue, read_sources, refreshed
    from draftproof.faults.patching import StalePatchError

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
