"""Faults as `draftproof faults list` shows them."""

from __future__ import annotations

from draftproof.faults.catalogue import FaultFile
from draftproof.faults.patching import StalePatchError, apply
from draftproof.properties.values.base import Value


class FaultSummary(Value, frozen=True, kw_only=True):
    """One fault as `faults list` shows it; `applies` is False for a stale one."""

    id: str
    patches: str
    contract: str
    channel: str
    draft: str
    source: str
    mechanism: str
    strategies: str
    smoke: bool
    explained: str
    applies: bool


class FaultList(Value, frozen=True, kw_only=True):
    """What `faults list --json` writes."""

    faults: tuple[FaultSummary, ...]


def summary(file: FaultFile, sources: dict[str, str]) -> FaultSummary:
    """Return a fault as it is listed, and whether it applies to `sources`."""
    fault = file.fault
    return FaultSummary(
        id=fault.id,
        patches=fault.patches,
        contract=fault.contract,
        channel=fault.channel,
        draft=fault.draft,
        source=fault.source,
        mechanism=" ".join(fault.mechanism.split()),
        strategies=fault.strategies,
        smoke=fault.smoke,
        explained=fault.explained,
        applies=_applies(file, sources),
    )


def _applies(file: FaultFile, sources: dict[str, str]) -> bool:
    hunks = file.hunks()
    try:
        for path in {hunk.path for hunk in hunks}:
            apply(sources.get(path, ""), [hunk for hunk in hunks if hunk.path == path])
    except StalePatchError:
        return False
    return True
