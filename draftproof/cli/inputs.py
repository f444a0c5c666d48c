"""What several commands read from the command line: options, devices, names, and files to write."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from draftproof.errors import DraftproofError
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.kernels.table import NAMES as KERNELS
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import encode
from draftproof.properties.values.names import did_you_mean, is_factory_name

DEVICES = ("cpu", "cuda")

Seed = Annotated[int, typer.Option("--seed", help="Where the scenarios come from.", min=0, max=2**32 - 1)]
Device = Annotated[str, typer.Option("--device", help="cpu (HostGraph) or cuda (CUDA graphs, Triton kernels).")]


class InputError(DraftproofError, ValueError):
    """What the user gave cannot be used; the message names it and says what is allowed."""


def _writable(path: Path | None) -> Path | None:
    """Told before anything runs, rather than after. Raises InputError."""
    if path is not None and not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise InputError(f"--json is {path}, allowed: a file in a directory that is there and can be written")
    return path


Json = Annotated[
    Path | None,
    typer.Option("--json", help="Write the report to this file, too.", dir_okay=False, callback=_writable),
]


def own_subject(name: str) -> str:
    """The name of a user's subject, whose module is there. Raises InputError."""
    module = name.partition(":")[0]
    try:
        there = is_factory_name(name) and importlib.util.find_spec(module) is not None
    except ImportError:
        there = False
    if not there:
        raise InputError(f"--subject is {name!r}, allowed: package.module:name of a module that can be imported")
    return name


def choose(name: str, allowed: Sequence[str], what: str) -> str:
    """`name`, if it is allowed. Raises InputError with the nearest name."""
    if name in allowed:
        return name
    raise InputError(f"{what} is {name!r}, allowed: {', '.join(allowed)}{did_you_mean(name, allowed)}")


def device(name: str) -> str:
    """A device that is here. Raises InputError."""
    choose(name, DEVICES, "device")
    if name == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("device is 'cuda', allowed here: cpu (torch sees no CUDA device)")
    return name


def engine(name: str) -> Subject:
    """The engine on a device. Raises InputError."""
    where = device(name)
    import torch

    from draftproof.engine.subject import EngineSubject

    # At these sizes threads take longer to meet than to work.
    torch.set_num_threads(1)

    return EngineSubject(device=where)


def contracts(names: Iterable[str] | None) -> tuple[tuple[Contract, ...], tuple[str, ...]]:
    """The named contracts of traces, and the named ones of kernels; all if none is named. Raises InputError."""
    known = [*(contract.name for contract in ALL), *KERNELS]
    wanted = {choose(name, known, "contract") for name in names or known}
    return tuple(one for one in ALL if one.name in wanted), tuple(name for name in KERNELS if name in wanted)


def write_json(path: Path | None, report: Value) -> None:
    """Write a report. Raises InputError if that is not possible."""
    if path is None:
        return
    try:
        path.write_text(encode(report) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--json is {path}, which cannot be written: {error.strerror}") from None
