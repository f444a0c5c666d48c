"""What comes before what in a run, across its requests: by engine step, then as in the channel table."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from draftproof.properties.evidence.schedule import ObservedSchedule
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.trace import Key, Observation


class RunOrder:
    """The order of the observations of one run, as far as it says when its rounds ran."""

    def __init__(self, schedule: ObservedSchedule) -> None:
        self._schedule = schedule

    def __call__(self, channel: str, key: Key) -> tuple[int, ...]:
        """Return (engine step, phase, step, layer, rank, request, row)."""
        return (self.step(channel, key), *Observation(channel, key, 0).order[1:])

    def step(self, channel: str, key: Key) -> int:
        """Return the engine step of an observation.

        A round that never ran, and a counter, count after all that ran; where nothing says when, rounds stand for it.
        """
        if channel.startswith("total."):
            return self._schedule.last_step + 1
        if key.request < 0:
            return key.round
        began = self._schedule.steps.get((key.request, key.round))
        if began is not None:
            return self._of_chunk(channel, key, began)
        spans = self._schedule.spans
        return spans[key.request][1] + 1 if key.request in spans else key.round

    def _of_chunk(self, channel: str, key: Key, began: int) -> int:
        """Return when the chunk ran that a position, the row of an entry, is in; `began` where there is none."""
        starts, steps = self._chunks.get((key.request, key.round), ((), ()))
        has_position = CHANNELS[channel].phase == "extend" or channel == "commit.kv"
        if not has_position or key.row < 0 or len(starts) < 2:
            return began
        return steps[max(0, bisect_right(starts, key.row) - 1)]

    @cached_property
    def _chunks(self) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]]:
        """(request, round) -> the first position of every chunk, and the engine step of each."""
        schedule, found = self._schedule, dict[tuple[int, int], list[tuple[int, int]]]()
        for row in schedule.rows:
            if not row.phase:
                start = schedule.chunk_starts[row.request, row.round, row.chunk]
                found.setdefault((row.request, row.round), []).append((start, row.step))
        return {at: tuple(zip(*sorted(chunks), strict=True)) for at, chunks in found.items()}  # type: ignore[misc]
