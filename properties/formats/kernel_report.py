"""The results of a package's kernels under their contracts."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome


class KernelHeld(Value, frozen=True, kw_only=True):
    """One kernel of one release: `calls` were made, `left_out` are generated ones that it does not take.

    ABSENT is the verdict of a kernel that the release does not have, INCONCLUSIVE of one that cannot be imported here,
    or used one of `stubs`: of what is not there, and something without a value stood for. `lacks` has all of that which
    its module imports, used or not, and why it is not there.
    """

    name: str
    op: str
    verdict: Outcome
    calls: int = 0
    left_out: int = 0
    cannot: str = ""
    first: Divergence | None = None
    reason: str = ""
    detail: str = ""
    stubs: tuple[str, ...] = ()
    lacks: Mapping[str, str] = {}
    seconds: float = 0.0


class KernelRelease(Value, frozen=True, kw_only=True):
    """The kernels of one release; `package` and `version` are "" where that is what is installed."""

    package: str = ""
    version: str = ""
    kernels: tuple[KernelHeld, ...] = ()


class KernelReport(Value, frozen=True, kw_only=True):
    """What `draftproof lab kernels check` found."""

    verdict: Outcome
    implementation: str
    device: str
    seed: int
    examples: int
    releases: tuple[KernelRelease, ...]
