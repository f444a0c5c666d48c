"""Options of commands that run a case: its file, workers, and the subject, with or without a fault."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import inputs

if TYPE_CHECKING:
    from draftproof.cli.inputs import DeviceName
    from draftproof.faults.catalogue import FaultFile
    from draftproof.harness.workers.messages import Answer, SubjectSpec
    from draftproof.harness.workers.pool import Pool
    from draftproof.properties.values.scenario import Scenario
    from draftproof.properties.values.subject import Subject

FaultId = Annotated[
    str | None,
    typer.Option("--fault", help="Run the engine with this bug; `draftproof faults list` has the ids.", metavar="ID"),
]
Patch = Annotated[
    Path | None, typer.Option("--patch", help="Run the engine with the bug of this patch file.", metavar="FILE")
]
Factory = Annotated[
    str | None, typer.Option("--subject", help="Test your own engine: package.module:name, which makes a Subject.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes that run scenarios.")]
CaseFile = Annotated[
    Path, typer.Argument(help="A case file that check, fuzz or a test wrote, or a scenario alone.", metavar="CASE.json")
]
WORKERS = min(2, os.cpu_count() or 1)


@contextmanager
def subject(
    device: str, fault: str | None = None, patch: Path | None = None, own: str | None = None
) -> Iterator[SubjectSpec]:
    """Yield the engine on a device, with or without a fault, or the user's own subject.

    Raises InputError, UnknownFaultError and PatchError.
    """
    from draftproof.faults.catalogue import read_sources
    from draftproof.faults.patched_sources import write_copy
    from draftproof.faults.patching import StalePatchError
    from draftproof.harness.workers.messages import SubjectSpec

    where, file = inputs.device(device), fault_file(fault, patch, own)
    if file is None:
        yield SubjectSpec(device=where, factory=own or "")
        return
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder:
        try:
            copy = write_copy(Path(folder), read_sources(), file.hunks())
        except StalePatchError as error:
            raise inputs.InputError(f"fault {file.fault.id!r} is stale: {error}") from None
        yield SubjectSpec(device=where, folder=copy.folder, hunks=copy.hunks)


def made(own: str, device: DeviceName) -> Subject:
    """Make the user's own subject in this process. Raises InputError, SubjectError and SubjectDeclarationError."""
    from draftproof.harness.subjects import make
    from draftproof.properties.values.subject import require_subject

    try:
        subject = make(inputs.own_subject(own), device)
    except (ImportError, AttributeError) as error:
        raise inputs.InputError(f"invalid --subject {own!r}: expected a module and a name in it, not {error}") from None
    require_subject(subject)
    return subject


def fault_file(fault: str | None, patch: Path | None, own: str | None) -> FaultFile | None:
    """Return the fault to bring back, if any, and make sure that the user's own subject exists.

    Raises InputError, UnknownFaultError and PatchError.
    """
    from draftproof.faults.catalogue import catalogue, find, read_fault

    if own is not None and (fault is not None or patch is not None):
        raise inputs.InputError(
            f"invalid --subject {own!r}: expected without --fault and --patch, which change the engine"
        )
    if own is not None:
        inputs.own_subject(own)
    if fault is not None and patch is not None:
        raise inputs.InputError("invalid --patch: expected without --fault")
    if fault is not None:
        return find(fault, catalogue())
    return read_fault(patch) if patch is not None else None


def runner(pool: Pool) -> Callable[[Sequence[Scenario]], list[Answer]]:
    """Return a function that runs scenarios in a pool and returns their answers in the same order."""
    from draftproof.harness.workers.messages import Order

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        return pool.run([Order(number=number, scenario=scenario) for number, scenario in enumerate(scenarios)])

    return run
