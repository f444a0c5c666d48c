"""`draftproof fuzz`: run a campaign in a directory of its own, or resume it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from draftproof.cli import fuzzed, inputs, live
from draftproof.properties.values.drafts import DRAFT_SETS, drafts_of
from draftproof.properties.values.durations import parse_duration
from draftproof.report.commands import command

if TYPE_CHECKING:
    from draftproof.faults.catalogue import FaultFile
    from draftproof.fuzz.campaign.settings import Asked

Time = Annotated[str, typer.Option("--time", help="How long to run this time, e.g. 90s, 10m or 2h.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=256, help="Processes (one a core; 4 on a GPU).")]
Run = Annotated[Path, typer.Option("--run", help="The campaign's directory: a new one, or one to resume.")]
Until = Annotated[str | None, typer.Option("--until", help="End at closure (all bins hit) or stall (nothing new).")]
Examples = Annotated[int | None, typer.Option("--examples", min=1, help="Most scenarios, over all calls.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the generated scenarios (0).", min=0, max=2**32 - 1)]
Device = Annotated[str | None, typer.Option("--device", help="cpu (host graphs) or cuda (CUDA graphs); default cpu.")]
Draft = Annotated[str | None, typer.Option("--draft", help=f"{', '.join(DRAFT_SETS)} (all; with a fault, its own).")]
Fault = Annotated[str | None, typer.Option("--fault", help="Bring this fault of the catalogue back.")]
Patch = Annotated[Path | None, typer.Option("--patch", help="Bring the fault of this file back.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Your own subject, as package.module:name.")]
Unguided = Annotated[bool, typer.Option("--unguided", help="Generate scenarios without steering by coverage.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Most memory for one worker, e.g. 4G.")]


class _Bug(NamedTuple):
    """The fault brought into the copy of the sources; `digest` tells one patch file from another."""

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
    """Search for bugs for some time, with scenarios steered toward what was not covered yet.

    Run the same command again to resume the campaign.
    """
    from draftproof.fuzz.campaign.run import run_campaign
    from draftproof.fuzz.campaign.settings import CampaignLimits, memory
    from draftproof.report.campaign import campaign_report

    limits = CampaignLimits(parse_duration(time, "--time"), _until(until), examples)
    most = memory(memory_)
    bug = _bug(fault, patch, subject, device)
    asked = _asked(seed, draft, device, subject, unguided, bug)
    with live.watching() as watch:
        settings, end = run_campaign(run, asked, limits, fault=bug.file, workers=workers, memory=most, watch=watch)
    report = campaign_report(end, run, settings)
    fuzzed.show(report, command("fuzz", run=run, time=time, workers=workers, until=until))
    inputs.finish(json, report, report.verdict)


def _until(name: str | None) -> Any:
    from draftproof.fuzz.campaign.settings import UNTIL

    return name if name is None else inputs.choose(name, UNTIL, "--until")


def _runs_here(file: FaultFile, device: str | None) -> FaultFile:
    """Return the fault if it can have an effect. Raises InputError."""
    if file.fault.patches == "triton" and device != "cuda":
        raise inputs.InputError(
            f"invalid --device {device or 'cpu'!r}: expected cuda, as fault {file.fault.id} changes Triton kernels"
        )
    return file


def _bug(fault: str | None, patch: Path | None, subject: str | None, device: str | None) -> _Bug:
    """Return the fault to bring in, if any. Raises InputError, PatchError and UnknownFaultError."""
    from draftproof.faults.catalogue import catalogue, find, read_fault

    if fault and patch:
        raise inputs.InputError("invalid --patch: expected without --fault")
    if subject and (fault or patch):
        raise inputs.InputError(
            f"invalid --subject {subject!r}: expected without --fault and --patch, which change the engine"
        )
    if fault:
        return _Bug(_runs_here(find(fault, catalogue()), device), None)
    if patch:
        file = _runs_here(read_fault(patch), device)
        return _Bug(file, hashlib.sha256(file.diff.encode()).hexdigest()[:16])
    return _Bug(None, None)


def _asked(
    seed: int | None, draft: str | None, device: str | None, subject: str | None, unguided: bool, bug: _Bug
) -> Asked:
    """Return the settings that the user gave. Raises InputError for unknown names."""
    from draftproof.fuzz.campaign.settings import Asked

    if subject is not None:
        inputs.own_subject(subject)
    return Asked(
        seed=seed,
        drafts=None if draft is None else drafts_of(inputs.choose(draft, DRAFT_SETS, "--draft")),  # type: ignore[arg-type]
        device=None if device is None else inputs.device(device),
        fault=bug.file.fault.id if bug.file else None,
        patch=bug.digest,
        subject=subject,
        guided=False if unguided else None,
    )
