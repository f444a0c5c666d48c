"""`draftproof faults`: the catalogue of faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.cli.faults_run import run

app = typer.Typer(help="Patch known bugs into the engine and see whether they are noticed.", no_args_is_help=True)
app.command("run")(run)

Cpu = Annotated[Path, typer.Option("--cpu", help="What `faults run --json` wrote on a CPU.", dir_okay=False)]
Gpu = Annotated[
    Path | None, typer.Option("--gpu", help="What `faults run --device cuda --json` wrote.", dir_okay=False)
]
Out = Annotated[Path, typer.Option("--out", help="The page to write.", dir_okay=False)]
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


@app.command()
def matrix(cpu: Cpu, gpu: Gpu = None, out: Out = Path("docs/matrix.md"), json: inputs.Json = None) -> None:
    """Write which faults were detected, on one or two devices, as a page of Markdown."""
    from draftproof.faults.matrix import Lanes
    from draftproof.report.matrix_page import page

    first = inputs.fault_report("--cpu", cpu, "cpu")
    second = inputs.fault_report("--gpu", gpu, "cuda") if gpu else None
    if second and second.strategies != first.strategies:
        raise inputs.InputError(
            f"invalid --gpu '{gpu}': expected strategies version {first.strategies}, which '{cpu}' has,"
            f" not {second.strategies}; run the older one again"
        )
    lanes = Lanes(cpu=first, gpu=second)
    inputs.write_text("--out", out, page(lanes))
    screen.line(f"wrote {out}: {len(lanes.ids)} faults")
    inputs.write_json(json, lanes)
