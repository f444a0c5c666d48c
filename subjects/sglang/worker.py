"""Functions of a release of SGLang as subjects: our engine runs, with them in the place of some of its own."""

from __future__ import annotations

from typing import ClassVar

from draftproof.engine.subject import EngineSubject
from draftproof.properties.lib.errors import ConditionError
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook
from draftproof.properties.values.trace import Trace
from draftproof.subjects.sglang.release import SglangRelease

CONTEXT = frozenset(
    {"round.rows", "round.table", "round.drafts", "accept.emitted", "accept.correct_len", "commit.length"}
)
"""The engine's channels that a part's own channels are judged by: which requests ran when, and with which result."""
Place = tuple[str, str]
"""A module below sglang.srt, and a name in it."""


def on_probes(*drafts: Algorithm) -> Limits:
    """Return what a part can run: probes with these drafts, or with any."""
    return Limits(models=("probe",), features=("adaptive-steps", "draft-batch"), drafts=drafts, variants=())


class LackingPartError(ConditionError):
    """A release does not have a part; nothing of it ran."""


class WorkerSubject(EngineSubject):
    """A part of a release: `own` are the channels that it answers for, `needs` what the release must have."""

    packages = ("torch", "triton")
    limits = on_probes("eagle")
    own: ClassVar[frozenset[str]]
    needs: tuple[Place, ...]

    def __init__(self, wheel: str) -> None:
        """Take a wheel or an unpacked one. Raises WheelError, and WheelImportError for a module that cannot run."""
        super().__init__("cpu")
        self.source = SglangRelease.open(wheel)
        self._found = {place: self.source.find(*place) for place in self.needs}

    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return the part's own, and what they are judged by."""
        return super().channels(scenario) & (CONTEXT | self.own)

    def hooks(self) -> tuple[Hook, ...]:
        """Return what the part needs of the release."""
        channels = tuple(sorted(self.own))
        return tuple(
            Hook(name=name, found=found is not None, channels=channels, where=f"sglang.srt.{module}:{name}")
            for (module, name), found in self._found.items()
        )

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Run the engine with the part in a server that has just begun. Raises LackingPartError."""
        for (module, name), found in self._found.items():
            if found is None:
                raise LackingPartError(f"sglang {self.source.version} has no {name} in sglang.srt.{module}")
        self.source.restart()
        return super().run(scenario, script)
