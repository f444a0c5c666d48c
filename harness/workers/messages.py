"""What parent and worker say to each other: frozen values, one JSON line each."""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.harness.identity import Identity, Level, identity_of
from draftproof.properties.diagnosis.timeline import Timeline
from draftproof.properties.formats.kernel_fault import KernelFault
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Divergence, Outcome


class SubjectSpec(Value, frozen=True, kw_only=True):
    """What a worker runs: a subject, on a device.

    `folder` is a copy of engine/ and kernels/ to import instead ("": the installed ones), with the names of its patched
    `hunks`. `search` is what PYTHONPATH was for a subject in another Python: a worker's own has more.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    folder: str = ""
    hunks: tuple[str, ...] = ()
    subject: SubjectChoice = BUILT_IN_SUBJECT
    search: str = ""


class Order(Value, frozen=True, kw_only=True, tag="scenario"):
    """One scenario to run and judge.

    `digest`: hash the trace, too; `timeline`: show where the two sides part; `measured`: count what was exercised;
    `kernels`: name the kernels that are called; `twins`: kernels that their naive twins replace meanwhile.
    """

    number: int
    scenario: Scenario
    digest: bool = False
    timeline: bool = False
    measured: bool = True
    kernels: bool = False
    twins: tuple[str, ...] = ()


class PlainOrder(Value, frozen=True, kw_only=True, tag="plain"):
    """One scenario to run without judging it; counts `scenarios`, `outputs_changed`, `drafts_accepted` and `rounds`."""

    number: int
    scenario: Scenario


class KernelOrder(Value, frozen=True, kw_only=True, tag="kernel"):
    """One call of a kernel to hold to its contract: case number `place` of those generated for `op` from `seed`."""

    number: int
    op: str
    seed: int
    place: int


class BoundOrder(Value, frozen=True, kw_only=True, tag="bound"):
    """Calls of a package's kernel, `count` generated from `seed` for a binding, up to the first that fails.

    `implementation` is MODULE:NAME, `op` its op if it is no binding. `wheel` is a folder with the unpacked release that
    has the kernel, "" for an installed one. A `fault` is put into the kernel before.
    """

    number: int
    implementation: str
    op: str = ""
    wheel: str = ""
    seed: int = 0
    count: int = 1
    fault: KernelFault | None = None


AnyOrder = Order | PlainOrder | KernelOrder | BoundOrder


class Ready(Value, frozen=True, kw_only=True):
    """The first line of a worker: its subject is made, orders may come."""

    pid: int


class Place(Value, frozen=True, kw_only=True):
    """What a worker was about to do, by its journal: which run, which engine step, which kind of launch.

    `run` is order (taken in hand, nothing begun), reference, base, variant or judge; `launch` is "plan" between
    launches.
    """

    run: str
    step: int = -1
    launch: str = ""

    def __str__(self) -> str:
        step = f", engine step {self.step}" if self.step >= 0 else ""
        return f"{self.run}{step}{f', {self.launch}' if self.launch else ''}"


class Answer(Value, frozen=True, kw_only=True):
    """The result of an order. `outcome` is PASS, FAIL, CRASH, HANG, or ERROR for errors of our own.

    `judged` names contracts, `failures` has the first divergence of each that failed, and `first` is the first of all.
    `bins` is what was covered, `counts` what was exercised, `beyond` the counts that no such scenario of this subject
    can reach, `channels` what it reported, `left_out` those that it did not report and the reference has; `hunks` names
    the patched hunks that have had an effect in this worker.
    `node` is the node of a cluster that it comes from, "" for this machine. `stubs` names what a package's kernel used
    that is missing, so that a stub stood for it, and `lacks` what its module lacks of that, and why. The others
    describe a crash, a hang or an error: `place` is the journal's last entry, `error` the kind, `message` the first
    line of the subject's exception ("" if the process died), `reason` all in one line, `detail` the traceback, the
    stacks or the signal.
    """

    number: int
    outcome: Outcome
    judged: tuple[str, ...] = ()
    failures: dict[str, Divergence] = msgspec.field(default_factory=dict)
    first: Divergence | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    bins: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    seconds: float = 0.0
    digest: str = ""
    place: Place | None = None
    error: str = ""
    message: str = ""
    reason: str = ""
    detail: str = ""
    timeline: Timeline | None = None
    worker: int = -1
    node: str = ""
    hunks: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    lacks: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the contracts that failed."""
        return tuple(self.failures)

    @property
    def failing(self) -> bool:
        return self.outcome in (Outcome.FAIL, Outcome.CRASH, Outcome.HANG)

    @property
    def identity(self) -> Identity | None:
        """None of an answer that is no failure."""
        if self.first is not None and self.outcome is Outcome.FAIL:
            return identity_of(self.first)
        if not self.failing:
            return None
        launch = self.place.launch if self.place else ""
        return Identity(contract=self.outcome.lower(), channel=self.error, phase=launch, exact=self.message)

    @property
    def brief(self) -> Answer:
        """The answer without what it covered, as reports hold it."""
        return msgspec.structs.replace(self, bins=(), counts={}, beyond=(), channels=(), left_out=())

    def is_same(self, identity: Identity, level: Level) -> bool:
        """Return True if it fails as `identity` says."""
        return identity.is_same(self.identity, level)
