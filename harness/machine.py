"""What this machine can check: versions, devices, and ways of running the engine and its kernels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

from draftproof.properties.values.base import Value

PACKAGES = ("draftproof", "torch", "triton", "numpy", "hypothesis", "msgspec", "safetensors", "transformers")


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
    return MachineReport(
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        versions={name: _version(name) for name in PACKAGES},
        devices=("cpu", *(f"cuda:{i} {name}" for i, name in enumerate(cuda))),
        lanes=(_host(), _interpreted(), _cuda(bool(cuda)), _real()),
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _host() -> MachineLane:
    little = sys.byteorder == "little"
    missing = "" if little else "a little-endian machine: traces hold raw bytes"
    return MachineLane(
        name="CPU HostGraph", runs=little, checks="every engine contract, captured graphs too", missing=missing
    )


def _interpreted() -> MachineLane:
    here = importlib.util.find_spec("triton") is not None
    missing = "" if here else "install triton (Linux only)"
    return MachineLane(name="Triton interpreted", runs=here, checks="kernel contracts, without a GPU", missing=missing)


def _cuda(here: bool) -> MachineLane:
    missing = "" if here else "a CUDA device and a CUDA build of torch; then --device cuda, make test-gpu"
    return MachineLane(name="CUDA", runs=here, checks="CUDA graphs, Triton kernels on the device", missing=missing)


def _real() -> MachineLane:
    here = importlib.util.find_spec("transformers") is not None
    missing = "" if here else "not needed for check --model; install transformers for its witness tests"
    return MachineLane(
        name="transformers", runs=here, checks="the reference against an independent witness", missing=missing
    )
