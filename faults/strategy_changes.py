"""What the strategies owe to faults: every change that one forced, as its header says."""

from __future__ import annotations

from collections.abc import Iterable

from draftproof.faults.catalogue import FaultFile
from draftproof.properties.values.base import Value


class Change(Value, frozen=True, kw_only=True):
    """A change of what is generated, and the fault that was missed before."""

    fault: str
    text: str


def changes(files: Iterable[FaultFile]) -> tuple[Change, ...]:
    """The changes that these faults forced, by fault."""
    found = {file.fault.id: " ".join(file.fault.strategies.split()) for file in files}
    return tuple(Change(fault=fault, text=text) for fault, text in sorted(found.items()) if text)
