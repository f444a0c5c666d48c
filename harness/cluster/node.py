"""What a node of a cluster is: its devices, its versions, and the sources of Draftproof that it has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess

from draftproof.harness.cluster.messages import ClusterNode
from draftproof.harness.own_sources import sources

_PACKAGES = ("draftproof", "torch", "triton", "numpy", "hypothesis")


def this_node(device: str) -> ClusterNode:
    """Return what this process says of where it runs. On a GPU it takes hold of none."""
    versions = ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)))
    where = _gpu() if device == "cuda" else f"{platform.machine()} CPU"
    python = f"python {platform.python_version()}"
    return ClusterNode(name=f"{platform.node()}: {where}, {python}, {versions}", sources=sources())


def _gpu() -> str:
    """Return the names of the GPUs that this process may use, their driver, and which of the node's they are."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        asked += ["-i", visible]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        told = "CUDA device"
    which = f" (GPU {visible})" if visible else ""
    return "; ".join(" driver ".join(line.split(", ")) for line in told.splitlines()) + which


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
