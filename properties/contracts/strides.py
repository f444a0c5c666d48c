"""Whether states after verify rows lie, or are looked for, at a wrong stride.

`A` steps that intermediate states are allocated for (the largest step count + 1), `W` the verify width in force, `b` the
place of a row in its batch, `t` a verify row. The state after row t of b belongs at b * A + t of a flat pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.compare import POISON_WORDS
from draftproof.properties.contracts.evidence import CAPTURE, VERIFY, Evidence
from draftproof.properties.contracts.lanes import explains, same, wrong_words
from draftproof.properties.values.trace import Datum, Key, integers

Values = Mapping[Key, Datum]
_INTERMEDIATE = 4
# Fewer places than this may be wrong for any other reason.
_LEAST = 2
_UNTOUCHED = POISON_WORDS | {bytes(8)}


class Place(NamedTuple):
    """Verify row `t` of the request at place `b` of its batch; request -1 is a row of padding, or beyond the drafts."""

    b: int
    t: int
    request: int = -1
    round: int = -1


class Strides(NamedTuple):
    """Rows lie at one stride and are looked for at another, one of them A; `value` 0 is the width of each launch."""

    value: int
    read: bool

    def written(self, allocated: int, width: int) -> int:
        return allocated if self.read else self.value or width

    def looked_for(self, allocated: int, width: int) -> int:
        return (self.value or width) if self.read else allocated


class _Reading(NamedTuple):
    """A state as it was got: where it is reported, where it was looked for, what was got and what is right."""

    key: Key
    at: Place
    got: Datum
    right: Datum | None


class _Write(NamedTuple):
    """The rows that a launch left states of."""

    step: int
    width: int
    rows: tuple[Place, ...]


class _Account(NamedTuple):
    """What a stride explains: wrong states that are another row's, those that nobody wrote, rows written astray."""

    moved: dict[Key, tuple[Place, Place]]
    untouched: dict[Key, Place]
    astray: tuple[tuple[Place, int], ...]

    @property
    def places(self) -> int:
        """Rows of the batch and rows of the pool; that all layers agree is no more evidence."""
        return len({at[:2] for at, _ in self.moved.values()} | {at[:2] for at in self.untouched.values()}) + len(
            self.astray
        )


def stride(evidence: Evidence, channel: str, step: int, got: Values) -> tuple[str, Key] | None:
    """The wrong stride behind wrong states of an engine step's decode batch, in words, and a place that shows it.

    None unless it explains two places, contradicts none, and at least one of them holds, or took, another row's state.
    """
    if evidence.scenario.states.commit != "snapshot":
        return None
    readings = tuple(_readings(evidence, channel, step, got))
    wrong = [reading.key for reading in readings if not same(reading.right, reading.got)]
    allocated, width = evidence.scenario.steps + 1, evidence.width(step)
    others = [value for value in range(1, 2 * allocated) if value != allocated]
    tried = [Strides(value, read) for value in (0, *others) for read in (True, False)]
    found = [(strides, account) for strides in tried if (account := _account(evidence, strides, step, readings))]
    if not found or not wrong:
        return None
    strides, account = max(found, key=lambda one: one[1].places)
    if account.places < _LEAST or not (account.moved or account.astray):
        return None
    value = strides.value or width
    name = f"stride {'W=' if value == width else ''}{value} instead of A={allocated}"
    key, shown = _shown(evidence, strides, step, account, min(wrong, key=_order))
    explained = len(account.moved) + len(account.untouched)
    return f"{name}: {shown}; this explains {explained} of {len(wrong)} wrong states of its batch", key


def _order(key: Key) -> tuple[int, ...]:
    return (key.layer, key.request, key.row)


def _readings(evidence: Evidence, channel: str, step: int, got: Values) -> Iterator[_Reading]:
    expected = evidence.reference.channel(channel)
    batch = {(row.request, row.round): row for row in evidence.batches.get((step, 1), ())}
    for key, value in got.items():
        row = batch.get((key.request, key.round))
        if row is not None:
            at = Place(row.position, row_of(evidence, key), key.request, key.round)
            yield _Reading(key, at, value, expected.get(key))


def row_of(evidence: Evidence, key: Key) -> int:
    """The verify row whose state a key is of: its own, or that of the step index."""
    if key.row >= 0:
        return key.row
    index = evidence.reference.channel("commit.step_index").get(Key(key.request, key.round))
    return index if isinstance(index, int) else -1


def _writes(evidence: Evidence, until: int) -> Iterator[_Write]:
    """The verifies up to an engine step, and the captures, which run over rows of padding."""
    for launch in evidence.launches:
        if launch.step > until or launch.kind not in (VERIFY, CAPTURE):
            continue
        rows = evidence.batches.get((launch.step, 1), ()) if launch.kind == VERIFY else ()
        owner = {row.position: row for row in rows}
        places = [
            Place(b, t, owner[b].request, owner[b].round) if b in owner and t <= owner[b].count else Place(b, t)
            for b in range(max(launch.size, len(rows)))
            for t in range(launch.width)
        ]
        yield _Write(launch.step, launch.width, tuple(places))


def _pool(evidence: Evidence, strides: Strides, until: int) -> dict[int, list[Place]]:
    """Whose states lie at each place of the flat pool; of rows of one launch that overlap, any may have come last."""
    allocated = evidence.scenario.steps + 1
    pool: dict[int, list[Place]] = {}
    for write in _writes(evidence, until):
        pitch = strides.written(allocated, write.width)
        now: dict[int, list[Place]] = {}
        for place in write.rows:
            now.setdefault(place.b * pitch + place.t, []).append(place)
        pool.update(now)
    return pool


def _account(evidence: Evidence, strides: Strides, step: int, readings: tuple[_Reading, ...]) -> _Account | None:
    """What these strides explain; None if they contradict anything that was seen."""
    allocated, width = evidence.scenario.steps + 1, evidence.width(step)
    pitch, pool = strides.looked_for(allocated, width), _pool(evidence, strides, step)
    astray = _astray(evidence, strides, step)
    if astray is None or pitch == strides.written(allocated, width):
        return None
    account = _Account({}, {}, astray)
    for reading in readings:
        at, there = reading.at, pool.get(reading.at.b * pitch + reading.at.t, [])
        if same(reading.right, reading.got):
            if at not in there:
                return None
        elif not there:
            if not wrong_words(reading.got, reading.right) <= _UNTOUCHED:
                return None
            account.untouched[reading.key] = at
        elif origin := next((one for one in there if one != at and _is_of(evidence, one, reading)), None):
            account.moved[reading.key] = at, origin
        elif all(place.request >= 0 for place in there):
            return None
    return account


def _is_of(evidence: Evidence, origin: Place, reading: _Reading) -> bool:
    """Whether a wrong state is that of a row."""
    key = Key(origin.request, origin.round, layer=reading.key.layer, row=origin.t)
    state = evidence.reference.channel("commit.intermediate").get(key)
    return state is not None and explains(state, reading.got, reading.right)


def _astray(evidence: Evidence, strides: Strides, step: int) -> tuple[tuple[Place, int], ...] | None:
    """Rows that were seen to be written where they do not belong, with the place; None if others were.

    Not all of a state need be written astray: its two parts have pools of their own.
    """
    launch = next((one for one in evidence.launches if (one.step, one.kind) == (step, VERIFY)), None)
    said = evidence.subject.channel("commit.written").get(Key(-1, step, step=launch.number)) if launch else None
    if launch is None or said is None:
        return ()
    flat, allocated = integers(said), evidence.scenario.steps + 1
    changed = {place for region, place in zip(flat[::2], flat[1::2], strict=False) if region == _INTERMEDIATE}
    (*_, write) = _writes(evidence, step)
    mine = len(evidence.batches.get((step, 1), ()))
    changed -= {place.b * allocated + place.t for place in write.rows if place.b < mine}
    pitch = strides.written(allocated, write.width)
    led = {place.b * pitch + place.t: place for place in write.rows}
    return (
        None if changed - led.keys() else tuple((led[place], place) for place in sorted(changed) if led[place].b < mine)
    )


def _shown(evidence: Evidence, strides: Strides, step: int, account: _Account, first: Key) -> tuple[Key, str]:
    """The place that shows a stride best, and one sentence on it: who reads whose row, or was written where."""
    if account.moved:
        key = first if first in account.moved else min(account.moved, key=_order)
        at, origin = account.moved[key]
        left = "" if origin.round == _round(evidence, step, origin.request) else ", left by an earlier round,"
        lies = "lies" if strides.read else "was written"
        return (
            key,
            f"row {at.t} of request {at.request} reads where row {origin.t} of request {origin.request}{left} {lies}",
        )
    origin, place = account.astray[0]
    b, t = divmod(place, evidence.scenario.steps + 1)
    batch = evidence.batches[step, 1]
    whose = f"request {batch[b].request}" if b < len(batch) else f"batch place {b}"
    writer = f"request {batch[origin.b].request}"
    return first, f"row {origin.t} of {writer} was written where row {t} of {whose} belongs"


def _round(evidence: Evidence, step: int, request: int) -> int:
    return next((row.round for row in evidence.batches[step, 1] if row.request == request), -1)
