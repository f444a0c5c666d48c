"""What a request asks of penalties, and the buffers of a round that say so. `B` rows of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_UNIT = 16
"""Repetition penalties are held as this many parts."""


@dataclass(frozen=True)
class PenaltyParams:
    """What is added to logits of tokens, what divides those in the text, and what is subtracted for those emitted."""

    bias: tuple[tuple[int, int], ...] = ()
    repetition: float = 1.0
    frequency: int = 0
    presence: int = 0


NONE = PenaltyParams()
PENALTY_INPUTS = ("repetitions", "frequencies", "presences")
"""The buffers of a round that say how each row [B] is penalised; repetition 0: not at all."""


def penalty_columns(params: Sequence[PenaltyParams | None]) -> dict[str, Sequence[int]]:
    """Return the values of these buffers."""
    given = [one or NONE for one in params]
    return {
        "repetitions": [int(one.repetition * _UNIT) for one in given],
        "frequencies": [one.frequency for one in given],
        "presences": [one.presence for one in given],
    }
