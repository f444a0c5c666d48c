"""Find the row whose recurrent state was found in place of another row's.

`b` is the place of a row in its batch, `t` a verify row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.diagnosis.lanes import explains
from draftproof.properties.diagnosis.strides import row_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.relations import OtherState
from draftproof.properties.values.trace import Key


class _Owner(NamedTuple):
    """Verify row `t` of the request at place `b` of its batch; `step` is the engine step that left a state."""

    b: int
    t: int
    request: int
    step: int


def origin(evidence: Evidence, key: Key, value: Datum) -> OtherState | None:
    """Return the row whose state was found at `key`, in a channel with one state a row; None if it is unknown."""
    decoded = (row for row in evidence.schedule.rows if row.phase == 1)
    row = next((row for row in decoded if (row.request, row.round) == (key.request, key.round)), None)
    if row is None:
        return None
    states = _states(evidence, row.step, key.layer)
    at = _Owner(row.place, row_of(evidence, key), row.request, row.step)
    owners = [owner for owner, state in states.items() if owner != at and explains(state, value, states.get(at))]
    if not owners:
        return None
    nearest = min(owners, key=lambda owner: (owner.step != at.step, abs(owner.b - at.b), abs(owner.t - at.t)))
    earlier = nearest.step != at.step
    if nearest.request == at.request:
        return OtherState(nearest.t, nearest.t - at.t, earlier_round=earlier)
    return OtherState(nearest.t, request=nearest.request, earlier_round=earlier)


def _states(evidence: Evidence, until: int, layer: int) -> Mapping[_Owner, Datum]:
    """Return the state in each place after the verify of an engine step, as far as the reference knows it.

    It is the right state of each row of the step; places that the step does not reach keep states of earlier batches.
    """
    last: dict[tuple[int, int], tuple[_Owner, Datum]] = {}
    for row in (row for row in evidence.schedule.rows if row.phase == 1 and row.step <= until):
        where = {"request": row.request, "round": row.round, "layer": layer}
        for channel in ("commit.intermediate", "commit.state"):
            for key, value in evidence.reference.of(channel, **where):
                owner = _Owner(row.place, row_of(evidence, key), row.request, row.step)
                last[owner.b, owner.t] = owner, value
    return dict(last.values())
