"""What commands that run cases in workers read: the subject, healthy or with a fault, and the case."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from draftproof.cli import inputs
from draftproof.faults.catalogue import FaultFile, catalogue, find, read_fault, read_sources
from draftproof.faults.patched_sources import write_copy
from draftproof.faults.patching import StalePatchError
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.case import read_case
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.validate import InvalidScenarioError

FaultId = Annotated[str | None, typer.Option("--fault", help="Bring this fault of the catalogue back.", metavar="ID")]
Patch = Annotated[Path | None, typer.Option("--patch", help="Bring the fault of this file back.", metavar="FILE")]
Factory = Annotated[str | None, typer.Option("--subject", help="Your own subject, as package.module:name.")]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="How many processes run scenarios.")]
CaseFile = Annotated[Path, typer.Argument(help="A case file, or a bare scenario.", metavar="CASE.json")]
WORKERS = min(2, os.cpu_count() or 1)


@contextmanager
def subject(
    device: str, fault: str | None = None, patch: Path | None = None, own: str | None = None
) -> Iterator[SubjectSpec]:
    """Yield the engine on a device, with or without a fault, or the user's own subject.

    Raises InputError, UnknownFaultError and PatchError.
    """
    inputs.device(device)
    if own is not None:
        yield SubjectSpec(device=device, factory=_factory(own, fault, patch))  # type: ignore[arg-type]
        return
    file = _file(fault, patch)
    if file is None:
        yield SubjectSpec(device=device)  # type: ignore[arg-type]  # one of the two, as just checked
        return
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder:
        try:
            copy = write_copy(Path(folder), read_sources(), file.hunks())
        except StalePatchError as error:
            raise inputs.InputError(f"fault {file.fault.id} is stale: {error}") from None
        yield SubjectSpec(device=device, folder=copy.folder, hunks=copy.hunks)  # type: ignore[arg-type]


def _factory(own: str, fault: str | None, patch: Path | None) -> str:
    if fault is not None or patch is not None:
        raise inputs.InputError(f"--subject is {own}, allowed: without --fault and --patch, which are of the engine")
    return inputs.own_subject(own)


def _file(fault: str | None, patch: Path | None) -> FaultFile | None:
    if fault is not None and patch is not None:
        raise inputs.InputError("--fault and --patch are both given, allowed: one of them")
    if fault is not None:
        return find(fault, catalogue())
    return read_fault(patch) if patch is not None else None


def runner(pool: Pool) -> Callable[[Sequence[Scenario]], list[Answer]]:
    """A pool that takes scenarios and gives their answers, in their order."""

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        return pool.run([Order(number=number, scenario=scenario) for number, scenario in enumerate(scenarios)])

    return run


def read(case: Path) -> Scenario:
    """The scenario of a case file. Raises InputError naming the file and what is wrong in it."""
    try:
        return read_case(case)[0]
    except InvalidScenarioError as error:
        named = str(error).startswith(str(case))
        raise inputs.InputError(str(error) if named else f"{case}: {error}") from None


def short(answer: Answer) -> Answer:
    """An answer as reports hold it: without what it covered."""
    return msgspec.structs.replace(answer, bins=(), counts={})


def options(device: str, fault: str | None, patch: Path | None, own: str | None = None) -> list[str]:
    """The options that name the same subject again."""
    given = ["--device", device]
    given += ["--fault", fault] if fault is not None else []
    given += ["--subject", own] if own is not None else []
    return given + (["--patch", str(patch)] if patch is not None else [])
