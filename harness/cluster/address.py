"""The address of a cluster as options give it: what is wrong with it, or with this machine, is said at once."""

from __future__ import annotations

import importlib.metadata
import platform

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.extras import is_installed, lacking


class ClusterError(DraftproofError, ValueError):
    """A cluster cannot be joined; the message names its address and says why."""


def require_cluster(address: str) -> None:
    """Raise ClusterError for what is no address of a cluster, and where Ray is missing."""
    host, port = endpoint(address)
    if address != "auto" and not (host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ClusterError(f"invalid --cluster {address!r}: expected ray://HOST:PORT, HOST:PORT or auto")
    if not is_installed("cluster"):
        raise ClusterError(f"invalid --cluster {address!r}: {lacking('cluster')}")


def endpoint(address: str) -> tuple[str, str]:
    """Return the host and the port of ray://HOST:PORT or HOST:PORT, as they stand there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return host, port


def not_joined(address: str, why: str) -> ClusterError:
    """Return the error for a cluster that is not there, or not one of this Python and this Ray."""
    return ClusterError(
        f"invalid --cluster {address!r}: expected a Ray cluster that runs, with {_own()} as here, but {why}"
    )


def _own() -> str:
    try:
        ray = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        ray = "none"
    return f"Python {platform.python_version()} and Ray {ray}"
