"""The faults that are put into each package's kernels: a table NAME.toml beside the bindings NAME.py."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from draftproof.properties.formats.kernel_fault import KernelFault


def faults_of(package: str) -> Mapping[str, tuple[KernelFault, ...]]:
    """Return the faults of a package's kernels, by the names of their bindings; none if it has no table."""
    file = Path(__file__).with_name(f"{package}.toml")
    if not file.is_file():
        return {}
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), dict[str, tuple[KernelFault, ...]])
