"""Faults as `draftproof faults list` shows them."""

from __future__ import annotations

from msgspec.structs import asdict

from draftproof.faults.catalogue import Fault, FaultFile
from draftproof.faults.patching import StalePatchError, apply
from draftproof.properties.values.base import Value


class FaultSummary(Fault, frozen=True, kw_only=True):
    """One fault as `faults list` shows it; `applies` is False for a stale one."""

    applies: bool


class FaultList(Value, frozen=True, kw_only=True):
    """What `faults list --json` writes."""

    faults: tuple[FaultSummary, ...]


def summary(file: FaultFile, sources: dict[str, str]) -> FaultSummary:
    """Return a fault as it is listed, and whether it applies to `sources`."""
    fault = asdict(file.fault)
    mechanism = " ".join(file.fault.mechanism.split())
    return FaultSummary(**{**fault, "mechanism": mechanism}, applies=_applies(file, sources))


def _applies(file: FaultFile, sources: dict[str, str]) -> bool:
    hunks = file.hunks()
    try:
        for path in {hunk.path for hunk in hunks}:
            apply(sources.get(path, ""), [hunk for hunk in hunks if hunk.path == path])
    except StalePatchError:
        return False
    return True
