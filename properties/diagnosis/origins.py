"""Whose a wrong recurrent state is: that of another row of the batch, of another request, or of an earlier round.

`b` the place of a row in its batch, `t` a verify row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.diagnosis.compare import apart
from draftproof.properties.diagnosis.lanes import explains
from draftproof.properties.diagnosis.strides import row_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.trace import Key


class _Place(NamedTuple):
    """Verify row `t` of the request at place `b` of its batch; `step` is the engine step that left a state."""

    b: int
    t: int
    request: int
    step: int


def origin(evidence: Evidence, key: Key, value: Datum) -> str:
    """Whose the wrong state at `key`, of a channel with a state a row, is; "" if that is not known."""
    batch = _batch(evidence, key)
    states = _states(evidence, batch, key.layer)
    row = next((row for row in batch if (row.request, row.round) == (key.request, key.round)), None)
    if row is None:
        return ""
    at = _Place(row.place, row_of(evidence, key), row.request, row.step)
    same = [place for place, state in states.items() if place != at and explains(state, value, states.get(at))]
    nearest = min(
        same, key=lambda place: (place.step != at.step, abs(place.b - at.b), abs(place.t - at.t)), default=None
    )
    return _holds(at, nearest) if nearest else ""


def _batch(evidence: Evidence, key: Key) -> tuple[Row, ...]:
    """The decode batch that a round of a request ran in; () for a prefill."""
    steps = [
        row.step for row in evidence.schedule.rows if (row.request, row.round) == (key.request, key.round) and row.phase
    ]
    return evidence.schedule.batches.get((steps[0], 1), ()) if steps else ()


def _states(evidence: Evidence, batch: tuple[Row, ...], layer: int) -> Mapping[_Place, Datum]:
    """What lies where after the verify of a batch, as far as the reference knows: the right state of each of its rows,
    and in places that it does not reach those that earlier batches left."""
    last: dict[tuple[int, int], tuple[_Place, Datum]] = {}
    until = batch[0].step if batch else -1
    for row in (row for row in evidence.schedule.rows if row.phase == 1 and row.step <= until):
        where = {"request": row.request, "round": row.round, "layer": layer}
        for channel in ("commit.intermediate", "commit.state"):
            for key, value in evidence.reference.of(channel, **where):
                place = _Place(row.place, row_of(evidence, key), row.request, row.step)
                last[place.b, place.t] = place, value
    return dict(last.values())


def _holds(at: _Place, found: _Place) -> str:
    """Which other row has this state."""
    left = "" if found.step == at.step else ", left by an earlier round"
    if found.request == at.request:
        return f"holds the state of row {found.t}, {apart(at.t, found.t)}{left}"
    return f"holds the state of request {found.request}, row {found.t}{left}"
