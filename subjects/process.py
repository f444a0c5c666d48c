"""What a subject's process does for its parent, on either side of the transport."""

from __future__ import annotations

import ctypes
import platform
import signal
import sys
from importlib import metadata

from draftproof.properties.values.subject import Subject

_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """End this process when its parent does. Where the system has no such call, nothing happens.

    There the end of standard input is all that tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def versions(subject: Subject) -> dict[str, str]:
    """Return the versions of this Python and of the subject's packages in it; "" of one that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in subject.packages}}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
