"""Wheels of releases: in a folder, or fetched by pip into the cache. None of them is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from draftproof.fuzz.releases.environment import LIMIT, NotInstalledError
from draftproof.fuzz.releases.index import ReleaseError
from draftproof.harness.wheels import wheels_folder
from draftproof.subjects.wheels.unpack import WheelError, named_by, release_of, unpacked


def listed_in(wheels: Path, package: str) -> tuple[str, ...]:
    """Return the releases with wheels in a folder, oldest first. Raises ReleaseError."""
    if not (found := _by_version(wheels, package)):
        raise ReleaseError(f"invalid --wheels {str(wheels)!r}: expected a folder with wheels of {package}")
    return tuple(sorted(found, key=Version))


def unpacked_wheel(package: str, version: str, wheels: Path | None) -> Path:
    """Return the folder of an unpacked release; without `wheels`, pip fetches the wheel. Raises NotInstalledError."""
    folder = wheels_folder()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = _by_version(wheels or folder, package)
        if version not in found and wheels is None:
            _fetch(f"{package}=={version}", folder)
            found = _by_version(folder, package)
        if version not in found:
            raise NotInstalledError(f"{package}=={version} has no wheel in {wheels or folder}")
        place = unpacked(found[version], folder)
        release_of(place, found[version], (canonicalize_name(package),))
        return place
    except WheelError as error:
        raise NotInstalledError(str(error)) from None


def _by_version(folder: Path, package: str) -> dict[str, Path]:
    """Return the wheels of a package by their releases; a file with the name of no wheel is none."""
    found = {}
    for file in sorted(folder.glob("*.whl")):
        try:
            name, version = named_by(file)
            Version(version)
        except (WheelError, InvalidVersion):
            continue
        if canonicalize_name(name) == canonicalize_name(package):
            found[version] = file
    return found


def _fetch(release: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d"]
    try:
        said = subprocess.run(
            [*command, str(folder), release], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"the wheel of {release} was not there within {LIMIT:g} s") from None
    if said.returncode:
        last = (said.stderr.strip() or "pip said nothing").splitlines()[-1]
        raise NotInstalledError(f"the wheel of {release} cannot be had: {last.removeprefix('ERROR: ')[:200]}")
