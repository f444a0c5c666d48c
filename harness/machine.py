"""What this machine can check: versions, devices, and ways of running the engine and its kernels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

from draftproof.properties.lib.base import Value

_PACKAGES = ("draftproof", "torch", "triton", "numpy", "hypothesis", "msgspec", "safetensors", "transformers")


_LANES = (
    ("CPU HostGraph", "every engine contract, captured graphs too", "a little-endian machine: traces hold raw bytes"),
    ("Triton interpreted", "kernel contracts, without a GPU", "install triton (Linux only)"),
    (
        "CUDA",
        "CUDA graphs, Triton kernels on the device",
        "a CUDA device and a CUDA build of torch; then --device cuda, make test-gpu",
    ),
    (
        "transformers",
        "the reference against an independent witness",
        "not needed for check --model; install transformers for its witness tests",
    ),
)
"""(name, what it checks, what is missing where it cannot run)"""


class MachineLane(Value, frozen=True, kw_only=True):
    """One way of running the engine or its kernels; `missing` says what to do if it cannot run here."""

    name: str
    runs: bool
    checks: str
    missing: str = ""


class MachineReport(Value, frozen=True, kw_only=True):
    """Versions, devices and lanes of this machine. A package that is not installed has the version ""."""

    python: str
    machine: str
    versions: dict[str, str]
    devices: tuple[str, ...]
    lanes: tuple[MachineLane, ...]


def diagnose() -> MachineReport:
    """Return what this machine has and can run; change nothing."""
    import torch

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    runs = (sys.byteorder == "little", _is_installed("triton"), bool(cuda), _is_installed("transformers"))
    return MachineReport(
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        versions={name: _version(name) for name in _PACKAGES},
        devices=("cpu", *(f"cuda:{i} {name}" for i, name in enumerate(cuda))),
        lanes=tuple(
            MachineLane(name=name, runs=here, checks=checks, missing="" if here else missing)
            for (name, checks, missing), here in zip(_LANES, runs, strict=True)
        ),
    )


def commit() -> str:
    """Return the short commit of the checkout that this runs from, with a + where its code has changed; "" elsewhere.

    Documents are left out: what measures a commit writes some of them.
    """
    checkout = Path(__file__).resolve().parent.parent
    if not (checkout / ".git").exists():
        return ""
    asked = (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--", ".", ":!docs"))
    try:
        git = [
            subprocess.run(["git", *one], cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
            for one in asked
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return git[0] + ("+" if git[1] else "")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
