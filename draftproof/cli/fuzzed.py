"""What a campaign came to, for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from draftproof.cli import screen
from draftproof.fuzz.campaign.drive import End
from draftproof.fuzz.campaign.findings import MOST, divergence_of
from draftproof.fuzz.campaign.schema import Finding
from draftproof.fuzz.campaign.settings import Settings
from draftproof.properties.values.base import Value
from draftproof.properties.values.durations import show_duration
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.report.text import sentence

FEW_REQUESTS, FEW_ROUNDS = 2, 3
"""A finding that is larger may be worth more time to shrink."""


class Found(Value, frozen=True, kw_only=True):
    """A finding in the report. `hits` are its own and those of what was merged into it, which `also` names; `case` is
    "" if there were too many findings to keep it."""

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
    also: tuple[str, ...] = ()


class FuzzReport(Value, frozen=True, kw_only=True):
    """How a call of a campaign ended; numbers are of the whole campaign."""

    verdict: Outcome
    reason: str
    run: str
    settings: Settings
    scenarios: int
    seconds: float
    rate: float
    bins: int
    possible: int
    holes: tuple[str, ...]
    crashes: int
    hangs: int
    stability: float
    corpus: int
    workers_replaced: int
    findings: tuple[Found, ...]
    contracts: tuple[Verdict, ...]
    troubles: tuple[str, ...]
    lost: str = ""


def report(end: End, run: Path, settings: Settings) -> FuzzReport:
    """What is shown, and written for programs."""
    facts = end.facts
    return FuzzReport(
        verdict=end.verdict,
        reason=end.reason,
        run=str(run),
        settings=settings,
        scenarios=facts.scenarios,
        seconds=facts.at,
        rate=round(facts.scenarios / facts.at, 3) if facts.at else 0.0,
        bins=facts.hit,
        possible=facts.possible,
        holes=end.holes,
        crashes=facts.crashes,
        hangs=facts.hangs,
        stability=facts.stability,
        corpus=facts.corpus,
        workers_replaced=facts.replaced,
        findings=tuple(_found(one, end.findings, run) for one in end.findings if not one.merged),
        contracts=end.contracts,
        troubles=end.troubles,
        lost=end.lost,
    )


def _found(finding: Finding, every: Sequence[Finding], run: Path) -> Found:
    folder = run / "findings" / finding.slug
    cases = [path for path in (folder / "shrunk.json", folder / "case.json") if path.exists()]
    first = divergence_of(finding)
    merged = [other for other in every if other.merged == finding.identity]
    return Found(
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
        said=sentence(first, bool(finding.output_changed)) if first else _last_line(finding.detail),
        also=tuple(other.identity for other in merged),
    )


def _last_line(detail: str) -> str:
    return (detail.strip().splitlines() or [""])[-1]


_REASONS = {
    "time": "the time is up",
    "examples": "so many scenarios were asked for",
    "closure": "every bin that can be covered is",
    "stall": "nothing new came for long",
    "interrupted": "it was interrupted",
    "errors": "scenario after scenario ends in an error of our own",
    "workers": "no worker can start",
}


def show(told: FuzzReport, again: str) -> None:
    """The verdicts, the findings with what to do next, what was not covered, and how to go on."""
    console = screen.console()
    table = screen.table("contract", "verdict", "scenarios", "", right=("scenarios",))
    for verdict in told.contracts:
        table.add_row(verdict.name, screen.outcome(verdict.verdict), str(verdict.scenarios), _remark(verdict))
    console.print(table)
    for finding in told.findings:
        _show_finding(finding, _options(told))
    for trouble in told.troubles[:10]:
        screen.line(f"trouble: {trouble}", "yellow")
    hole = f"; {len(told.holes)} holes, the first: {told.holes[0]}" if told.holes else "; no hole"
    screen.line(f"coverage: {told.bins} of {told.possible} bins{hole}")
    parts = (
        f"{told.scenarios} scenarios in {show_duration(told.seconds)} ({told.rate:.1f} a second)",
        f"stability {100 * told.stability:.4g} %",
        f"corpus of {told.corpus}",
        f"{told.workers_replaced} workers replaced",
    )
    screen.line(", ".join(parts))
    if told.lost:
        screen.line(f"not written: {told.lost}", "bold red")
    screen.line(f"{told.verdict}: {_REASONS[told.reason]}. Go on: {again}", "bold")


def _show_finding(finding: Found, options: str) -> None:
    """What was found, and what to do with it."""
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
        screen.line(f"  its case is not kept: only the first {MOST} findings are")
        return
    case = shlex.quote(finding.case)
    screen.line(f"  replay: draftproof replay {case}{options}")
    if finding.state == "new" or finding.requests > FEW_REQUESTS or finding.rounds > FEW_ROUNDS:
        screen.line(f"  shrink: draftproof shrink {case}{options}")
    screen.line(f"  parts: draftproof bisect parts {case}{options}")


def _options(told: FuzzReport) -> str:
    """The options that name the same subject to other commands."""
    settings = told.settings
    parts = ["--device", settings.device] if settings.device != "cpu" else []
    if settings.patch:
        parts += ["--patch", str(Path(told.run) / "fault.patch")]
    elif settings.fault:
        parts += ["--fault", settings.fault]
    parts += ["--subject", settings.subject] if settings.subject else []
    return f" {shlex.join(parts)}" if parts else ""


def _remark(verdict: Verdict) -> str:
    if verdict.verdict is Outcome.INCONCLUSIVE:
        return f"not enough was exercised: {', '.join(verdict.missing)}"
    return verdict.reason
