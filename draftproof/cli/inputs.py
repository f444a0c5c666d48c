"""Options that several commands share, their checks, and the files that commands read and write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, cast

import typer

from draftproof.properties.choose import LAST_SEED
from draftproof.properties.lib.devices import DEVICES, present
from draftproof.properties.lib.devices import Device as DeviceName
from draftproof.properties.lib.errors import InputError
from draftproof.properties.lib.names import did_you_mean, group_of, is_factory_name
from draftproof.properties.values.verdict import EXIT_CODES, Outcome

if TYPE_CHECKING:
    from draftproof.faults.matrix import FaultReport
    from draftproof.properties.contracts.base import Contract
    from draftproof.properties.lib.base import Value
    from draftproof.properties.values.subject import Subject

_UNWRITTEN = 2
"""The exit code of a PASS, or of too little for one, whose files could not be written."""
_NO_FINDING = (EXIT_CODES[Outcome.PASS], EXIT_CODES[Outcome.INCONCLUSIVE])
_LISTED = 12
"""A message lists more names than this only if none of them is near."""
Name = TypeVar("Name", bound=str)
Seed = Annotated[int, typer.Option("--seed", help="Seed of the generated scenarios.", min=0, max=LAST_SEED)]
_DEVICE_HELP = (
    "cpu (the default: CUDA graphs imitated on the host, eager kernels) or cuda (CUDA graphs, Triton kernels)."
)
Device = Annotated[str, typer.Option("--device", help=_DEVICE_HELP)]


Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Run the workers in the Ray cluster at ray://HOST:PORT (or, on one of its nodes, HOST:PORT or auto).",
    ),
]
MaybeDevice = Annotated[str | None, typer.Option("--device", help=_DEVICE_HELP)]


def output(option: str, what: str) -> Any:
    """Return an option for a file that a command writes at its end: tried now, before any work is done."""

    def tried(path: Path | None) -> Path | None:
        from draftproof.properties.lib.files import require_writable

        try:
            if path is not None:
                require_writable(path)
        except OSError as error:
            raise InputError(f"invalid {option} '{path}': it cannot be written: {error.strerror}") from None
        return path

    return typer.Option(option, help=what, dir_okay=False, callback=tried)


Json = Annotated[Path | None, output("--json", "Also write the result to this file, as JSON.")]


def factory_name(name: str) -> str:
    """Return the name of a user's subject. Raises InputError."""
    if not is_factory_name(name):
        raise InputError(f"invalid --subject {name!r}: expected package.module:name")
    return name


def seeds(first: int, count: int) -> range:
    """Return `count` seeds from the first on. Raises InputError if there are not so many."""
    if first + count - 1 > LAST_SEED:
        raise InputError(
            f"invalid --seeds {count}: expected at most {LAST_SEED - first + 1} with --seed {first}, as {LAST_SEED} is"
            " the last one"
        )
    return range(first, first + count)


def choose(name: str, allowed: Sequence[Name], what: str, listed_in: str = "") -> Name:
    """Return `name` if it is allowed. Raises InputError with the nearest name, and where all of them are."""
    if name in allowed:
        return allowed[allowed.index(cast(Name, name))]
    hint = did_you_mean(name, allowed)
    listed = ", ".join(allowed[:_LISTED])
    if more := len(allowed[_LISTED:]):
        listed = f"one of {len(allowed)} names" if hint else f"{listed} or one of {more} more"
    raise InputError(f"invalid {what} {name!r}: expected {listed}{listed_in and f' ({listed_in} has all)'}{hint}")


def require_cluster(address: str | None) -> None:
    """Raise ClusterError for what is no address of a cluster, and where its extra is missing; None is none."""
    if address is not None:
        from draftproof.harness.cluster.address import require_cluster as require

        require(address)


def device(name: str) -> DeviceName:
    """Return a device that this machine has. Raises InputError and DeviceError."""
    return present(choose(name, DEVICES, "--device"))


def engine(name: str) -> Subject:
    """Return the engine on a device. Raises InputError and DeviceError."""
    where = device(name)
    import torch

    from draftproof.engine.subject import EngineSubject

    # One thread: at these sizes synchronisation costs more than it saves.
    torch.set_num_threads(1)

    return EngineSubject(device=where)


def contracts(names: Iterable[str] | None) -> tuple[tuple[Contract, ...], tuple[str, ...]]:
    """Return the contracts of traces and those of kernels that are named, alone or by their group; all if none is.

    Raises InputError.
    """
    from draftproof.properties.contracts.registry import ALL
    from draftproof.properties.kernels.table import KERNEL_CONTRACTS

    known = [*(contract.name for contract in ALL), *KERNEL_CONTRACTS]
    groups = dict.fromkeys(map(group_of, known))
    wanted = {choose(name, [*groups, *known], "--contract", "check --verbose") for name in names or groups}

    def is_wanted(name: str) -> bool:
        return not wanted.isdisjoint((name, group_of(name)))

    return tuple(one for one in ALL if is_wanted(one.name)), tuple(filter(is_wanted, KERNEL_CONTRACTS))


def fault_report(option: str, path: Path, device: DeviceName | None = None) -> FaultReport:
    """Return the report that `faults run --json` wrote, on `device` if one is named. Raises InputError."""
    from draftproof.faults.matrix import FaultReport
    from draftproof.properties.formats.case import decode

    try:
        report = decode(path.read_bytes(), FaultReport, name=str(path))
    except OSError as error:
        raise InputError(f"invalid {option} '{path}': it cannot be read: {error.strerror}") from None
    if device is not None and report.device != device:
        raise InputError(f"invalid {option} '{path}': expected a report of --device {device}, not {report.device}")
    return report


def write_text(option: str, path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises InputError if that is not possible."""
    from draftproof.properties.lib.files import write_whole

    try:
        write_whole(path, text)
    except OSError as error:
        raise InputError(f"invalid {option} '{path}': it cannot be written: {error.strerror}") from None


class Ended(Exception):
    """A command says its exit code. No Exit of typer: a subject can raise that one, too."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"ended with exit code {code}")


def finish(
    path: Path | None,
    report: Value,
    verdict: Outcome,
    *more: tuple[str, Path, str],
    then: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Write a result as JSON if a file was named, and `more` (option, file, text); end with the code of the verdict.

    Where a file cannot be written that is said, and only a PASS becomes wrong usage. `then` is done once all are
    written. Raises Ended.
    """
    code, is_written = EXIT_CODES[verdict], True
    for write in (*(partial(write_text, *one) for one in more), partial(write_json, path, report)):
        try:
            write()
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            code, is_written = _UNWRITTEN if code in _NO_FINDING else code, False
    if is_written:
        then()
    raise Ended(code)


def write_json(path: Path | None, report: Value) -> None:
    """Write a result as JSON if a file was named. Raises InputError if that is not possible."""
    from draftproof.properties.formats.case import encode

    if path is not None:
        write_text("--json", path, encode(report) + "\n")
