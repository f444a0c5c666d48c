"""The prefill engine of a pair as it is reported: its pages, slots and state slots are numbered behind the other's."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from draftproof.engine.stages import StepPlan
from draftproof.engine.subject.observations import ObservationLog
from draftproof.engine.subject.recorder import TraceRecorder
from draftproof.engine.subject.taps import RecordingTaps
from draftproof.properties.values.observed import Datum, MemoryRegion, PackedRow, WrittenPlace
from draftproof.properties.values.scenario import Memory, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key

_SLOTS = (MemoryRegion.TARGET, MemoryRegion.DRAFT)
_STATES = (MemoryRegion.STATES, MemoryRegion.CHECKPOINTS)


class Numbers:
    """Numbers of the pages, slots and state slots of a prefill engine (docs/semantics/, S-DISAGG-2)."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def page(self, page: int) -> int:
        """Return the number of a page; the reserved one stays."""
        return page + self._memory.pages if page else 0

    def slot(self, slot: int) -> int:
        """Return the number of a KV slot."""
        page, offset = divmod(slot, self._memory.page_size)
        return self.page(page) * self._memory.page_size + offset

    def state(self, slot: int) -> int:
        """Return the number of a state slot."""
        return slot + self._memory.request_slots if slot else 0

    def written(self, place: WrittenPlace) -> WrittenPlace:
        """Return a place with its number."""
        if place.region in _SLOTS:
            return replace(place, place=self.slot(place.place))
        return replace(place, place=self.state(place.place)) if place.region in _STATES else place


class PrefillLog(ObservationLog):
    """Appends to the observations of another log, with the numbers of a prefill engine."""

    def __init__(self, log: ObservationLog, numbers: Numbers) -> None:
        self.observations, self._numbers = log.observations, numbers

    def add(self, channel: str, key: Key, value: Datum) -> None:
        """See ObservationLog."""
        super().add(channel, key, self._numbered(channel, value))

    def _numbered(self, channel: str, value: Datum) -> Datum:
        if channel == "commit.written" and isinstance(value, tuple):
            return tuple(self._numbers.written(one) for one in value if isinstance(one, WrittenPlace))
        if channel == "verify.packed" and isinstance(value, tuple):
            rows = (one for one in value if isinstance(one, PackedRow))
            return tuple(replace(one, slots=tuple(map(self._numbers.slot, one.slots))) for one in rows)
        if not isinstance(value, int):
            return value
        if channel == "round.table":
            return self._numbers.page(value)
        if channel == "round.state":
            return self._numbers.state(value)
        return self._numbers.slot(value) if channel.endswith(".slots") else value


class PrefillRecorder(TraceRecorder):
    """Watches the prefill engine of a pair; what is in its pools the recorder of the other one reports."""

    def __init__(
        self,
        scenario: Scenario,
        script: Script,
        taps: RecordingTaps | None,
        announce: Callable[[int, str], None],
        log: ObservationLog,
    ) -> None:
        super().__init__(scenario, script, taps, announce, PrefillLog(log, Numbers(scenario.memory)))

    def on_step(self, plan: StepPlan) -> None:
        """Report nothing."""
