"""`draftproof faults`: the catalogue of faults."""

from __future__ import annotations

from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.cli.faults_run import run

app = typer.Typer(help="Patch known bugs into the engine: are they noticed?", no_args_is_help=True)
app.command("run")(run)

FaultName = Annotated[str, typer.Argument(help="The id of a fault, as `faults list` shows it.", metavar="ID")]
_FIELDS = ("id", "source", "mechanism", "patches", "draft", "model", "contract", "channel", "explained")


@app.command("list")
def list_(json: inputs.Json = None) -> None:
    """List every fault (known bug) of the catalogue."""
    from draftproof.faults.catalogue import FaultList, catalogue, read_sources, summary

    sources = read_sources()
    listed = tuple(summary(file, sources) for file in catalogue().values())
    shown = ("id", "patches", "draft", "model", "contract", "channel")
    rows = [(*(getattr(fault, field) for field in shown), "stale" if fault.stale else "") for fault in listed]
    screen.columns([(*shown, ""), *rows])
    inputs.write_json(json, FaultList(faults=listed))


@app.command()
def show(name: FaultName, json: inputs.Json = None) -> None:
    """Show one fault: what it does, where it comes from, and its changes."""
    from draftproof.faults.catalogue import FaultList, catalogue, find, read_sources, summary

    file = find(name, catalogue())
    fault = summary(file, read_sources())
    for field in _FIELDS:
        if value := getattr(fault, field):
            screen.line(f"{field}: {value}")
    if fault.stale:
        screen.line(f"stale: {fault.stale}")
    screen.line(f"\n{file.text.strip()}\n")
    screen.line(f"Try it: draftproof faults run --id {fault.id}")
    inputs.write_json(json, FaultList(faults=(fault,)))
