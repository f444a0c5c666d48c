"""Options of commands that run a subject: which it is, where it runs, and with which fault; and the file of a case."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import inputs
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.report.commands import command

if TYPE_CHECKING:
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
    Path | None,
    typer.Option("--patch", help="Run the engine with the bug of this file: a fault, or a diff.", metavar="FILE"),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--subject",
        help="Test another engine: transformers, openai or whatever is registered, or package.module:name, which makes"
        " a Subject.",
        metavar="NAME",
    ),
]
Python = Annotated[
    str | None,
    typer.Option("--python", help="With --subject: the interpreter that it runs in.", metavar="ENV/bin/python"),
]
Url = Annotated[str | None, typer.Option("--url", help="With --subject: the address of its server.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="With --subject: an argument of its own (may be repeated).", metavar="NAME=VALUE"),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="With --subject: show on stderr what it prints, also in another Python.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes that run scenarios.")]
CaseFile = Annotated[
    Path, typer.Argument(help="A case file that check, fuzz or a test wrote, or a scenario alone.", metavar="CASE.json")
]
MOST_WORKERS = min(2, os.cpu_count() or 1)


_made: list[str] = []
"""The subjects that this command made in this process: from then on only a verdict may end it."""


def forget() -> None:
    """Begin a command: nothing was made yet."""
    _made.clear()


def is_made() -> bool:
    """Return whether a subject was made in this process."""
    return bool(_made)


class UnderTest(NamedTuple):
    """What the options say of the subject; `device` is None where nothing was said.

    `is_named`: they say which engine it is. A fault says that, too: the built-in one has it. `debug`: what it prints is
    shown.
    """

    choice: SubjectChoice = BUILT_IN_SUBJECT
    device: str | None = None
    fault: str | None = None
    patch: Path | None = None
    is_named: bool = False
    debug: bool = False

    @property
    def arguments(self) -> dict[str, object]:
        """The options that say the same again."""
        return {"device": self.device or "cpu", "fault": self.fault, **self.choice.options, "patch": self.patch}

    @property
    def settings(self) -> dict[str, str]:
        """What was given to the subject, by name: its own settings, its Python, and what is wrong with it."""
        given = {"python": self.choice.python, **self.choice.settings, "fault": self.fault, "patch": self.patch}
        return {name: str(value) for name, value in given.items() if value}

    @property
    def of_cases(self) -> dict[str, object]:
        """The options with which a case that is found is run again: the device where it is not the usual one."""
        return {name: given for name, given in self.arguments.items() if (name, given) != ("device", "cpu")}

    @property
    def where(self) -> inputs.DeviceName:
        """The device, which this machine has unless the subject runs elsewhere. Raises InputError and DeviceError."""
        name = self.device or "cpu"
        if self.choice.python or self.choice.settings.get("url"):
            return inputs.choose(name, inputs.DEVICES, "--device")
        return inputs.device(name)

    def spec(self, folder: str = "", hunks: tuple[str, ...] = ()) -> SubjectSpec:
        """Return it for workers, with a copy of the sources if there is one."""
        from draftproof.harness.workers.messages import SubjectSpec

        return SubjectSpec(device=self.where, folder=folder, hunks=hunks, subject=self.choice, search=search())

    @contextmanager
    def patched(self) -> Iterator[SubjectSpec]:
        """Yield it for workers, with the fault if there is one. Raises InputError, UnknownFaultError and PatchError."""
        from draftproof.faults.catalogue import read_sources
        from draftproof.faults.patched_sources import write_fault
        from draftproof.faults.patching import StalePatchError

        file = self.fault_file()
        if file is None:
            yield self.spec()
            return
        with tempfile.TemporaryDirectory(prefix="draftproof-") as folder:
            try:
                copy = write_fault(Path(folder), read_sources(), file)
            except StalePatchError as error:
                raise inputs.InputError(f"fault {file.fault.id!r} is stale: {error}") from None
            yield self.spec(copy.folder, copy.hunks)

    def fault_file(self) -> FaultFile | None:
        """Return the fault to bring back, if any. Raises InputError, UnknownFaultError and PatchError."""
        from draftproof.faults.catalogue import catalogue, find, read_fault

        if self.fault is not None:
            return find(self.fault, catalogue())
        return read_fault(self.patch) if self.patch is not None else None

    def fault_id(self) -> str:
        """Return the id of this fault; "" if there is none. Raises what `fault_file` raises."""
        file = self.fault_file()
        return file.fault.id if file else ""

    def made(self, spec: SubjectSpec | None = None) -> Subject:
        """Make the subject for this process.

        Raises InputError, SubjectError, SubjectDeclarationError, and UnfitError for limits that cannot be.
        """
        _made.append(self.choice.name)
        from draftproof.harness.subjects import make_from
        from draftproof.properties.fit import require_limits
        from draftproof.properties.values.subject import require_subject
        from draftproof.subjects.making import EngineMissingError
        from draftproof.subjects.wheels.modules import WheelImportError

        wanted = spec or self.spec()
        if self.choice == BUILT_IN_SUBJECT and not wanted.folder:
            return inputs.engine(wanted.device)
        try:
            subject = make_from(wanted, shown=self.debug)
        except WheelImportError as error:
            raise inputs.InputError(f"invalid --subject {self.choice.name!r}: {error}") from error
        except (ImportError, AttributeError) as error:
            if self.choice == BUILT_IN_SUBJECT:
                raise
            if isinstance(error, ImportError) and (lacking := _needed(self.choice.name, error)):
                raise EngineMissingError(self.choice.name, lacking) from error
            raise inputs.InputError(
                f"invalid --subject {self.choice.name!r}: expected a module and a name in it: {error}"
            ) from error
        require_subject(subject)
        require_limits(subject.limits)
        return subject


def chosen(
    subject: Name = None,
    python: Python = None,
    url: Url = None,
    set_: Set = None,
    device: inputs.MaybeDevice = None,
    fault: FaultId = None,
    patch: Patch = None,
) -> UnderTest:
    """Return what the options of a command say of the subject, if they go together. Raises InputError."""
    if fault is not None and patch is not None:
        raise inputs.InputError("invalid --patch: expected without --fault")
    if subject is not None and (fault is not None or patch is not None):
        raise inputs.InputError(
            f"invalid --subject {subject!r}: expected without --fault and --patch, which change the engine"
        )
    is_named = any(one is not None for one in (subject, fault, patch))
    return UnderTest(choice(subject, python, url, set_), device, fault, patch, is_named)


def without_fault(
    subject: Name = None,
    python: Python = None,
    url: Url = None,
    set_: Set = None,
    device: inputs.MaybeDevice = None,
) -> UnderTest:
    """Return the same for a command that brings no fault back. Raises InputError."""
    return UnderTest(choice(subject, python, url, set_), device, is_named=subject is not None)


def choice(subject: str | None, python: str | None, url: str | None, set_: Sequence[str] | None) -> SubjectChoice:
    """Return the subject that these options name. Raises InputError."""
    settings = {**({"url": url} if url else {}), **settings_of(set_ or ())}
    if subject is None and (python or settings):
        given = f"--python {python!r}" if python else f"--url {url!r}" if url else f"--set {(set_ or ())[0]!r}"
        raise inputs.InputError(f"invalid {given} without --subject: expected the name of what to run there")
    if subject is None:
        return BUILT_IN_SUBJECT
    if not python:
        _require_here(subject)
    return SubjectChoice(name=subject, python=python or "", settings=settings)


def settings_of(given: Sequence[str]) -> Mapping[str, str]:
    """Return the pairs of --set. Raises InputError."""
    pairs = [one.partition("=") for one in given]
    for (name, equals, _), one in zip(pairs, given, strict=True):
        if not name.isidentifier() or not equals:
            raise inputs.InputError(f"invalid --set {one!r}: expected NAME=VALUE")
        if sum(name == other for other, *_ in pairs) > 1:
            raise inputs.InputError(f"invalid --set {one!r}: expected {name} once")
    return {name: value for name, _, value in pairs}


def _require_here(name: str) -> None:
    """Raise InputError for a name that is not registered, or whose package does not exist; imports nothing of it."""
    from draftproof.subjects.making import SubjectNameError, resolve_name

    try:
        package = resolve_name(name).partition(":")[0].partition(".")[0]
    except SubjectNameError as error:
        raise inputs.InputError(str(error).replace("invalid subject", "invalid --subject", 1)) from None
    if importlib.util.find_spec(package) is None:
        raise inputs.InputError(
            f"invalid --subject {name!r}: expected a module that exists, and there is no {package!r} here;"
            " put its folder on PYTHONPATH"
        )


def _needed(name: str, error: ImportError) -> str:
    """Return the package that is not installed and that a subject imports; "" if it is its own that cannot be."""
    from draftproof.subjects.making import resolve_name

    missing = (error.name or "").partition(".")[0]
    own = resolve_name(name).partition(":")[0].partition(".")[0]
    is_there = not missing or missing == own or importlib.util.find_spec(missing) is not None
    return "" if is_there else missing


def limits_of(under_test: UnderTest) -> tuple[Limits, str]:
    """Return what the subject can run; and its name, which may say more than what chose it, with its versions.

    Another than the engine is made for this, and closed.
    """
    from draftproof.harness.signals import exits_noticed
    from draftproof.harness.subject_report import versions_of
    from draftproof.harness.subject_run import closing
    from draftproof.report.text import show_versions

    if under_test.choice == BUILT_IN_SUBJECT:
        return NO_LIMITS, ""
    with exits_noticed(), closing(under_test.made()) as subject:
        return subject.limits, f"{subject.name} with {show_versions(versions_of(subject))}"


def require_whose(case: Path, under_test: UnderTest) -> None:
    """Raise InputError for a case that was found with another subject, unless the options name one."""
    from draftproof.properties.formats.case import case_subject

    recorded = case_subject(case)
    if recorded == BUILT_IN_SUBJECT or under_test.is_named:
        return
    options = command(**recorded.options).removeprefix("draftproof ")
    raise inputs.InputError(
        f"invalid options for {case}, which was found with {options}: expected the same, or --subject engine for the"
        " built-in engine"
    )


def search() -> str:
    """Return where a subject in another Python may look for modules beside its own."""
    return os.environ.get("PYTHONPATH", "")


def runner(pool: Pool) -> Callable[[Sequence[Scenario]], list[Answer]]:
    """Return a function that runs scenarios in a pool and returns their answers in the same order."""
    from draftproof.harness.workers.messages import Order

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        return pool.run([Order(number=number, scenario=scenario) for number, scenario in enumerate(scenarios)])

    return run
