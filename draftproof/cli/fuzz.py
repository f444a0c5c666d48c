"""`draftproof fuzz`: a campaign in a directory of its own, which the same command goes on with."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from draftproof.cli import inputs, live, screen
from draftproof.cli.wording import sentence
from draftproof.fuzz.campaign.drive import Campaign, End
from draftproof.fuzz.campaign.findings import MOST, divergence_of
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import UNTIL, Asked, BadRun, Limits, Settings, memory, seconds
from draftproof.fuzz.campaign.store import Finding
from draftproof.fuzz.catalogue import DRAFTS, FaultFile, catalogue, drafts_of, find, read_fault, read_sources
from draftproof.fuzz.patching import Stale
from draftproof.fuzz.workers.messages import SubjectSpec
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict

FEW_REQUESTS, FEW_ROUNDS = 2, 3
"""A finding that is larger may be worth more time to shrink."""
ON_GPU = 4
"""Workers where the GPU does the work."""
Time = Annotated[str, typer.Option("--time", help="How long to go on, as in 90s, 10m or 2h; calls add up.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=256, help="Processes (one a core; 4 on a GPU).")]
Run = Annotated[Path, typer.Option("--run", help="The campaign's directory: a new one, or one to go on with.")]
Until = Annotated[str | None, typer.Option("--until", help="End at closure (no hole is left) or stall (nothing new).")]
Examples = Annotated[int | None, typer.Option("--examples", min=1, help="Most scenarios, over all calls.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Where the scenarios come from (0).", min=0, max=2**32 - 1)]
Device = Annotated[str | None, typer.Option("--device", help="cpu (HostGraph) or cuda (CUDA graphs); cpu.")]
Draft = Annotated[str | None, typer.Option("--draft", help=f"{', '.join(DRAFTS)} (all; with a fault, its own).")]
Fault = Annotated[str | None, typer.Option("--fault", help="Bring back this fault of the catalogue.")]
Patch = Annotated[Path | None, typer.Option("--patch", help="Bring in the fault of this file.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Your own subject, as package.module:name.")]
Unguided = Annotated[bool, typer.Option("--unguided", help="Plan without regard to what was covered.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Most memory of one worker, as in 4G.")]


class Found(Value, frozen=True, kw_only=True):
    """A finding in the report. `hits` are its own and those of what was merged into it, which `also` names; `case` is ""
    if there were too many findings to keep it."""

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


class _Bug(NamedTuple):
    """What is brought into the copy of the sources; `digest` tells one patch file from another."""

    file: FaultFile | None
    digest: str | None


def fuzz(
    run: Run,
    time: Time = "10m",
    workers: Workers = None,
    until: Until = None,
    examples: Examples = None,
    seed: Seed = None,
    draft: Draft = None,
    device: Device = None,
    fault: Fault = None,
    patch: Patch = None,
    subject: Subject = None,
    unguided: Unguided = False,
    memory_: Memory = None,
    json: inputs.Json = None,
) -> None:
    """Look for bugs for a while, with scenarios steered by what was covered; the same command goes on."""
    try:
        limits = Limits(seconds(time), _until(until), examples)
        most = memory(memory_)
        bug = _bug(fault, patch, subject, device)
        asked = _asked(seed, draft, device, subject, unguided, bug)
        with RunDir(run) as directory:
            settings = directory.begin(_with_draft(asked, bug, directory), read_sources(), bug.file)
            inputs.device(settings.device)
            count = workers or _workers(settings.device)
            end = _run(directory, settings, limits, count, most)
    except (BadRun, Stale) as error:
        raise inputs.BadInput(str(error)) from None
    report = _report(end, run, settings)
    show(report, _again(run, time, workers, until))
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _run(directory: RunDir, settings: Settings, limits: Limits, count: int, most: int | None) -> End:
    from draftproof.fuzz.campaign.guide import Guide
    from draftproof.fuzz.workers.pool import Pool
    from draftproof.properties.coverage import universe

    folder = str(directory.subject.resolve()) if settings.hunks else ""
    spec = SubjectSpec(device=settings.device, folder=folder, hunks=settings.hunks, factory=settings.subject)
    guide = Guide(settings.seed, settings.drafts, guided=settings.guided)
    possible = universe(settings.drafts)
    with Pool(spec, count, directory.workers, memory=most) as pool, live.watching() as watch:
        return Campaign(directory, settings, limits, pool, guide, possible=possible, width=count, watch=watch).go()


def _until(name: str | None) -> Any:
    return name if name is None else inputs.choose(name, UNTIL, "--until")


def _runs_here(file: FaultFile, device: str | None) -> FaultFile:
    """A fault that can have an effect. Raises BadInput."""
    if file.fault.patches == "triton" and device != "cuda":
        raise inputs.BadInput(
            f"fault {file.fault.id} is of Triton kernels and --device {device or 'cpu'}, allowed: with --device cuda"
        )
    return file


def _bug(fault: str | None, patch: Path | None, subject: str | None, device: str | None) -> _Bug:
    """Raises BadInput, BadPatch and UnknownFault."""
    if fault and patch:
        raise inputs.BadInput(f"--patch is {patch}, allowed: a file or --fault, not both")
    if subject and (fault or patch):
        raise inputs.BadInput(f"--subject is {subject}, allowed: without --fault and --patch, which are of the engine")
    if fault:
        return _Bug(_runs_here(find(fault, catalogue()), device), None)
    if patch:
        file = _runs_here(read_fault(patch), device)
        return _Bug(file, hashlib.sha256(file.diff.encode()).hexdigest()[:16])
    return _Bug(None, None)


def _asked(
    seed: int | None, draft: str | None, device: str | None, subject: str | None, unguided: bool, bug: _Bug
) -> Asked:
    """What was said. Raises BadInput for names that there are not."""
    if subject is not None and not all(subject.partition(":")[::2]):
        raise inputs.BadInput(f"--subject is {subject!r}, allowed: package.module:name")
    return Asked(
        seed=seed,
        drafts=None if draft is None else drafts_of(inputs.choose(draft, DRAFTS, "draft")),  # type: ignore[arg-type]
        device=None if device is None else inputs.device(device),  # type: ignore[arg-type]
        fault=bug.file.fault.id if bug.file else None,
        patch=bug.digest,
        subject=subject,
        guided=False if unguided else None,
    )


def _with_draft(asked: Asked, bug: _Bug, directory: RunDir) -> Asked:
    """A new campaign with a fault has that one's draft, unless another was named."""
    if asked.drafts is None and bug.file and directory.settings is None:
        return asked._replace(drafts=drafts_of(bug.file.fault.draft))
    return asked


def _workers(device: str) -> int:
    return ON_GPU if device == "cuda" else len(os.sched_getaffinity(0))


def _again(run: Path, time: str, workers: int | None, until: str | None) -> str:
    """The command that goes on: all else is kept in the directory."""
    parts = ["draftproof", "fuzz", "--run", str(run), "--time", time]
    parts += ["--workers", str(workers)] if workers else []
    return shlex.join([*parts, "--until", until] if until else parts)


def _report(end: End, run: Path, settings: Settings) -> FuzzReport:
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


def show(report: FuzzReport, again: str) -> None:
    """The verdicts, the findings with what to do next, what was not covered, and how to go on."""
    console = screen.console()
    table = screen.table("contract", "verdict", "scenarios", "", right=("scenarios",))
    for verdict in report.contracts:
        table.add_row(verdict.name, screen.outcome(verdict.verdict), str(verdict.scenarios), _remark(verdict))
    console.print(table)
    for finding in report.findings:
        _show_finding(finding, _options(report))
    for trouble in report.troubles[:10]:
        screen.line(f"trouble: {trouble}", "yellow")
    hole = f"; {len(report.holes)} holes, the first: {report.holes[0]}" if report.holes else "; no hole"
    screen.line(f"coverage: {report.bins} of {report.possible} bins{hole}")
    parts = (
        f"{report.scenarios} scenarios in {live.span(report.seconds)} ({report.rate:.1f} a second)",
        f"stability {100 * report.stability:.4g} %",
        f"corpus of {report.corpus}",
        f"{report.workers_replaced} workers replaced",
    )
    screen.line(", ".join(parts))
    if report.lost:
        screen.line(f"not written: {report.lost}", "bold red")
    screen.line(f"{report.verdict}: {_REASONS[report.reason]}. Go on: {again}", "bold")


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


def _options(report: FuzzReport) -> str:
    """The options that name the same subject to other commands."""
    settings = report.settings
    parts = ["--device", settings.device] if settings.device != "cpu" else []
    if settings.patch:
        parts += ["--patch", str(Path(report.run) / "fault.patch")]
    elif settings.fault:
        parts += ["--fault", settings.fault]
    parts += ["--subject", settings.subject] if settings.subject else []
    return f" {shlex.join(parts)}" if parts else ""


def _remark(verdict: Verdict) -> str:
    if verdict.verdict is Outcome.INCONCLUSIVE:
        return f"not enough was exercised: {', '.join(verdict.missing)}"
    return verdict.reason
