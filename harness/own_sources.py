"""Which sources of Draftproof run here."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

ROOMS = ("engine", "faults", "harness", "kernels", "properties", "reference", "subjects")
"""The rooms that a worker runs: those of another commit may say otherwise of the same scenario."""


@cache
def sources() -> str:
    """Return a digest of the sources of the rooms that a worker runs."""
    digest = hashlib.sha256()
    for room in ROOMS:
        spec = importlib.util.find_spec(f"draftproof.{room}")
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{room}/{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
