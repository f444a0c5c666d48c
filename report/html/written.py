"""What `draftproof report` wrote, as a value."""

from __future__ import annotations

from pathlib import Path

from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Outcome
from draftproof.report.html.contracts import ContractRow
from draftproof.report.html.page import CampaignPage


class WrittenFinding(Value, frozen=True, kw_only=True):
    """One finding of an HTML report."""

    title: str
    outcome: str
    sentence: str
    commands: tuple[str, ...]


class WrittenReport(Value, frozen=True, kw_only=True):
    """The contents of an HTML report for programs. `holes` are bins that were not hit, out of `possible`."""

    verdict: Outcome
    file: str
    bytes: int
    facts: dict[str, str]
    findings: tuple[WrittenFinding, ...]
    contracts: tuple[ContractRow, ...]
    hit: int
    possible: int
    holes: tuple[str, ...]


def written(shown: CampaignPage, path: Path, size: int) -> WrittenReport:
    """Return what `report --json` writes of a report of `size` bytes in the file `path`."""
    findings = tuple(
        WrittenFinding(
            title=view.title,
            outcome=view.outcome,
            sentence=view.sentence,
            commands=tuple(command.line for command in view.commands),
        )
        for view in shown.findings
    )
    coverage = shown.coverage
    return WrittenReport(
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
