"""Where a wrong recurrent state comes from: another row, another request, or a pool read at another stride.

`A` steps that intermediate states are allocated for (the largest step count + 1), `W` the verify width in force, `b`
the place of a row in its batch, `t` a verify row. The state after row t of b belongs at b * A + t of a flat pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from draftproof.properties.compare import apart
from draftproof.properties.contracts.evidence import Evidence, Row
from draftproof.properties.values.trace import Datum, Key

Values = Mapping[Key, Datum]


class Place(NamedTuple):
    """A row of a batch: who is at place `b`, and the verify row `t`; `step` is the engine step that left a state."""

    b: int
    t: int
    request: int
    step: int


class _Pair(NamedTuple):
    """A state that is wrong: where it was read, and whose state was found there (None: nobody's that is known)."""

    at: Place
    origin: Place | None


def origin(evidence: Evidence, channel: str, key: Key, got: Values) -> tuple[str, str]:
    """How the wrong state at `key` of a channel with a state a row came about: by a wrong stride; as another row's.

    Either is "" if it did not. A wrong stride shows in all rows of a batch, so all that are wrong in it are asked.
    """
    batch = _batch(evidence, key)
    states = _states(evidence, batch, key.layer)
    reported = _reported(evidence, channel, batch, key.layer, got)
    wrong = {place: value for place, value in reported.items() if not _same(states.get(place), value)}
    pairs = [_Pair(place, _find(states, value, place)) for place, value in wrong.items()]
    own = next((pair for pair in pairs if (pair.at.request, pair.at.t) == (key.request, _row(evidence, key))), None)
    if own is None:
        return "", ""
    spared = any(place.b == 0 < place.t for place in reported.keys() - wrong.keys())
    return _stride(evidence, own, pairs, states, spared), _holds(own)


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
    """What lies where after the verify of a batch, as far as the reference knows: the right state of each of its rows,
    and in places that it does not reach those that earlier batches left."""
    last: dict[tuple[int, int], tuple[Place, Datum]] = {}
    until = batch[0].step if batch else -1
    for row in (row for row in evidence.rows if row.phase == 1 and row.step <= until):
        where = {"request": row.request, "round": row.round, "layer": layer}
        for channel in ("commit.intermediate", "commit.state"):
            for key, value in evidence.reference.of(channel, **where):
                place = Place(row.position, _row(evidence, key), row.request, row.step)
                last[place.b, place.t] = place, value
    return dict(last.values())


def _reported(evidence: Evidence, channel: str, batch: tuple[Row, ...], layer: int, got: Values) -> dict[Place, Datum]:
    """What was got of a channel in a batch, by the place where it was read."""
    by_round = {(row.request, row.round): row for row in batch}
    found: dict[Place, Datum] = {}
    for key, value in got.items():
        row = by_round.get((key.request, key.round))
        if row is not None and key.layer == layer:
            found[Place(row.position, _row(evidence, key), row.request, row.step)] = value
    return found


def explains(state: Datum, value: Datum, right: Datum | None) -> bool:
    """Whether a wrong value is another state wherever it is not right: a state has two parts, and one may be well."""
    one, other, own = (_lanes(datum) for datum in (state, value, right))
    if one is None or other is None or one.shape != other.shape:
        return False
    wrong = ~_close(other, own) if own is not None and own.shape == other.shape else np.ones(other.shape, dtype=bool)
    return bool(wrong.any() and _close(one, other)[wrong].all())


def _lanes(value: Datum | None) -> np.ndarray | None:
    if isinstance(value, bytes) and len(value) % 8 == 0:
        return np.frombuffer(value, dtype="<u8")
    return value if isinstance(value, np.ndarray) else None


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Lane by lane; floats of two implementations are never equal, and a hint needs no more than a percent."""
    return one == other if one.dtype.kind == "u" else np.isclose(one, other, rtol=1e-2, atol=1e-3)


def _same(one: Datum | None, other: Datum) -> bool:
    lanes, others = _lanes(one), _lanes(other)
    if lanes is None or others is None or lanes.shape != others.shape:
        return False
    return bool(_close(lanes, others).all())


def _find(states: Mapping[Place, Datum], value: Datum, at: Place) -> Place | None:
    """Whose state a value is, the nearest if several have it."""
    same = [place for place, state in states.items() if place != at and explains(state, value, states.get(at))]
    return min(same, key=lambda place: (place.step != at.step, abs(place.b - at.b), abs(place.t - at.t)), default=None)


def _stride(evidence: Evidence, own: _Pair, pairs: list[_Pair], states: Mapping[Place, Datum], spared: bool) -> str:
    """The stride other than A that explains every wrong row of the batch whose origin is known; "" if there is none.

    That of the width in force is believed after one row; any other if rows of several places agree, or if it `spared`
    place 0, as strides do.
    """
    allocated, width = evidence.scenario.steps + 1, evidence.width(own.at.step)
    known = [(pair.at, pair.origin) for pair in pairs if pair.origin is not None]
    several = spared or len({at.b for at, _ in known}) > 1 or any(at.b != found.b for at, found in known)
    strides = [width, *(range(1, 2 * allocated) if several else ())]
    for stride in (stride for stride in strides if known and stride != allocated):
        for read, (at_stride, found_stride) in ((True, (stride, allocated)), (False, (allocated, stride))):
            if any(at.b * at_stride + at.t != found.b * found_stride + found.t for at, found in known):
                continue
            b, t = divmod(own.at.b * at_stride + own.at.t, found_stride)
            # A row that holds what nobody left in it must have a reason for that, too.
            if own.origin is None and any((b, t) == place[:2] for place in states):
                continue
            place = own.origin or Place(
                b, t, next((other.request for other in states if other.b == b), -1), own.at.step
            )
            name = f"stride {'W=' if stride == width else ''}{stride} instead of A={allocated}"
            return f"{name}: {_moved(own.at, place, read)}"
    return ""


def _moved(at: Place, place: Place, read: bool) -> str:
    """One sentence on who reads or holds whose row; request -1 is nobody."""
    whose = f"row {place.t} of " + (f"batch place {place.b}" if place.request < 0 else f"request {place.request}")
    does = f"reads where {whose} lies" if read else f"holds what was written for {whose}"
    return f"row {at.t} of request {at.request} {does}"


def _holds(own: _Pair) -> str:
    """Which other row has this state."""
    if own.origin is None:
        return ""
    left = "" if own.origin.step == own.at.step else ", left by an earlier round"
    if own.origin.request == own.at.request:
        return f"holds the state of row {own.origin.t}, {apart(own.at.t, own.origin.t)}{left}"
    return f"holds the state of request {own.origin.request}, row {own.origin.t}{left}"
