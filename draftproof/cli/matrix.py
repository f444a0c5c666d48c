"""`draftproof lab matrix`: reports of `faults run` as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen

Cpu = Annotated[Path, typer.Option("--cpu", help="What `faults run --json` wrote on a CPU.", dir_okay=False)]
Gpu = Annotated[
    Path | None, typer.Option("--gpu", help="What `faults run --device cuda --json` wrote.", dir_okay=False)
]
Out = Annotated[Path, typer.Option("--out", help="The page to write.", dir_okay=False)]


def matrix(cpu: Cpu, gpu: Gpu = None, out: Out = Path("docs/matrix.md"), json: inputs.Json = None) -> None:
    """Write which faults were detected, as a page of Markdown."""
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
