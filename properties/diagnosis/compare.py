"""Compare two readings of a channel: the first difference in the order of the channel table, and its relation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from draftproof.properties.diagnosis.lanes import values_match
from draftproof.properties.evidence.tolerances import Near, exactly
from draftproof.properties.values import relations as rel
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Choice, Datum, Observed, numbers
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence

Values = Mapping[Key, Datum]
Order = Callable[[str, Key], tuple[int, ...]]
"""What comes first: order(channel, key)."""
# Pools are poisoned with the first two, the private memory of graphs with the third.
POISON_WORDS = frozenset({b"\xff" * 8, b"\x5a" * 8, b"\xa5" * 8})
# A longer tuple is shown with this many elements, from a few before the first that differs.
_LONG, _BESIDE = 24, 4
_TELLING = 3
"""So many ids in a row come from another request if they are there, too."""


def in_table(channel: str, key: Key) -> tuple[int, ...]:
    """Return the order of the channel table, round by round of each request."""
    return Observation(channel, key, 0).order


def first_divergence(
    contract: str,
    channel: str,
    expected: Values,
    got: Values,
    *,
    near: Near = exactly,
    order: Order = in_table,
    position_of_slot: Callable[[Key, int], int | None] | None = None,
) -> Divergence | None:
    """Return the first place where `got` differs, lacks something or has too much; None if there is none.

    `near` compares float vectors. `position_of_slot` returns the position of a KV slot, for channels of slots.
    """
    keys = differing(expected, got, near)
    if not keys:
        return None
    key = min(keys, key=lambda place: order(channel, place))
    found = mismatch(channel, key, expected, got)
    if position_of_slot and isinstance(found.got, int):
        position = position_of_slot(key, found.got)
        found = found if position is None else replace(found, relation=rel.SlotOf(position))
    return found.divergence(contract, count=len(keys), total=len(expected.keys() | got.keys()))


def differing(expected: Values, got: Values, near: Near = exactly) -> list[Key]:
    """Return the keys where the two differ, in no order."""
    floats = isinstance(next(iter(expected.values()), None), np.ndarray)
    if not floats:
        # Of an array numpy compares the elements.
        with suppress(ValueError):
            if expected == got:
                return []
        return [key for key in expected.keys() | got.keys() if _differ(expected.get(key), got.get(key))]
    return [key for key in expected.keys() | got.keys() if not _close(key, expected.get(key), got.get(key), near)]


def _differ(one: Datum | None, other: Datum | None) -> bool:
    """Return whether two values differ: floats differ from whatever is not compared as floats."""
    return isinstance(other, np.ndarray) or one != other


def _close(key: Key, one: Datum | None, other: Datum | None, near: Near) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    return one.shape == other.shape and near(key, one, other)


@dataclass(frozen=True)
class Mismatch:
    """One difference: where, what was expected (None: nothing), what was got, and how they are related."""

    channel: str
    key: Key
    expected: Datum | str | None
    got: Datum | str | None
    relation: rel.Relation

    def divergence(self, contract: str, *, count: int = 1, total: int = 0) -> Divergence:
        """Return what a contract reports: one of `count` differences among `total` places."""
        index = first_index(self.expected, self.got)
        margin = None
        if CHANNELS[self.channel].value == Choice and isinstance(self.expected, tuple):
            margin = float(numbers(self.expected)[1])
        return Divergence(
            contract=contract,
            channel=self.channel,
            phase=CHANNELS[self.channel].phase,
            **self.key._asdict(),
            index=index,
            expected=shown(self.expected, index),
            got=shown(self.got, index),
            relation=self.relation,
            margin=margin,
            count=count,
            total=total,
        )


def mismatch(channel: str, key: Key, expected: Values, got: Values) -> Mismatch:
    """Return the difference of two readings at a key."""
    return Mismatch(channel, key, expected.get(key), got.get(key), classify(channel, key, expected, got))


def first_of(contract: str, mismatches: Iterable[Mismatch], order: Order = in_table) -> Divergence | None:
    """Return the first in an order, with the number of all."""
    found = sorted(mismatches, key=lambda one: order(one.channel, one.key))
    return found[0].divergence(contract, count=len(found)) if found else None


def first_index(expected: object, got: object) -> int:
    """Return the first differing lane or element; -1 where values have none."""
    if isinstance(expected, bytes) and isinstance(got, bytes):
        lanes = range(0, max(len(expected), len(got)), 8)
        return next((at // 8 for at in lanes if expected[at : at + 8] != got[at : at + 8]), -1)
    if isinstance(expected, np.ndarray) and isinstance(got, np.ndarray):
        if expected.shape != got.shape:
            return 0
        gap = np.abs(expected - got)
        return int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
    if isinstance(expected, tuple | Observed) and isinstance(got, tuple | Observed):
        pairs = zip_longest(numbers(expected), numbers(got))
        return next((at for at, (one, other) in enumerate(pairs) if one != other), -1)
    return -1


def shown(value: object, index: int) -> str:
    """Format a value; of a vector the element at `index`."""
    if value is None:
        return "nothing"
    if isinstance(value, bytes):
        lane = value[8 * max(index, 0) : 8 * max(index, 0) + 8]
        return f"0x{int.from_bytes(lane, 'little'):016x}" if lane else f"{len(value) // 8} lanes"
    if isinstance(value, np.ndarray):
        return repr(float(value[max(index, 0)])) if value.size else "no lanes"
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], float):
        return f"{value[0]} (margin {value[1]:g})"
    if isinstance(value, tuple) and value and isinstance(value[0], Observed):
        return ", ".join(map(str, value))
    if isinstance(value, tuple) and len(value) > _LONG:
        first = max(0, min(index - _BESIDE, len(value) - _LONG))
        some = ", ".join(map(str, value[first : first + _LONG]))
        return f"({'..., ' if first else ''}{some}{', ...' if first + _LONG < len(value) else ''}), {len(value)} in all"
    return str(value)


def shortened(text: str, longest: int) -> str:
    """Cut a text to `longest` characters, with dots at its end."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def classify(channel: str, key: Key, expected: Values, got: Values) -> rel.Relation:
    """Relate the value at a key to what was expected there and elsewhere."""
    one, other = expected.get(key), got.get(key)
    if other is None:
        return rel.Missing()
    if one is None:
        return rel.Surplus()
    if isinstance(one, bytes | np.ndarray):
        return _empty(other) or _elsewhere(key, other, expected)
    unit = CHANNELS[channel].unit
    if unit == "id" and len(numbers(other)) < _TELLING:
        # Other requests have the same few ids by chance.
        expected = {place: value for place, value in expected.items() if place.request == key.request}
    if unit in ("token", "tokens", "KV slot") and isinstance(one, int) and isinstance(other, int):
        return rel.off_by(one, other)
    if CHANNELS[channel].value != Choice and isinstance(one, tuple | Observed):
        right, wrong = numbers(one), numbers(other)
        # A single token is somewhere else more often than it came from there.
        unlike = _elsewhere(key, other, expected) if unit == "id" and len(wrong) > 1 else rel.Different()
        return _tuples(right, wrong) or unlike
    return rel.Different() if unit == "KV slot" else _elsewhere(key, other, expected)


def _tuples(one: tuple[Any, ...], other: tuple[Any, ...]) -> rel.Relation | None:
    short = min(len(one), len(other))
    if one[:short] == other[:short]:
        return rel.Resized(len(other) - len(one))
    gaps = {got - wanted for wanted, got in zip(one, other, strict=False)} if len(one) == len(other) > 1 else ()
    return rel.off_by(one[0], other[0]) if len(gaps) == 1 else None


def _empty(vector: Datum) -> rel.Relation | None:
    words = _words(vector)
    if not any(word.strip(b"\0") for word in words):
        return rel.Zero()
    if any(word in POISON_WORDS for word in words):
        return rel.Poison()
    return rel.Poison() if isinstance(vector, np.ndarray) and not np.isfinite(vector).all() else None


def _words(value: Datum) -> list[bytes]:
    raw = value.tobytes() if isinstance(value, np.ndarray) else value if isinstance(value, bytes) else b""
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _elsewhere(key: Key, value: Datum, expected: Values) -> rel.Relation:
    """Relate a value to the nearest place where the reference has it; `Different` if there is none."""
    others = [other for other, datum in expected.items() if other != key and values_match(datum, value)]
    if not others:
        return rel.Different()
    near = min(others, key=lambda other: (other.request != key.request, other.round != key.round, *_gaps(key, other)))
    if near.request != key.request:
        return rel.OtherRow(request=near.request)
    if near.round != key.round:
        return of_round(near.round, key.round)
    if near.step != key.step:
        return rel.Stale("step", near.step) if near.step < key.step else rel.TooEarly("step", near.step)
    return rel.OtherLayer(near.layer) if near.layer != key.layer else rel.OtherRow(row=near.row)


def of_round(found: int, due: int, *, in_part: bool = False) -> rel.Stale | rel.TooEarly:
    """Return the relation of a value from round `found` to the value of round `due` that it stands in for."""
    return rel.Stale("round", found, in_part) if found < due else rel.TooEarly("round", found, in_part)


def _gaps(key: Key, other: Key) -> tuple[int, int, int]:
    return (abs(other.layer - key.layer), abs(other.step - key.step), abs(other.row - key.row))
