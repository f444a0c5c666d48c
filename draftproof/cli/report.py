"""`draftproof report`: a campaign as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.faults.matrix import FaultReport
from draftproof.fuzz.campaign.settings import CampaignError
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import decode
from draftproof.properties.values.files import write_whole
from draftproof.properties.values.verdict import Outcome
from draftproof.report.html.contracts import Judged
from draftproof.report.html.page import Report, render, report
from draftproof.report.html.source import read_run
from draftproof.report.text import sentence

Run = Annotated[Path, typer.Argument(help="A campaign's directory.", metavar="RUN")]
Matrices = Annotated[
    list[Path] | None,
    typer.Option("--matrix", help="What `faults run --json` wrote; one of each lane.", dir_okay=False),
]
Out = Annotated[Path | None, typer.Option("--out", help="The file to write (RUN/report.html).", dir_okay=False)]


class Listed(Value, frozen=True, kw_only=True):
    """One finding of a report."""

    title: str
    outcome: str
    sentence: str
    commands: tuple[str, ...]


class Written(Value, frozen=True, kw_only=True):
    """What a report says, for programs. `holes` are bins that were not hit, out of `possible`."""

    verdict: Outcome
    file: str
    bytes: int
    facts: dict[str, str]
    findings: tuple[Listed, ...]
    contracts: tuple[Judged, ...]
    hit: int
    possible: int
    holes: tuple[str, ...]


def write_report(run: Run, matrix: Matrices = None, out: Out = None, json: inputs.Json = None) -> None:
    """Write what a campaign found and covered as one HTML file that needs nothing else; 0 whatever it found."""
    try:
        shown = report(read_run(run), [_matrix(path) for path in matrix or ()], sentence)
    except CampaignError as error:
        raise inputs.InputError(str(error)) from None
    text, path = render(shown), out or run / "report.html"
    try:
        write_whole(path, text)
    except OSError as error:
        raise inputs.InputError(f"--out is {path}, which cannot be written: {error.strerror}") from None
    size = len(text.encode())
    screen.line(f"{shown.verdict}: {shown.says}")
    screen.line(f"wrote {path}, {size / 1024:.0f} KiB")
    inputs.write_json(json, _written(shown, path, size))


def _matrix(path: Path) -> FaultReport:
    try:
        return decode(path.read_bytes(), FaultReport, name=str(path))
    except OSError as error:
        raise inputs.InputError(f"--matrix is {path}, which cannot be read: {error.strerror}") from None


def _written(shown: Report, path: Path, size: int) -> Written:
    findings = tuple(
        Listed(
            title=view.title,
            outcome=view.outcome,
            sentence=view.sentence,
            commands=tuple(command.line for command in view.commands),
        )
        for view in shown.findings
    )
    coverage = shown.coverage
    return Written(
        verdict=shown.verdict,
        file=str(path),
        bytes=size,
        facts=dict(shown.facts),
        findings=findings,
        contracts=shown.contracts,
        hit=coverage.hit,
        possible=coverage.possible,
        holes=tuple(f"{cross}: {values}" for cross, group in coverage.holes for values in group),
    )
