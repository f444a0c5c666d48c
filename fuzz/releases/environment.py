"""An environment for one release of a package: made once, and kept for later runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from draftproof.fuzz.releases.packages import Recipe
from draftproof.properties.lib.errors import DraftproofError

LIMIT = 3600.0
"""Seconds for one call of pip."""
# The side of a subject that runs there needs these (docs/write-an-adapter.md).
_OURS = ("msgspec", "numpy")


class NotInstalledError(DraftproofError):
    """A release that cannot be installed; the message has what pip said last."""


def environments() -> Path:
    """Return the folder in which environments are kept: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "draftproof" / "releases"


def python_of(package: str, version: str, recipe: Recipe, folder: Path) -> Path:
    """Return the interpreter of a release's environment, which is made if it is not there.

    What pip prints goes to a log beside it. Raises NotInstalledError; what is half made is made anew next time.
    """
    place = folder / f"{canonicalize_name(package)}-{version}"
    python = place / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(place.with_suffix(f"{place.suffix}.lock")):
        done = place / "installed"
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            _make(package, version, recipe, place, Path(f"{place}.log"))
            done.touch()
    return python


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process makes this environment."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(package: str, version: str, recipe: Recipe, place: Path, log: Path) -> None:
    release, python = f"{package}=={version}", str(place / "bin" / "python")
    log.write_bytes(b"")
    _call([sys.executable, "-m", "venv", "--without-pip", str(place)], release, log)
    # Our own pip, which need not be installed there for that; most of what comes along is never imported.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    install = [*pip, "install", "--no-compile"]
    if not recipe.without:
        _call([*install, release, *_OURS], release, log)
        return
    _call([*install, "--no-deps", release], release, log)
    if more := [*_requirements(package, place, recipe.without), *_OURS]:
        _call([*install, *more], release, log)


def _requirements(package: str, place: Path, without: Sequence[str]) -> list[str]:
    """Return what an installed package requires on this machine, without some."""
    (site,) = place.glob("lib/python*/site-packages")
    name = canonicalize_name(package)
    (found,) = (one for one in distributions(path=[str(site)]) if canonicalize_name(one.name) == name)
    wanted = [Requirement(one) for one in found.requires or ()]
    left_out = {canonicalize_name(one) for one in without}
    return [
        f"{one.name}{'[' + ','.join(sorted(one.extras)) + ']' if one.extras else ''}{one.specifier}"
        for one in wanted
        if canonicalize_name(one.name) not in left_out and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]


def _call(command: Sequence[str], release: str, log: Path) -> None:
    """Run a command that writes to the log. Raises NotInstalledError."""
    with log.open("ab") as out:
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotInstalledError(f"{release} was not installed within {LIMIT:g} s; see {log}") from None
    if ended.returncode:
        raise NotInstalledError(f"{release} cannot be installed: {_why(log)}; see {log}")


def _why(log: Path) -> str:
    """Return pip's error, or else its last line."""
    lines = [one.strip() for one in log.read_text(encoding="utf-8", errors="replace").splitlines() if one.strip()]
    errors = [one for one in lines if one.startswith("ERROR: ")]
    said = (errors or lines or ["it said nothing"])[-1]
    return said.removeprefix("ERROR: ")[:200].rstrip(".")
