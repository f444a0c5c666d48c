"""Whether states after verify rows lie, or are looked for, at a wrong stride.

`A` steps that intermediate states are allocated for (the largest step count + 1), `W` the verify width in force, `b`
the place of a row in its batch, `t` a verify row. The state after row t of b belongs at b * A + t of a flat pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from draftproof.properties.diagnosis.compare import POISON_WORDS
from draftproof.properties.diagnosis.lanes import explains, same, wrong_words
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import Datum, LaunchKind, MemoryRegion, WriteSet
from draftproof.properties.values.trace import Key

Values = Mapping[Key, Datum]
# One place may be wrong for any other reason.
_LEAST = 2
_UNWRITTEN = POISON_WORDS | {bytes(8)}


class Place(NamedTuple):
    """Verify row `t` of place `b` of a batch; request and round are -1 for padding and for rows beyond the drafts."""

    b: int
    t: int
    request: int = -1
    round: int = -1


class _Reading(NamedTuple):
    """A state as it was got: where it is reported, whose it should be, what was got and what is right."""

    key: Key
    at: Place
    got: Datum
    right: Datum | None


class _Write(NamedTuple):
    """The rows that a launch of a width left states of; if it is no verify it is a capture."""

    verify: bool
    width: int
    rows: tuple[Place, ...]


@dataclass(frozen=True)
class _Account:
    """What a stride explains: wrong states that are another row's, wrong states whose own row went elsewhere, and rows
    that were seen to be written where others belong, each with that place."""

    moved: dict[Key, tuple[Place, Place]]
    left: dict[Key, Place]
    astray: tuple[tuple[Place, int], ...]

    @property
    def states(self) -> int:
        return len(self.moved) + len(self.left)

    @property
    def places(self) -> int:
        """Rows of the batch and rows of the pool; that all layers agree is no more evidence."""
        read = {at for at, _ in self.moved.values()} | set(self.left.values())
        return len(read) + len(self.astray)


@dataclass(frozen=True)
class _Batch:
    """A decode batch with wrong states, and every verify and capture up to it."""

    evidence: Evidence
    rows: tuple[Row, ...]
    width: int
    readings: tuple[_Reading, ...]
    writes: tuple[_Write, ...]
    changed: frozenset[int]

    @property
    def allocated(self) -> int:
        return self.evidence.scenario.steps + 1

    def account(self, written: int, read: int) -> _Account | None:
        """What rows that lie `written` places apart and are looked for `read` apart explain (0: the width of each
        launch); None if they contradict anything that was seen."""
        astray = self._astray(written)
        if astray is None:
            return None
        found = _Account({}, {}, astray)
        pool, gone = self._pool(written), {place for place, _ in astray}
        for reading in self.readings:
            at, there = reading.at, pool.get(reading.at.b * (read or self.width) + reading.at.t, [])
            if same(reading.right, reading.got):
                if at not in there:
                    return None
            elif origin := next((one for one in there if one != at and self._is_of(one, reading)), None):
                found.moved[reading.key] = at, origin
            elif _contradicts(there, reading):
                return None
            elif not there or at in gone:
                found.left[reading.key] = at
        return found

    def _pool(self, stride: int) -> dict[int, list[Place]]:
        """Whose states lie at each place of the flat pool; of rows of one launch that overlap, any may be the last."""
        pool: dict[int, list[Place]] = {}
        for write in self.writes:
            now: dict[int, list[Place]] = {}
            for place in write.rows:
                at = place.b * (stride or write.width) + place.t
                # A capture may be that of another kind of launch, which leaves no states.
                now.setdefault(at, [] if write.verify else list(pool.get(at, []))).append(place)
            pool |= now
        return pool

    def _astray(self, stride: int) -> tuple[tuple[Place, int], ...] | None:
        """Live rows that the verify was seen to write where they do not belong, with the place; None if this stride
        does not lead to all of those. A state's two parts have pools of their own: one may be written well."""
        if not self.writes:
            return ()
        mine = [place for place in self.writes[-1].rows if place.b < len(self.rows)]
        odd = self.changed - {place.b * self.allocated + place.t for place in mine}
        led = {place.b * (stride or self.width) + place.t: place for place in self.writes[-1].rows}
        return None if odd - led.keys() else tuple((led[at], at) for at in sorted(odd) if led[at] in mine)

    def _is_of(self, origin: Place, reading: _Reading) -> bool:
        """Whether a wrong state is that of a row."""
        key = Key(origin.request, origin.round, layer=reading.key.layer, row=origin.t)
        state = self.evidence.reference.channel("commit.intermediate").get(key)
        return state is not None and explains(state, reading.got, reading.right)

    def tell(self, found: _Account, lies: str) -> tuple[str, Key]:
        """One sentence on who reads whose row, or was written where, and the place it is about."""
        if not found.moved:
            key = min(found.left, key=_order)
            gone = next((one for one in found.astray if one[0] == found.left[key]), found.astray[0])
            return self._written(*gone), key
        now = {(row.request, row.round) for row in self.rows}
        key = min(found.moved, key=lambda one: (found.moved[one][1][2:] not in now, _order(one)))
        at, origin = found.moved[key]
        whose = f"row {origin.t} of request {origin.request}"
        if origin[2:] in now:
            return f"row {at.t} of request {at.request} reads where {whose} {lies}", key
        written = (f"{self._written(*one)} and" for one in found.astray if one[0] == at)
        reader = next(written, f"row {at.t} of request {at.request}")
        return f"{reader} reads what {whose} left in an earlier round", key

    def _written(self, origin: Place, at: int) -> str:
        """What is said of a row of the batch that was written to another place of the pool."""
        b, t = divmod(at, self.allocated)
        whose = f"row {t} of " + (f"request {self.rows[b].request}" if b < len(self.rows) else f"batch place {b}")
        return f"row {origin.t} of request {self.rows[origin.b].request} was written where {whose} belongs"


def _contradicts(there: list[Place], reading: _Reading) -> bool:
    """Whether it is known what lies where a wrong state would have been read, while something else was got."""
    if there:
        return all(place.request >= 0 for place in there)
    return not wrong_words(reading.got, reading.right) <= _UNWRITTEN


def stride(evidence: Evidence, channel: str, step: int, got: Values) -> tuple[str, Key] | None:
    """The wrong stride behind wrong states of an engine step's decode batch, in words, and a place that shows it.

    None unless it contradicts nothing, explains at least two places, and one of them holds, or took, another row's.
    """
    if evidence.scenario.states.commit != "snapshot" or (step, 1) not in evidence.schedule.batches:
        return None
    batch = _batch(evidence, channel, step, got)
    right = batch.allocated
    values = [value for value in range(2 * right) if (value or batch.width) != right]
    tried = [strides for value in values for strides in ((right, value), (value, right), (value, value))]
    found = [(one, strides) for strides in tried if (one := batch.account(*strides))]
    account, (written, read) = max(found, key=lambda one: one[0].places, default=(None, (0, 0)))
    if account is None or account.places < _LEAST or not account.states or not (account.moved or account.astray):
        return None
    pitch = (read if written == right else written) or batch.width
    name = f"stride {'W=' if pitch == batch.width else ''}{pitch} instead of A={right}"
    shown, key = batch.tell(account, "was written" if read == right else "lies")
    wrong = sum(not same(reading.right, reading.got) for reading in batch.readings)
    return f"{name}: {shown}; this explains {account.states} of {wrong} wrong states of the batch", key


def _order(key: Key) -> tuple[int, ...]:
    return (key.layer, key.request, key.row)


def _batch(evidence: Evidence, channel: str, step: int, got: Values) -> _Batch:
    rows = evidence.schedule.batches[step, 1]
    launch = next(
        (one for one in evidence.schedule.launches if (one.step, one.kind) == (step, LaunchKind.VERIFY)), None
    )
    at = Key(-1, step, step=launch.number) if launch else Key(-1, step)
    written = evidence.subject.typed("commit.written", WriteSet).get(at, ())
    return _Batch(
        evidence,
        rows,
        evidence.plans.width(step),
        tuple(_readings(evidence, channel, rows, got)),
        tuple(_writes(evidence, step)),
        frozenset(one.place for one in written if one.region == MemoryRegion.INTERMEDIATE),
    )


def _readings(evidence: Evidence, channel: str, rows: tuple[Row, ...], got: Values) -> Iterator[_Reading]:
    expected = evidence.reference.channel(channel)
    batch = {(row.request, row.round): row.place for row in rows}
    for key, value in got.items():
        if key[:2] in batch:
            at = Place(batch[key[:2]], row_of(evidence, key), key.request, key.round)
            yield _Reading(key, at, value, expected.get(key))


def row_of(evidence: Evidence, key: Key) -> int:
    """The verify row whose state a key is of: its own, or that of the step index."""
    if key.row >= 0:
        return key.row
    index = evidence.reference.channel("commit.step_index").get(Key(key.request, key.round))
    return index if isinstance(index, int) else -1


def _writes(evidence: Evidence, until: int) -> Iterator[_Write]:
    """The verifies up to that of an engine step, and the captures, which run over rows of padding."""
    for launch in evidence.schedule.launches:
        if launch.kind in (LaunchKind.VERIFY, LaunchKind.CAPTURE):
            rows = evidence.schedule.batches.get((launch.step, 1), ()) if launch.kind == LaunchKind.VERIFY else ()
            size = max(launch.size, len(rows))
            places = tuple(_place(rows, b, t) for b in range(size) for t in range(launch.width))
            yield _Write(launch.kind == LaunchKind.VERIFY, launch.width, places)
        if (launch.step, launch.kind) == (until, LaunchKind.VERIFY):
            return


def _place(rows: tuple[Row, ...], b: int, t: int) -> Place:
    row = next((row for row in rows if row.place == b and t <= row.count), None)
    return Place(b, t, row.request, row.round) if row else Place(b, t)
