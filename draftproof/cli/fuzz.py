"""`draftproof fuzz`: run a campaign in a directory of its own, or resume it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, inputs, live, screen, subjects
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.properties.lib.durations import parse_duration, show_duration
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.report.commands import command, subject_options
from draftproof.report.numbers import plural

if TYPE_CHECKING:
    from draftproof.fuzz.campaign.settings import Settings
    from draftproof.report.campaign import CampaignReport, ReportedFinding

_REASONS = {
    "time": "the time is up",
    "examples": "as many scenarios as --examples says have run",
    "closure": "every bin that can be covered is",
    "stall": "nothing new came for long",
    "interrupted": "it was interrupted",
    "errors": "scenario after scenario ends in an error of our own",
    "workers": "no worker can start",
    "disk": "a file cannot be written; nothing that was kept before is lost",
}

Time = Annotated[str, typer.Option("--time", help="How long to run this time, e.g. 90s, 10m or 2h.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, max=256, help="Processes that run scenarios (default: one a core, 12 a GPU at most)."
    ),
]
Run = Annotated[Path, typer.Option("--run", help="The campaign's directory: a new one, or one to resume.")]
Until = Annotated[
    str | None, typer.Option("--until", help="End early: at closure (all is covered) or stall (nothing new for long).")
]
Examples = Annotated[
    int | None, typer.Option("--examples", min=1, help="Most scenarios, those of earlier runs included.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Seed of the generated scenarios (default: 0).", min=0, max=inputs.LAST_SEED),
]
Memory = Annotated[str | None, typer.Option("--memory", help="Most memory for one worker, e.g. 4G.")]


@with_option_groups(under_test=subjects.chosen, target=drafts.given)
def fuzz(
    run: Run,
    under_test: subjects.UnderTest,
    target: drafts.DraftOptions,
    time: Time = "10m",
    workers: Workers = None,
    cluster: inputs.Cluster = None,
    until: Until = None,
    examples: Examples = None,
    seed: Seed = None,
    memory_: Memory = None,
    json: inputs.Json = None,
) -> None:
    """Search for bugs for some time, and work out what is found.

    Run the same command again to resume the campaign.
    """
    from draftproof.fuzz.campaign.settings import UNTIL, CampaignLimits, RequestedSettings, memory

    inputs.require_cluster(cluster)
    end_at = inputs.choose(until, UNTIL, "--until") if until else None
    if kept := _kept(run):
        # Of a campaign that goes on the subject's limits are needed, whether or not it was named again.
        under_test = under_test._replace(choice=kept.subject) if under_test.choice == BUILT_IN_SUBJECT else under_test
        target = target._replace(model=target.model or (Path(kept.model) if kept.model else None))
    if end_at == "closure":
        _require_closure(target.model, under_test.choice)
    from draftproof.fuzz.campaign.run import run_campaign
    from draftproof.report.campaign import campaign_report

    limits = CampaignLimits(parse_duration(time, "--time"), end_at, examples)
    most = memory(memory_)
    file, device = under_test.fault_file(), under_test.device
    if file and file.patches == "triton" and device != "cuda":
        raise inputs.InputError(
            f"invalid --device {device or 'cpu'!r}: expected cuda, as fault {file.fault.id} changes Triton kernels"
        )
    subject_limits, versions = subjects.limits_of(under_test)
    options = drafts.chosen(target, subject_limits)
    asked = RequestedSettings(
        seed=seed,
        drafts=drafts.named(options),
        model=str(options.model) if options.model else None,
        draft_model=str(options.draft_model) if options.draft_model else None,
        mtp=options.mtp or None,
        kv_cache_dtype=None if options.kv_cache_dtype == "auto" else options.kv_cache_dtype,
        draft_kv_cache_dtype=None if options.draft_kv_cache_dtype == "auto" else options.draft_kv_cache_dtype,
        device=None if device is None else _device(device, under_test, cluster),
        fault=file.fault.id if file else None,
        # This tells one patch file from another.
        patch=hashlib.sha256(file.text.encode()).hexdigest()[:16] if file and under_test.patch else None,
        subject=None if under_test.choice == BUILT_IN_SUBJECT else under_test.choice,
    )
    with live.watching() as watch:
        settings, end = run_campaign(
            run,
            asked,
            limits,
            fault=file,
            workers=workers,
            cluster=cluster or "",
            memory=most,
            search=subjects.search(),
            subject_limits=subject_limits,
            versions=versions,
            watch=watch,
        )
    report = campaign_report(end, run, settings)
    show(report, again("fuzz", run=run, time=time, workers=workers, cluster=cluster, until=until))
    inputs.finish(json, report, report.verdict)


def _device(name: str, under_test: subjects.UnderTest, cluster: str | None) -> inputs.DeviceName:
    """Return the device, which this machine has unless workers run elsewhere. Raises InputError and DeviceError."""
    return inputs.choose(name, inputs.DEVICES, "--device") if cluster else under_test.where


def _kept(run: Path) -> Settings | None:
    """Return the settings of a campaign that is there already. Raises CampaignError."""
    from draftproof.fuzz.campaign.rundir import SETTINGS_FILE
    from draftproof.fuzz.campaign.settings import read

    file = run / SETTINGS_FILE
    return read(file) if file.is_file() else None


def _require_closure(model: Path | None, subject: SubjectChoice) -> None:
    """Raise InputError where nobody can say that every bin is covered: only of probes on the built-in engine."""
    given = f"--subject {subject.name}" if subject != BUILT_IN_SUBJECT else f"--model {model}" if model else ""
    if given:
        raise inputs.InputError(
            f"invalid --until closure with {given}: expected stall, as which bins can be covered is known of probes on"
            " the built-in engine only, and this campaign would never end"
        )


def show(report: CampaignReport, repeated: str) -> None:
    """Print the verdicts but for SKIP, the findings with their commands, the coverage, and how to resume."""
    screen.show_verdicts(one for one in report.contracts if one.verdict is not Outcome.SKIP)
    if silent := sum(one.verdict is Outcome.SKIP for one in report.contracts):
        screen.line(f"{silent} contracts had nothing to judge: SKIP (--json and `draftproof report` say why)")
    if report.versions:
        screen.line(f"{report.versions}, at the level of {report.level}")
    if report.left_out:
        screen.line(f"shown in some scenarios only: {', '.join(report.left_out)}")
    if report.nodes:
        screen.line(f"ran on {plural(len(report.nodes), 'node')}: {'; '.join(report.nodes)}")
    for finding in report.findings:
        _show_finding(finding, subject_options(report.settings, Path(report.run)))
    for trouble in report.troubles[:10]:
        screen.line(f"trouble: {trouble}", "yellow")
    hole = f"; {len(report.holes)} holes, the first: {report.holes[0]}" if report.holes else "; no hole"
    screen.line(f"coverage: {report.bins} of {report.possible} bins{hole}")
    parts = (
        f"{report.scenarios} scenarios in {show_duration(report.seconds)} ({report.rate:.1f} a second)",
        f"stability {100 * report.stability:.4g} %",
        f"{report.workers_replaced} workers replaced",
    )
    screen.line(", ".join(parts))
    screen.line(f"{report.verdict}: {_REASONS[report.reason]}. Go on: {repeated}", "bold")


def _show_finding(finding: ReportedFinding, options: dict[str, object]) -> None:
    """Print one finding and the commands to work on it."""
    size = f"{plural(finding.requests, 'request')}, {plural(finding.rounds, 'round')}"
    runs = f", {finding.runs} runs" if finding.runs else ""
    screen.line(
        f"\n{finding.outcome} {finding.identity}\n  {finding.said}\n"
        f"  {finding.state}{runs}, {size}, {finding.hits} hits, first in scenario {finding.first}",
        "red",
    )
    if finding.place:
        screen.line(f"  during {finding.place}")
    if finding.node:
        screen.line(f"  on {finding.node}")
    for identity in finding.also:
        screen.line(f"  also shows as {identity}")
    if not finding.case:
        screen.line("  its case was not kept: there were too many findings")
        return
    screen.line(f"  replay: {command('replay', finding.case, **options)}")
    screen.line(f"  explain: {command('explain', finding.case, **options)}")
