"""A mistake that is put into a package's kernel, and what the kernel's contract said about it."""

from __future__ import annotations

from draftproof.properties.formats.kernel_report import KernelHeld
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome

KERNEL_FAULT_KINDS = ("dtype", "index", "init", "mask", "off by one", "order", "stride", "write set")
"""What goes wrong in kernels."""


class KernelFault(Value, frozen=True, kw_only=True):
    """A change of a kernel's source text: `old`, which stands once in a function of its module, becomes `new`.

    `function` is "" for the kernel itself. `wrong` says what goes wrong then.
    """

    kind: str
    wrong: str
    old: str
    new: str
    function: str = ""


class FaultHeld(Value, frozen=True, kw_only=True):
    """The result of one fault: the `verdict` of the kernel that has it, and how many `calls` it took to find it."""

    kernel: str
    kind: str
    wrong: str
    verdict: Outcome
    found: bool
    calls: int = 0
    first: Divergence | None = None
    reason: str = ""


class FaultyRelease(Value, frozen=True, kw_only=True):
    """One release: each kernel as it is, its clean twin, and with each of its faults."""

    package: str = ""
    version: str = ""
    clean: tuple[KernelHeld, ...] = ()
    faults: tuple[FaultHeld, ...] = ()


class KernelFaultReport(Value, frozen=True, kw_only=True):
    """What `draftproof lab kernels faults` found.

    PASS if every fault was found and every clean twin passes, FAIL if a fault was not found or a clean twin fails,
    INCONCLUSIVE if a fault could not be put, or its kernel not be run.
    """

    verdict: Outcome
    implementation: str
    device: str
    seed: int
    examples: int
    releases: tuple[FaultyRelease, ...]
