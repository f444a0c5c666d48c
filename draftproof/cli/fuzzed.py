"""The report of a campaign on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftproof.cli import screen
from draftproof.properties.values.durations import show_duration
from draftproof.report.commands import command, subject_options

if TYPE_CHECKING:
    from draftproof.report.campaign import CampaignReport, ReportedFinding

FEW_REQUESTS, FEW_ROUNDS = 2, 3
"""A finding that is larger may be worth more time to shrink."""

_REASONS = {
    "time": "the time is up",
    "examples": "so many scenarios were asked for",
    "closure": "every bin that can be covered is",
    "stall": "nothing new came for long",
    "interrupted": "it was interrupted",
    "errors": "scenario after scenario ends in an error of our own",
    "workers": "no worker can start",
    "disk": "a file cannot be written; nothing that was kept before is lost",
}


def show(report: CampaignReport, again: str) -> None:
    """Print the verdicts, the findings with their commands, the coverage, and how to resume."""
    screen.show_verdicts(report.contracts)
    for finding in report.findings:
        _show_finding(finding, subject_options(report.settings, Path(report.run)))
    for trouble in report.troubles[:10]:
        screen.line(f"trouble: {trouble}", "yellow")
    hole = f"; {len(report.holes)} holes, the first: {report.holes[0]}" if report.holes else "; no hole"
    screen.line(f"coverage: {report.bins} of {report.possible} bins{hole}")
    parts = (
        f"{report.scenarios} scenarios in {show_duration(report.seconds)} ({report.rate:.1f} a second)",
        f"stability {100 * report.stability:.4g} %",
        f"corpus of {report.corpus}",
        f"{report.workers_replaced} workers replaced",
    )
    screen.line(", ".join(parts))
    screen.line(f"{report.verdict}: {_REASONS[report.reason]}. Go on: {again}", "bold")


def _show_finding(finding: ReportedFinding, options: dict[str, str]) -> None:
    """Print one finding and the commands to work on it."""
    size = f"{finding.requests} requests, {finding.rounds} rounds"
    runs = f", {finding.runs} runs" if finding.runs else ""
    screen.line(
        f"\n{finding.outcome} {finding.identity}\n  {finding.said}\n"
        f"  {finding.state}{runs}, {size}, {finding.hits} hits, first in scenario {finding.first}",
        "red",
    )
    if finding.place:
        screen.line(f"  during {finding.place}")
    for identity in finding.also:
        screen.line(f"  also shows as {identity}")
    if not finding.case:
        screen.line("  its case was not kept: there were too many findings")
        return
    screen.line(f"  replay: {command('replay', finding.case, **options)}")
    if finding.state == "new" or finding.requests > FEW_REQUESTS or finding.rounds > FEW_ROUNDS:
        screen.line(f"  shrink: {command('shrink', finding.case, **options)}")
    screen.line(f"  parts: {command('bisect', 'parts', finding.case, **options)}")
