"""Where a wrong recurrent state comes from: another row, another request, or a pool read at another stride.

`A` steps that intermediate states are allocated for (the largest step count + 1), `W` the verify width in force, `b`
the place of a row in its batch, `t` a verify row. The state after row t of b belongs at b * A + t of a flat pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.compare import apart, same_value
from draftproof.properties.contracts.evidence import Evidence, Row
from draftproof.properties.values.trace import Datum, Key

Values = Mapping[Key, Datum]


class Place(NamedTuple):
    """A row of a batch: who is at place `b`, and the verify row `t`."""

    b: int
    t: int
    request: int


class _Pair(NamedTuple):
    """A state that is wrong: where it was read, and whose state was found there (None: nobody's of this batch)."""

    at: Place
    origin: Place | None


def origin(evidence: Evidence, channel: str, key: Key, got: Values) -> tuple[str, str]:
    """How the wrong state at `key` of a channel with a state a row came about: by a wrong stride; as another row's.

    Either is "" if it did not. A wrong stride shows in all rows of a batch, so all that are wrong in it are asked.
    """
    batch = _batch(evidence, key)
    states = _states(evidence, batch, key.layer)
    pairs = [
        _Pair(place, _find(states, value, place))
        for place, value in _reported(evidence, channel, batch, key.layer, got).items()
        if not same_value(states.get(place), value)
    ]
    own = next((pair for pair in pairs if (pair.at.request, pair.at.t) == (key.request, _row(evidence, key))), None)
    if own is None:
        return "", ""
    return _stride(evidence, batch[0].step, own, pairs, states), _holds(own)


def _batch(evidence: Evidence, key: Key) -> tuple[Row, ...]:
    """The decode batch that a round of a request ran in; () for a prefill."""
    steps = [row.step for row in evidence.rows if (row.request, row.round) == (key.request, key.round) and row.phase]
    return evidence.batches.get((steps[0], 1), ()) if steps else ()


def _row(evidence: Evidence, key: Key) -> int:
    """The verify row whose state a key is of: its own, or that of the step index."""
    if key.row >= 0:
        return key.row
    index = evidence.reference.channel("commit.step_index").get(Key(key.request, key.round))
    return index if isinstance(index, int) else -1


def _states(evidence: Evidence, batch: tuple[Row, ...], layer: int) -> dict[Place, Datum]:
    """The right state of every row of a batch that the reference knows."""
    states: dict[Place, Datum] = {}
    for row in batch:
        where = {"request": row.request, "round": row.round, "layer": layer}
        for channel in ("commit.intermediate", "commit.state"):
            for key, value in evidence.reference.of(channel, **where):
                states[Place(row.position, _row(evidence, key), row.request)] = value
    return states


def _reported(evidence: Evidence, channel: str, batch: tuple[Row, ...], layer: int, got: Values) -> dict[Place, Datum]:
    """What was got of a channel in a batch, by the place where it was read."""
    by_round = {(row.request, row.round): row for row in batch}
    found: dict[Place, Datum] = {}
    for key, value in got.items():
        row = by_round.get((key.request, key.round))
        if row is not None and key.layer == layer:
            found[Place(row.position, _row(evidence, key), row.request)] = value
    return found


def _find(states: Mapping[Place, Datum], value: Datum, at: Place) -> Place | None:
    """Whose state a value is, the nearest if several have it."""
    same = [place for place, state in states.items() if same_value(state, value)]
    return min(same, key=lambda place: (abs(place.b - at.b), abs(place.t - at.t)), default=None)


def _stride(evidence: Evidence, step: int, own: _Pair, pairs: list[_Pair], states: Mapping[Place, Datum]) -> str:
    """The stride other than A that explains every wrong row of the batch whose origin is known; "" if there is none.

    That of the width in force is believed after one row, any other only if rows of several places agree.
    """
    allocated, width = evidence.scenario.steps + 1, evidence.width(step)
    known = [(pair.at, pair.origin) for pair in pairs if pair.origin is not None]
    several = len({at.b for at, _ in known}) > 1 or any(at.b != found.b for at, found in known)
    strides = [width, *(range(1, 2 * allocated) if several else ())]
    for stride in (stride for stride in strides if known and stride != allocated):
        for moved in (_read_at, _written_at):
            agrees = all(moved(at, stride, allocated) == (found.b, found.t) for at, found in known)
            place = moved(own.at, stride, allocated)
            # A row that holds what nobody left in it must have a reason for that, too.
            if agrees and (own.origin is not None or place not in {(b, t) for b, t, _ in states}):
                name = f"stride {'W=' if stride == width else ''}{stride} instead of A={allocated}"
                return f"{name}: {_moved(own.at, place, moved is _read_at, states)}"
    return ""


def _moved(at: Place, place: tuple[int, int], read: bool, states: Mapping[Place, Datum]) -> str:
    """One sentence on who reads or holds whose row."""
    request = next((of for b, _, of in states if b == place[0]), None)
    whose = f"row {place[1]} of " + (f"batch place {place[0]}" if request is None else f"request {request}")
    does = f"reads where {whose} lies" if read else f"holds what was written for {whose}"
    return f"row {at.t} of request {at.request} {does}"


def _read_at(at: Place, stride: int, allocated: int) -> tuple[int, int]:
    """Whose row lies where b * stride + t is read."""
    return divmod(at.b * stride + at.t, allocated)


def _written_at(at: Place, stride: int, allocated: int) -> tuple[int, int]:
    """Whose row was written, by the wrong stride, where b * A + t is read rightly."""
    return divmod(at.b * allocated + at.t, stride)


def _holds(own: _Pair) -> str:
    """Which other row of the batch has this state."""
    if own.origin is None:
        return ""
    if own.origin.request == own.at.request:
        return f"holds the state of row {own.origin.t}, {apart(own.at.t, own.origin.t)}"
    return f"holds the state of request {own.origin.request}, row {own.origin.t}"
