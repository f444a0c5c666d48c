"""The observations of one run, as they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from draftproof.engine.stages import Commit
from draftproof.properties.values.observed import Datum, Vector
from draftproof.properties.values.trace import Key, Observation


class ObservationLog:
    """Collects observations in order."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def add(self, channel: str, key: Key, value: Datum) -> None:
        """Append one observation."""
        self.observations.append(Observation(channel, key, value))

    def add_states(
        self, channel: str, commits: Sequence[Commit], layers: Iterable[int], states: Iterable[Sequence[Vector]]
    ) -> None:
        """Append a vector for each layer and each commit; `states` has a sequence of vectors for each layer."""
        for layer, vectors in zip(layers, states, strict=True):
            for commit, vector in zip(commits, vectors, strict=True):
                self.add(channel, Key(commit.request, commit.round, layer=layer), vector)
