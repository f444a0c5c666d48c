"""Wheels that commands are given: which releases they are, unpacked into the user's cache."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from draftproof.properties.values.kernel_binding import KernelBinding
from draftproof.subjects.kernels.packages import PACKAGES
from draftproof.subjects.wheels.unpack import WheelError, unpacked

_COMPILED = (".so", ".cubin", ".fatbin", ".pyd")
_LARGEST = 1 << 20


def wheels_folder() -> Path:
    """Return the folder in which unpacked wheels are kept: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "draftproof" / "wheels"


def slim(wheel: Path, folder: Path) -> Path:
    """Write a wheel without its compiled modules and largest files to a folder, and return it.

    Kernels in Triton need no others, so that it can be carried to a machine without a network. Raises WheelError.
    """
    unpacked(wheel, wheels_folder())
    target = folder / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as less:
        for member in whole.infolist():
            if not member.filename.endswith(_COMPILED) and member.file_size <= _LARGEST:
                less.writestr(member, whole.read(member), zipfile.ZIP_DEFLATED, 9)
    return target


def wheels_of(
    files: Sequence[Path], folder: Path | None, bindings: Sequence[KernelBinding]
) -> list[tuple[str, str, str]]:
    """Return package, version and folder of the wheels named, or of those in a folder, oldest release first.

    Raises WheelError, also for a wheel of another package than the bindings'.
    """
    tops = {binding.modules[0].split(".")[0] for binding in bindings}
    known = {wheel for package in PACKAGES if package.name in tops for wheel in package.wheels} or tops
    found = [_release(file) for file in (files or _in_folder(folder or Path(), known))]
    for file, (name, _, _) in zip(files, found, strict=False):
        if name not in known:
            raise WheelError(f"invalid wheel '{file}': expected one of {' or '.join(sorted(known))}, not of {name}")
    return sorted(found, key=lambda one: Version(one[1]))


def _in_folder(folder: Path, known: set[str]) -> list[Path]:
    files = [file for file in sorted(folder.glob("*.whl")) if canonicalize_name(file.name.split("-")[0]) in known]
    if not files:
        raise WheelError(f"invalid --wheels '{folder}': expected wheels of {' or '.join(sorted(known))} in it")
    return files


def _release(file: Path) -> tuple[str, str, str]:
    """Return what a wheel says of itself, and where it is unpacked."""
    folder = unpacked(file, wheels_folder())
    found = sorted(folder.glob("*.dist-info"))
    name, _, version = found[0].name.removesuffix(".dist-info").rpartition("-") if found else ("", "", "")
    try:
        Version(version)
    except InvalidVersion:
        raise WheelError(f"invalid wheel '{file}': expected one with a folder NAME-VERSION.dist-info") from None
    return canonicalize_name(name), version, str(folder)
