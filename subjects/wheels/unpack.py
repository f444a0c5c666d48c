"""Unpack a wheel into a folder of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Collection
from pathlib import Path

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.extras import require_extra

_INFO = ".dist-info"
_NAME = re.compile(r"(?P<package>[A-Za-z0-9._]+)-(?P<version>[A-Za-z0-9._+!]+)(-[^-]+){3,4}\.whl")


class WheelError(DraftproofError, ValueError):
    """A file that is no wheel, or a folder that is no unpacked one; the message says what was expected."""


def unpacked(wheel: Path, folder: Path) -> Path:
    """Return the folder below `folder` that holds what is in a wheel, unpacked now unless these bytes were before.

    A folder in place of a wheel is one that is unpacked already. Raises WheelError.
    """
    if wheel.is_dir():
        if not any(wheel.glob(f"*{_INFO}")):
            raise WheelError(f"invalid wheel {str(wheel)!r}: expected an unpacked wheel, with a folder *{_INFO}")
        return wheel
    if not wheel.is_file():
        raise WheelError(f"invalid wheel {str(wheel)!r}: expected a file that is there")
    named_by(wheel)
    with wheel.open("rb") as file:
        place = folder / f"{wheel.stem}.{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    if place.exists():
        return place
    half = folder / f"{place.name}.{os.getpid()}.part"
    shutil.rmtree(half, ignore_errors=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(half)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise WheelError(
            f"invalid wheel {str(wheel)!r}: expected a zip archive, and reading it failed: {error}"
        ) from None
    if not any(half.glob(f"*{_INFO}")):
        shutil.rmtree(half, ignore_errors=True)
        raise WheelError(f"invalid wheel {str(wheel)!r}: expected an archive with a folder *{_INFO}")
    try:
        half.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(half)
    return place


def named_by(wheel: Path) -> tuple[str, str]:
    """Return package and version as the name of a wheel says them. Raises WheelError."""
    found = _NAME.fullmatch(wheel.name)
    if found is None:
        raise WheelError(f"invalid wheel {str(wheel)!r}: expected a name such as package-1.2.3-py3-none-any.whl")
    return found["package"], found["version"]


def release_of(place: Path, wheel: Path, packages: Collection[str]) -> tuple[str, str]:
    """Return package and version as an unpacked wheel says them. Raises WheelError for one of other packages."""
    require_extra("releases", f"wheel {str(wheel)!r}")
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    infos = sorted(one.name.removesuffix(_INFO) for one in place.glob(f"*{_INFO}"))
    name, _, version = infos[0].rpartition("-") if infos else ("", "", "")
    try:
        Version(version)
    except InvalidVersion:
        raise WheelError(f"invalid wheel {str(wheel)!r}: expected one with a folder NAME-VERSION{_INFO}") from None
    if (package := canonicalize_name(name)) not in packages:
        expected = " or ".join(sorted(packages))
        raise WheelError(f"invalid wheel {str(wheel)!r}: expected one of {expected}, not of {package}")
    return package, version
