"""How far every operation of a program is from doing something else, at worst."""

from __future__ import annotations

import math
from typing import NamedTuple

from draftproof.properties.lib.errors import require_input
from draftproof.tracer.kernel import ROUNDING, DistanceKernel
from draftproof.tracer.matrices import CODES, GATE
from draftproof.tracer.program import Program

_SUMMED = 4 * ROUNDING["float32"]
"""What sums in float32, and what norms take for a root mean square, are off at most, of numbers about 1."""


class Margin(NamedTuple):
    """An operation's margin, and the least that it may be.

    `scores`: between what attention has to find and anything else, in units of the exponent.
    `gates`: between an MLP's unit that is on and one that is off, on either side.
    `logits`: between the first token and the second.
    """

    name: str
    value: float
    least: float


def margins(program: Program, scores: DistanceKernel, length: int, dtype: str) -> tuple[Margin, ...]:
    """Return the margins of a program in a precision. Raises InputError if one is too small.

    A deviation of a bit grows with the inputs of each table, unless it is so small that it is rounded away.
    """

    def rounded(deviation: float) -> float:
        return 0.0 if deviation < ROUNDING[dtype] / 2 else deviation

    last = (program.layers[-1], *([program.head.layer] if program.head else []))
    leak = 2 * length * math.exp(-scores.gap)
    drift, gates = 0.0, GATE
    for layers in (*((layer,) for layer in program.layers[:-1]), last):
        literals = max(len(table.inputs) for layer in layers for table in layer.tables)
        drift = rounded(drift + leak + _SUMMED)
        gates = min(gates, GATE * (1 - (2 * literals - 1) * drift))
        drift = rounded(4 * literals * drift + _SUMMED)
    found = (
        Margin("scores", scores.gap, scores.needed),
        Margin("gates", gates, 20.0),
        Margin("logits", 2 * (min(CODES) - sum(CODES) * drift), 8.0),
    )
    for name, value, least in found:
        expected = f"less at {dtype}: the margin of {name} is {value:.1f}, and has to be {least:.1f}"
        require_input(value >= least, "length", length, expected)
    return found
