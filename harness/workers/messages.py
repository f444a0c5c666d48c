"""What parent and worker say to each other: frozen values, one JSON line each."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from draftproof.properties.diagnosis.timeline import Timeline
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome


class SubjectSpec(Value, frozen=True, kw_only=True):
    """What a worker runs: the engine on a device, or whatever `factory` ("package.module:name") makes.

    `folder` is a copy of engine/ and kernels/ to import instead ("": the installed ones), with the names of its patched
    `hunks`; the kernels named by `twins` are replaced by their naive twins.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    folder: str = ""
    hunks: tuple[str, ...] = ()
    factory: str = ""
    twins: tuple[str, ...] = ()


class Order(Value, frozen=True, kw_only=True):
    """One scenario to run and judge. `digest`: hash the trace, too; `timeline`: say where the two sides part."""

    number: int
    scenario: Scenario
    digest: bool = False
    timeline: bool = False


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


class Identity(Value, frozen=True, kw_only=True):
    """What a failure is, whatever its values: a thousand hits of one bug have one identity.

    A crash has the contract "crash", the kind of error as its channel and the launch as its phase; a hang likewise.
    """

    contract: str
    channel: str = ""
    phase: str = ""
    relation: str = ""

    @property
    def text(self) -> str:
        """Readable and unique."""
        return " | ".join((self.contract, self.channel, self.phase, self.relation))

    @property
    def slug(self) -> str:
        """A folder's name: unique, as a hash stands at its end."""
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.contract} {self.channel}".lower()).strip("-")[:48]
        return f"{words}-{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"


def general(relation: str) -> str:
    """A relation without its numbers: "row 0 of request 1" and "row 2 of request 0" are one."""
    words = re.split(r"[:;(]", relation)[0]
    return re.sub(r"(0x[0-9a-f]+|[A-Z]=\d+|\d+)", "#", words).strip()


class Answer(Value, frozen=True, kw_only=True):
    """What became of an order. `outcome` is PASS, FAIL, CRASH, HANG, or ERROR for errors of our own.

    `judged` and `failed` name contracts, `bins` what was covered, `counts` what was exercised. `place` and `detail` are
    of a crash or a hang: the journal's last entry, and the traceback, the stacks or the signal. `error` is its kind.
    """

    number: int
    outcome: Outcome
    judged: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    first: Divergence | None = None
    output_changed: bool = False
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    bins: tuple[str, ...] = ()
    seconds: float = 0.0
    digest: str = ""
    place: Place | None = None
    error: str = ""
    detail: str = ""
    timeline: Timeline | None = None
    worker: int = -1

    @property
    def failing(self) -> bool:
        return self.outcome in (Outcome.FAIL, Outcome.CRASH, Outcome.HANG)

    @property
    def identity(self) -> Identity | None:
        """None of an answer that is no failure."""
        if self.first is not None and self.outcome is Outcome.FAIL:
            found = self.first
            return Identity(
                contract=found.contract, channel=found.channel, phase=found.phase, relation=general(found.relation)
            )
        if not self.failing:
            return None
        launch = self.place.launch if self.place else ""
        return Identity(contract=self.outcome.lower(), channel=self.error, phase=launch)
