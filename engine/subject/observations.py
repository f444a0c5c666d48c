"""The observations of one run, as they come."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.properties.values.observed import Datum, Vector
from draftproof.properties.values.trace import Key, Observation


class ObservationLog:
    """Collects observations in order."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def add(self, channel: str, key: Key, value: Datum) -> None:
        """Append one observation."""
        if type(key.request) is not int:
            key = Key(int(key.request), *key[1:])
        self.observations.append(Observation(channel, key, value))

    def drop(self, request: int, round_: int, but: frozenset[str]) -> None:
        """Forget what was observed of a round of a request, except in the channels `but`."""
        place = (request, round_)
        self.observations[:] = [one for one in self.observations if one.key[:2] != place or one.channel in but]


def vectors(tensor: Tensor) -> list[Vector]:
    """Rows of a [R, ..] tensor as trace vectors: bytes of integers, or float64 arrays."""
    flat = tensor.detach().flatten(1).contiguous().cpu()
    if flat.dtype == torch.int64:
        return [row.tobytes() for row in flat.numpy()]
    array = flat.to(torch.float64).numpy().copy()
    array.setflags(write=False)
    return list(array)
