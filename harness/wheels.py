"""Wheels that commands are given: which releases they are, unpacked into the user's cache."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from draftproof.properties.formats.kernel_binding import KernelBinding
from draftproof.properties.lib.extras import require_extra
from draftproof.subjects.kernels.packages import KERNEL_PACKAGES
from draftproof.subjects.wheels.unpack import WheelError, release_of, unpacked

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
    require_extra("releases", "--wheel")
    from packaging.version import Version

    tops = {binding.modules[0].split(".")[0] for binding in bindings}
    known = {wheel for package in KERNEL_PACKAGES if package.name in tops for wheel in package.wheels} or tops
    found = []
    for file in files or _in_folder(folder or Path(), known):
        place = unpacked(file, wheels_folder())
        found.append((*release_of(place, file, known), str(place)))
    return sorted(found, key=lambda one: Version(one[1]))


def _in_folder(folder: Path, known: set[str]) -> list[Path]:
    from packaging.utils import canonicalize_name

    files = [file for file in sorted(folder.glob("*.whl")) if canonicalize_name(file.name.split("-")[0]) in known]
    if not files:
        raise WheelError(f"invalid --wheels '{folder}': expected wheels of {' or '.join(sorted(known))} in it")
    return files
