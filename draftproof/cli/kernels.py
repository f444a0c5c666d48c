"""`draftproof lab kernels`: somebody's kernels under the contracts of their ops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.properties.values.verdict import Outcome
from draftproof.report.text import block

if TYPE_CHECKING:
    from draftproof.harness.bound_check import KernelsAsked, Release
    from draftproof.properties.formats.kernel_binding import KernelBinding
    from draftproof.properties.formats.kernel_fault import FaultHeld, KernelFaultReport
    from draftproof.properties.formats.kernel_report import KernelHeld, KernelReport

_EXAMPLES, _TIMEOUT = 24, 600.0
app = typer.Typer(help="Hold kernels, your own or a package's, to their contracts.", no_args_is_help=True)

Impl = Annotated[
    str,
    typer.Option(
        "--impl",
        help="Bindings of a module, or one: MODULE or MODULE:NAME; fla, sglang and vllm are there. With --op also a"
        " function that takes the op's arguments.",
        metavar="MODULE[:NAME]",
    ),
]
OpName = Annotated[str | None, typer.Option("--op", help="The op, as gdn_verify; of a module its bindings of this op.")]
WheelFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--wheel", help="Kernels of this wheel, or folder that one is unpacked in; none: of what is installed."
    ),
]
WheelFolder = Annotated[
    Path | None, typer.Option("--wheels", help="Kernels of each wheel in this folder.", file_okay=False)
]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Generated calls of each kernel.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one kernel; longer is a hang.")]


@app.command("check")
def check(
    impl: Impl,
    op: OpName = None,
    wheel: WheelFile = None,
    wheels: WheelFolder = None,
    device: inputs.Device = "cpu",
    seed: inputs.Seed = 0,
    examples: Examples = _EXAMPLES,
    timeout: Timeout = _TIMEOUT,
    workers: subjects.Workers = subjects.MOST_WORKERS,
    json: inputs.Json = None,
) -> None:
    """Run kernels on generated calls beside their naive twins.

    All memory is compared afterwards. Triton kernels are interpreted on a CPU and compiled on a GPU; each runs in a
    worker process.
    """
    from draftproof.harness.bound_check import check_kernels

    with _asked(impl, op, wheel, wheels, device, seed, examples, timeout, workers) as (asked, releases):
        report = check_kernels(asked, releases, _tell)
    _show(report)
    options = {"impl": impl, "op": op, "wheel": wheel, "wheels": wheels, "device": asked.device, "seed": seed}
    screen.line(f"{report.verdict}. Again: {again('lab', 'kernels', 'check', examples=examples, **options)}", "bold")
    inputs.finish(json, report, report.verdict)


@app.command("faults")
def faults(
    impl: Impl,
    op: OpName = None,
    wheel: WheelFile = None,
    wheels: WheelFolder = None,
    device: inputs.Device = "cpu",
    seed: inputs.Seed = 0,
    examples: Examples = _EXAMPLES,
    timeout: Timeout = _TIMEOUT,
    workers: subjects.Workers = subjects.MOST_WORKERS,
    json: inputs.Json = None,
) -> None:
    """Put mistakes into a package's kernels: each must be found.

    Its source text is changed, one mistake at a time.
    """
    from draftproof.harness.bound_faults import put_faults, table_of

    with _asked(impl, op, wheel, wheels, device, seed, examples, timeout, workers) as (asked, releases):
        report = put_faults(asked, table_of(asked.module, asked.bindings), releases, _tell_fault)
    _show_faults(report)
    options = {"impl": impl, "op": op, "wheel": wheel, "wheels": wheels, "device": asked.device, "seed": seed}
    screen.line(f"{report.verdict}. Again: {again('lab', 'kernels', 'faults', examples=examples, **options)}", "bold")
    inputs.finish(json, report, report.verdict)


@app.command("slim")
def slim_(
    wheel: Annotated[Path, typer.Argument(help="A wheel.", dir_okay=False)],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.", file_okay=False)],
) -> None:
    """Write a wheel without its compiled modules.

    It is what Triton kernels need on a machine without a network.
    """
    from draftproof.harness.wheels import slim

    if not out.is_dir():
        raise inputs.InputError(f"invalid --out '{out}': expected a folder that is there")
    made = slim(wheel, out)
    screen.line(f"{made}: {made.stat().st_size / 1e6:.1f} MB of {wheel.stat().st_size / 1e6:.1f} MB")


@contextmanager
def _asked(
    impl: str,
    op: str | None,
    wheel: list[Path] | None,
    wheels: Path | None,
    device: str,
    seed: int,
    examples: int,
    timeout: float,
    workers: int,
) -> Iterator[tuple[KernelsAsked, list[Release]]]:
    """Give what the options ask for, and have Triton interpreted meanwhile if that is for a CPU.

    Triton reads its variable when it is imported, here and in the workers. Raises InputError, BindingError, WheelError.
    """
    from draftproof.harness.bound_check import KernelsAsked
    from draftproof.harness.bound_kernels import found

    where, before = inputs.device(device), os.environ.pop("TRITON_INTERPRET", None)
    if where == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        bindings, module = found(impl, op), impl.partition(":")[0]
        releases = _releases(bindings, wheel or [], wheels)
        yield KernelsAsked(module, bindings, op, where, seed, examples, timeout, workers), releases
    finally:
        os.environ.pop("TRITON_INTERPRET", None)
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before


def _releases(bindings: tuple[KernelBinding, ...], files: list[Path], folder: Path | None) -> list[Release]:
    """Return the releases of the wheels that the options name. Raises InputError and WheelError."""
    from draftproof.harness.bound_check import Release
    from draftproof.harness.wheels import wheels_of

    if files and folder is not None:
        raise inputs.InputError("invalid --wheel and --wheels: expected one of them")
    if not files and folder is None:
        return [Release()]
    if not all(one.modules for one in bindings):
        raise inputs.InputError("invalid --wheel: expected bindings of a package's kernels, not kernels of your own")
    return [Release(*one) for one in wheels_of(files, folder, bindings)]


def _tell(release: Release, held: KernelHeld) -> None:
    """Print one line for a kernel as soon as its verdict is there."""
    name = f"{release.package} {release.version} " if release.package else ""
    why = f" ({held.reason})" if held.reason else ""
    screen.line(f"{name}{held.name}: {held.verdict}{why}, {held.seconds:.1f} s")


def _tell_fault(release: Release, fault: FaultHeld) -> None:
    """Print one line for a fault as soon as it is known whether it is found."""
    name = f"{release.package} {release.version} " if release.package else ""
    said = f"found in call {fault.calls} by its {fault.verdict}" if fault.found else f"not found, {fault.verdict}"
    why = f" ({fault.reason})" if fault.reason and not fault.found else ""
    screen.line(f"{name}{fault.kernel}: {fault.kind}: {fault.wrong}: {said}{why}", "" if fault.found else "red")


def _show_faults(report: KernelFaultReport) -> None:
    """Print a line for each kernel: its verdict, and in which call its contract found which fault."""
    for release in report.releases:
        rows = []
        for held in release.clean:
            faults = [one for one in release.faults if one.kernel == held.name]
            calls = ", ".join(f"{one.kind} {one.calls if one.found else one.verdict}" for one in faults)
            found = f"{sum(one.found for one in faults)} of {len(faults)}"
            rows.append((held.name, held.op, str(held.verdict), found, calls))
        screen.line(f"{release.package} {release.version}".strip(), "bold")
        screen.show(("kernel", "op", "as it is", "faults found", "in call"), rows)


def _show(report: KernelReport) -> None:
    """Print a line for each kernel and a column for each release, and then what failed."""
    names = {one.name: one.op for release in report.releases for one in release.kernels}
    verdicts = [{one.name: str(one.verdict) for one in release.kernels} for release in report.releases]
    heads = [release.version or report.device for release in report.releases]
    screen.show(("kernel", "op", *heads), [(name, op, *(one[name] for one in verdicts)) for name, op in names.items()])
    for release in report.releases:
        for what in sorted({f"{one}: {why}" for held in release.kernels for one, why in held.lacks.items()}):
            screen.line(f"{release.package} {release.version} has a stub for {what}")
        for held in release.kernels:
            if held.first is not None:
                screen.line(f"\n{release.package} {release.version}\n{block(held.first, of=held.name)}".lstrip(), "red")
            elif held.verdict in (Outcome.CRASH, Outcome.HANG):
                screen.line(f"\n{release.package} {release.version} {held.name}:\n{held.detail}".rstrip(), "red")
