"""The result of a campaign as a value, as `fuzz --json` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from draftproof.fuzz.campaign.drive import CampaignEnd
from draftproof.fuzz.campaign.finding_rows import divergence_of
from draftproof.fuzz.campaign.schema import CampaignFinding
from draftproof.fuzz.campaign.settings import Settings
from draftproof.properties.coverage.covered import Level
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.report.text import sentence


class ReportedFinding(Value, frozen=True, kw_only=True):
    """A finding in the report.

    `hits` counts its own hits and those of the findings merged into it, which `also` names; `case` is "" if there were
    too many findings to keep it.
    """

    identity: str
    outcome: Outcome
    state: str
    hits: int
    first: int
    case: str
    runs: str = ""
    requests: int = 0
    rounds: int = 0
    place: str = ""
    said: str = ""
    node: str = ""
    also: tuple[str, ...] = ()


class CampaignReport(Value, frozen=True, kw_only=True):
    """How a call of a campaign ended; numbers are of the whole campaign.

    `versions` names a subject other than the engine, and its packages; `level` says how much was reported,
    `left_out` what of that not in all scenarios that have it; `nodes` are the nodes of a cluster, with how many
    scenarios each ran.
    """

    verdict: Outcome
    reason: str
    run: str
    settings: Settings
    versions: str
    level: Level
    scenarios: int
    seconds: float
    rate: float
    bins: int
    possible: int
    holes: tuple[str, ...]
    crashes: int
    hangs: int
    stability: float
    workers_replaced: int
    findings: tuple[ReportedFinding, ...]
    contracts: tuple[Verdict, ...]
    troubles: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    nodes: dict[str, int] = msgspec.field(default_factory=dict)


def campaign_report(end: CampaignEnd, run: Path, settings: Settings) -> CampaignReport:
    """Return the report of a call of a campaign that ended like `end`, in the directory `run`."""
    status = end.status
    return CampaignReport(
        verdict=end.verdict,
        reason=end.reason,
        run=str(run),
        settings=settings,
        versions=end.versions,
        level=end.level,
        scenarios=status.scenarios,
        seconds=status.at,
        rate=round(status.scenarios / status.at, 3) if status.at else 0.0,
        bins=status.hit,
        possible=status.possible,
        holes=end.holes,
        crashes=status.crashes,
        hangs=status.hangs,
        stability=status.stability,
        workers_replaced=status.replaced,
        findings=tuple(_found(one, end.findings, run) for one in end.findings if not one.merged),
        contracts=end.contracts,
        troubles=end.troubles,
        left_out=end.left_out,
        nodes=dict(end.nodes),
    )


def _found(finding: CampaignFinding, every: Sequence[CampaignFinding], run: Path) -> ReportedFinding:
    folder = run / "findings" / finding.slug
    cases = [path for path in (folder / "shrunk.json", folder / "case.json") if path.exists()]
    first = divergence_of(finding)
    merged = [other for other in every if other.merged == finding.identity]
    return ReportedFinding(
        identity=finding.identity,
        outcome=Outcome(finding.outcome),
        state=finding.state,
        hits=finding.hits + sum(other.hits for other in merged),
        first=finding.first,
        case=str(cases[0]) if cases else "",
        runs=finding.runs,
        requests=finding.requests,
        rounds=finding.rounds,
        place=finding.place,
        said=sentence(first) if first else _last_line(finding.detail),
        node=finding.node,
        also=tuple(other.identity for other in merged),
    )


def _last_line(detail: str) -> str:
    return (detail.strip().splitlines() or [""])[-1]
