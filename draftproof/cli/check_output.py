"""The report of `draftproof check` on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from draftproof.cli import drafts, screen
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.report.commands import command
from draftproof.report.text import block, line

if TYPE_CHECKING:
    from draftproof.harness.check import CheckFinding, CheckReport

QUIET = (Outcome.PASS, Outcome.SKIP)
"""Verdicts that are only counted unless everything is asked for."""


def show(report: CheckReport, seconds: float, again: str, *, verbose: bool) -> None:
    """Print the verdicts, the work done, and every failure with the command that replays it.

    Groups of contracts take one line each, and only exceptions are listed; `verbose` lists all contracts and counts.
    """
    if verbose:
        screen.show_verdicts(report.contracts)
        screen.show_counts(report.counts)
    else:
        screen.show(("contracts", "verdicts"), _groups(report.contracts))
        if exceptions := [one for one in report.contracts if one.verdict not in QUIET and not one.divergence]:
            screen.show_verdicts(exceptions)
        screen.line(f"\n{_main_counts(report.counts)}\n")
    if report.drafts:
        drafts.show(report.drafts, with_counts=verbose)
    for verdict in report.contracts:
        if verdict.divergence is not None:
            screen.line(f"FAIL {verdict.name}: {line(verdict.divergence)}.", "red")
    for finding in report.findings:
        _show_finding(finding)
    if report.verdict is Outcome.INCONCLUSIVE:
        screen.line("Nothing failed, but not everything was exercised: try more --examples or another --seed.")
    screen.line(f"{report.verdict}: {report.examples} scenarios in {seconds:.1f} s. Again: {again}", "bold")


def _groups(verdicts: Iterable[Verdict]) -> Iterable[tuple[str, str]]:
    """Return a row for each group of contracts: all whose names begin alike."""
    groups: dict[str, Counter[Outcome]] = {}
    for one in verdicts:
        groups.setdefault(one.name.partition(".")[0], Counter())[one.verdict] += 1
    for name, outcomes in groups.items():
        yield name, ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome if outcomes[outcome])


def _main_counts(counts: dict[str, int]) -> str:
    from draftproof.harness.check import WORK

    shown = ", ".join(f"{name} {counts[name]}" for name in (*WORK, "kernel_calls") if name in counts)
    return f"exercised: {shown}; all {len(counts)} counts with --verbose"


def _show_finding(finding: CheckFinding) -> None:
    replay = command("replay", finding.case)
    screen.line(f"\n{finding.verdict} in scenario {finding.scenario}, first of all:")
    if finding.first is not None:
        screen.line(block(finding.first, replay=replay))
    else:
        screen.line(f"{finding.detail.strip()}\n  replay     {replay}")
