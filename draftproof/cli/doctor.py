"""`draftproof doctor`: what this machine can check."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys

from draftproof.cli import inputs, screen
from draftproof.properties.values.base import Value

PACKAGES = ("draftproof", "torch", "triton", "numpy", "hypothesis", "msgspec", "safetensors", "transformers")


class Lane(Value, frozen=True, kw_only=True):
    """A way of running the engine or its kernels; `missing` says what to do if it cannot run here."""

    name: str
    runs: bool
    checks: str
    missing: str = ""


class Diagnosis(Value, frozen=True, kw_only=True):
    """What is here. `versions`: "" for a package that is not installed."""

    python: str
    machine: str
    versions: dict[str, str]
    devices: tuple[str, ...]
    lanes: tuple[Lane, ...]


def doctor(json: inputs.Json = None) -> None:
    """Say which versions and devices are here, what can be checked with them, and what is missing."""
    found = diagnose()
    table = screen.table("what", "version")
    for name, version in {"python": found.python, **found.versions}.items():
        table.add_row(name, version or "not installed")
    console = screen.console()
    console.print(table)
    lanes = screen.table("lane", "runs here", "checks", "to do")
    for lane in found.lanes:
        lanes.add_row(lane.name, "yes" if lane.runs else "no", lane.checks, lane.missing)
    console.print(lanes)
    screen.line(f"devices: {', '.join(found.devices)} ({found.machine}, {os.cpu_count()} cores)")
    inputs.write_json(json, found)


def diagnose() -> Diagnosis:
    """Look around; nothing is changed."""
    import torch

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Diagnosis(
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


def _host() -> Lane:
    little = sys.byteorder == "little"
    missing = "" if little else "a little-endian machine: traces hold raw bytes"
    return Lane(name="CPU HostGraph", runs=little, checks="every engine contract, captured graphs too", missing=missing)


def _interpreted() -> Lane:
    here = importlib.util.find_spec("triton") is not None
    missing = "" if here else "install triton (Linux only)"
    return Lane(name="Triton interpreted", runs=here, checks="kernel contracts, without a GPU", missing=missing)


def _cuda(here: bool) -> Lane:
    missing = "" if here else "a CUDA device and a CUDA build of torch; then --device cuda, make test-gpu"
    return Lane(name="CUDA", runs=here, checks="CUDA graphs, Triton kernels on the device", missing=missing)


def _real() -> Lane:
    here = importlib.util.find_spec("transformers") is not None
    missing = "" if here else "not needed for check --model; install transformers for its witness tests"
    return Lane(name="transformers", runs=here, checks="the reference against an independent witness", missing=missing)
