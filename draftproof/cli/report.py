"""`draftproof report`: a campaign as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen

Run = Annotated[Path, typer.Argument(help="A campaign's directory: that of `draftproof fuzz --run`.", metavar="RUN")]
Matrices = Annotated[
    list[Path] | None,
    typer.Option(
        "--matrix",
        help="Add the results of faults: a file that `faults run --json` wrote (may be repeated).",
        dir_okay=False,
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="The file to write (default: RUN/report.html).", dir_okay=False)
]


def write_report(run: Run, matrix: Matrices = None, out: Out = None, json: inputs.Json = None) -> None:
    """Write a campaign's findings and coverage as one HTML file.

    The exit code is 0 whatever the campaign found.
    """
    from draftproof.report.html.page import render, report, written
    from draftproof.report.html.source import read_run

    shown = report(read_run(run), [inputs.fault_report("--matrix", path) for path in matrix or ()])
    text, path = render(shown), out or run / "report.html"
    inputs.write_text("--out", path, text)
    size = len(text.encode())
    screen.line(f"{shown.verdict}: {shown.says}")
    screen.line(f"wrote {path}, {size / 1024:.0f} KiB")
    inputs.write_json(json, written(shown, path, size))
