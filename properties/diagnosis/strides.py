"""Find the wrong stride at which the states after verify rows lie, or are looked for.

`A` steps that intermediate states are allocated for (the largest step count + 1), `W` the verify width in force, `b`
the place of a row in its batch, `t` a verify row. The state after row t of b belongs at b * A + t of a flat pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from draftproof.properties.diagnosis.compare import POISON_WORDS
from draftproof.properties.diagnosis.lanes import explains, values_match, wrong_words
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import Datum, LaunchKind, MemoryRegion, WriteSet
from draftproof.properties.values.relations import Stride, StridePair, VerifyRow
from draftproof.properties.values.trace import Key

Values = Mapping[Key, Datum]
# One place may be wrong for any other reason: a shift by a row would match, too. With a wrong stride most rows read
# padding, rows of earlier rounds or poison, so that the first wrong row alone tells nothing.
_LEAST = 2
_UNWRITTEN = POISON_WORDS | {bytes(8)}


class LiveRow(NamedTuple):
    """Verify row `t` of place `b` of a batch; request and round are -1 for padding and for rows beyond the drafts."""

    b: int
    t: int
    request: int = -1
    round: int = -1


class _Reading(NamedTuple):
    """A reported state: its key, the row that it should belong to, its value and the right value."""

    key: Key
    at: LiveRow
    got: Datum
    right: Datum | None


class _Write(NamedTuple):
    """The rows whose states a launch of some width wrote: a verify, or else a capture."""

    verify: bool
    width: int
    rows: tuple[LiveRow, ...]


@dataclass(frozen=True)
class _Account:
    """The evidence for a stride.

    `moved` are wrong states that belong to another row, `left` states whose own row was written elsewhere; `astray` are
    the rows that were written where others belong, each with that place.
    """

    moved: dict[Key, tuple[LiveRow, LiveRow]]
    left: dict[Key, LiveRow]
    astray: tuple[tuple[LiveRow, int], ...]

    @property
    def states(self) -> int:
        return len(self.moved) + len(self.left)

    @property
    def places(self) -> int:
        """Number of rows of the batch and of the pool; that all layers agree is no more evidence."""
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
        return self.evidence.scenario.width

    def account(self, written: int, read: int) -> _Account | None:
        """Return what rows written and read these many places apart explain; None if anything contradicts it.

        0 is the width of each launch.
        """
        astray = self._astray(written)
        if astray is None:
            return None
        found = _Account({}, {}, astray)
        pool, gone = self._pool(written), {place for place, _ in astray}
        for reading in self.readings:
            at, there = reading.at, pool.get(reading.at.b * (read or self.width) + reading.at.t, [])
            if values_match(reading.right, reading.got):
                if at not in there:
                    return None
            elif origin := next((one for one in there if one != at and self._is_of(one, reading)), None):
                found.moved[reading.key] = at, origin
            elif _contradicts(there, reading):
                return None
            elif not there or at in gone:
                found.left[reading.key] = at
        return found

    def _pool(self, stride: int) -> dict[int, list[LiveRow]]:
        """Return the rows whose states may be at each place of the flat pool; rows of one launch may overlap."""
        pool: dict[int, list[LiveRow]] = {}
        for write in self.writes:
            now: dict[int, list[LiveRow]] = {}
            for place in write.rows:
                at = place.b * (stride or write.width) + place.t
                # A capture may be of another kind of launch, which leaves no states.
                now.setdefault(at, [] if write.verify else list(pool.get(at, []))).append(place)
            pool |= now
        return pool

    def _astray(self, stride: int) -> tuple[tuple[LiveRow, int], ...] | None:
        """Return the live rows that the verify wrote astray, with the place; None if this stride misses one of them.

        A state's two parts have pools of their own: one may be written well.
        """
        if not self.writes:
            return ()
        mine = [place for place in self.writes[-1].rows if place.b < len(self.rows)]
        odd = self.changed - {place.b * self.allocated + place.t for place in mine}
        led = {place.b * (stride or self.width) + place.t: place for place in self.writes[-1].rows}
        return None if odd - led.keys() else tuple((led[at], at) for at in sorted(odd) if led[at] in mine)

    def _is_of(self, origin: LiveRow, reading: _Reading) -> bool:
        """Return whether a wrong state belongs to a row."""
        key = Key(origin.request, origin.round, layer=reading.key.layer, row=origin.t)
        state = self.evidence.reference.channel("commit.intermediate").get(key)
        return state is not None and explains(state, reading.got, reading.right)

    def relation(self, found: _Account, written: int, read: int) -> tuple[Stride, Key]:
        """Return what an account says of these strides, and a place that shows it."""
        right = self.allocated
        wide = (read if written == right else written) or self.width
        wrong = sum(not values_match(reading.right, reading.got) for reading in self.readings)
        tell = partial(Stride, StridePair(wide, right, "W" if wide == self.width else "", "A"))
        if not found.moved:
            key = min(found.left, key=_order)
            at, there = next((one for one in found.astray if one[0] == found.left[key]), found.astray[0])
            return tell(self._row(at), found.states, wrong, self._owner(there)), key
        now = {(row.request, row.round) for row in self.rows}
        key = min(found.moved, key=lambda one: (found.moved[one][1][2:] not in now, _order(one)))
        at, origin = found.moved[key]
        earlier = origin[2:] not in now
        belongs = next((self._owner(there) for one, there in found.astray if one == at), None) if earlier else None
        how: Literal["lies", "written", "earlier"] = "earlier" if earlier else "written" if read == right else "lies"
        return tell(self._row(at), found.states, wrong, belongs, VerifyRow(origin.t, origin.request), how), key

    def _row(self, at: LiveRow) -> VerifyRow:
        return VerifyRow(at.t, self.rows[at.b].request)

    def _owner(self, there: int) -> VerifyRow:
        """Return the verify row that a place of the flat pool belongs to."""
        b, t = divmod(there, self.allocated)
        return VerifyRow(t, self.rows[b].request) if b < len(self.rows) else VerifyRow(t, -1, b)


def _contradicts(there: list[LiveRow], reading: _Reading) -> bool:
    """Return whether something else lies where a wrong state would have been read."""
    if there:
        return all(place.request >= 0 for place in there)
    return not wrong_words(reading.got, reading.right) <= _UNWRITTEN


def stride(evidence: Evidence, channel: str, step: int, got: Values) -> tuple[Stride, Key] | None:
    """Return the wrong stride behind wrong states of an engine step's decode batch, and a place that shows it.

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
    return batch.relation(account, written, read)


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
            at = LiveRow(batch[key[:2]], row_of(evidence, key), key.request, key.round)
            yield _Reading(key, at, value, expected.get(key))


def row_of(evidence: Evidence, key: Key) -> int:
    """Return the verify row of a state's key: its own, or the one that the step index names."""
    if key.row >= 0:
        return key.row
    return evidence.reference.typed("commit.step_index", int).get(Key(key.request, key.round), -1)


def _writes(evidence: Evidence, until: int) -> Iterator[_Write]:
    """Yield the verifies up to the one of an engine step, and the captures, which run over padding."""
    for launch in evidence.schedule.launches:
        if launch.kind in (LaunchKind.VERIFY, LaunchKind.CAPTURE):
            rows = evidence.schedule.batches.get((launch.step, 1), ()) if launch.kind == LaunchKind.VERIFY else ()
            size = max(launch.size, len(rows))
            places = tuple(_place(rows, b, t) for b in range(size) for t in range(launch.width))
            yield _Write(launch.kind == LaunchKind.VERIFY, launch.width, places)
        if (launch.step, launch.kind) == (until, LaunchKind.VERIFY):
            return


def _place(rows: tuple[Row, ...], b: int, t: int) -> LiveRow:
    row = next((row for row in rows if row.place == b and t <= row.count), None)
    return LiveRow(b, t, row.request, row.round) if row else LiveRow(b, t)
