"""Two readings of one channel: the first difference in the order of the channel table, and how it came about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Choice, Datum, Observed, numbers
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence

Values = Mapping[Key, Datum]
Near = Callable[[Key, np.ndarray, np.ndarray], bool]
# Pools are poisoned with the first two, the private memory of graphs with the third.
POISON_WORDS = frozenset({b"\xff" * 8, b"\x5a" * 8, b"\xa5" * 8})


def exactly(_key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
    """Bitwise equality of float vectors; the default where no bound applies."""
    return np.array_equal(expected, got)


def first_divergence(
    contract: str,
    channel: str,
    expected: Values,
    got: Values,
    *,
    near: Near = exactly,
    position_of_slot: Callable[[Key, int], int | None] | None = None,
) -> Divergence | None:
    """The first place where `got` differs, lacks something or has too much; None if there is none.

    `near` judges float vectors. `position_of_slot` names the position that a slot is of, for channels of slots.
    """
    places = differing(expected, got, near)
    if not places:
        return None
    key = min(places, key=lambda place: Observation(channel, place, 0).order)
    one, other = expected.get(key), got.get(key)
    relation = classify(channel, key, expected, got)
    if position_of_slot and isinstance(other, int):
        position = position_of_slot(key, other)
        relation = relation if position is None else f"slot of position {position}"
    found = Place(channel, key, expected=one, got=other, relation=relation)
    total = len(expected.keys() | got.keys())
    return found.divergence(contract, count=len(places), extent=extent(channel, len(places), total))


def differing(expected: Values, got: Values, near: Near = exactly) -> list[Key]:
    """Keys where the two differ, in no order."""
    floats = isinstance(next(iter(expected.values()), None), np.ndarray)
    if not floats:
        if expected == got:
            return []
        return [key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key)]
    return [key for key in expected.keys() | got.keys() if not _close(key, expected.get(key), got.get(key), near)]


def _close(key: Key, one: Datum | None, other: Datum | None, near: Near) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    return one.shape == other.shape and near(key, one, other)


def extent(channel: str, count: int, total: int) -> str:
    """Where else: "at every step" if every place of the channel differs, else how many of them."""
    keys = CHANNELS[channel].keys
    if count == total:
        return "at every step" if "step" in keys else "in every row" if "row" in keys else "at every round"
    return f"in {count} of {total} places"


@dataclass(frozen=True)
class Place:
    """One difference: where, what was expected (None: nothing), what was got, and how they are related."""

    channel: str
    key: Key
    expected: Datum | str | None
    got: Datum | str | None
    relation: str

    def divergence(self, contract: str, *, count: int = 1, extent: str = "") -> Divergence:
        """As a contract reports it."""
        index = first_index(self.expected, self.got)
        margin = None
        if CHANNELS[self.channel].value == Choice and isinstance(self.expected, tuple):
            margin = float(numbers(self.expected)[1])
        return Divergence(
            contract=contract,
            channel=self.channel,
            phase=CHANNELS[self.channel].phase,
            request=self.key.request,
            round=self.key.round,
            step=self.key.step,
            layer=self.key.layer,
            row=self.key.row,
            index=index,
            expected=shown(self.expected, index),
            got=shown(self.got, index),
            relation=self.relation,
            margin=margin,
            extent=extent,
            count=count,
        )


def first_of(contract: str, places: Iterable[Place]) -> Divergence | None:
    """The first of the places found, by the order of the channel table; the count is theirs together."""
    found = sorted(places, key=lambda place: Observation(place.channel, place.key, 0).order)
    return found[0].divergence(contract, count=len(found)) if found else None


def first_index(expected: object, got: object) -> int:
    """The first differing lane or element; -1 where values have none."""
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
    """A value as a report shows it; of a vector the element at `index`."""
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
    return str(value)


def classify(channel: str, key: Key, expected: Values, got: Values) -> str:
    """How a wrong value is related to the right one."""
    one, other = expected.get(key), got.get(key)
    if other is None:
        return "missing"
    if one is None:
        return "surplus"
    if CHANNELS[channel].unit in ("token", "tokens") and isinstance(one, int) and isinstance(other, int):
        return apart(one, other)
    if isinstance(one, bytes | np.ndarray):
        return _vector(key, one, other, expected)
    if CHANNELS[channel].value != Choice and isinstance(one, tuple | Observed):
        # A single token is somewhere else more often than it came from there.
        told = _elsewhere(key, other, expected) if CHANNELS[channel].unit == "id" and len(numbers(other)) > 1 else ""
        return _tuples(numbers(one), numbers(other)) or told or "different"
    if CHANNELS[channel].unit == "KV slot":
        return apart(one, other) if isinstance(one, int) and isinstance(other, int) else "different"
    return _elsewhere(key, other, expected) or "different"


def apart(expected: int, got: int) -> str:
    """ "n ahead" or "n behind"."""
    return f"{got - expected} ahead" if got > expected else f"{expected - got} behind"


def _tuples(one: tuple, other: tuple) -> str:
    short = min(len(one), len(other))
    if one[:short] == other[:short]:
        change = len(other) - len(one)
        return f"longer by {change}" if change > 0 else f"shorter by {-change}"
    gaps = {got - wanted for wanted, got in zip(one, other, strict=False)} if len(one) == len(other) > 1 else ()
    return apart(one[0], other[0]) if len(gaps) == 1 else ""


def _vector(key: Key, one: Datum, other: Datum, expected: Values) -> str:
    words = _words(other)
    if not any(word.strip(b"\0") for word in words):
        return "zero"
    if any(word in POISON_WORDS for word in words):
        return "poison"
    if isinstance(other, np.ndarray) and not np.isfinite(other).all():
        return "poison"
    return _elsewhere(key, other, expected) or "different"


def _words(value: Datum) -> list[bytes]:
    raw = value.tobytes() if isinstance(value, np.ndarray) else value if isinstance(value, bytes) else b""
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _elsewhere(key: Key, value: Datum, expected: Values) -> str:
    """Where else the reference has this value: another step or round of the request (stale), or another row."""
    same = [other for other, datum in expected.items() if other != key and _equal(datum, value)]
    if not same:
        return ""
    near = min(same, key=lambda other: (other.request != key.request, other.round != key.round, *_gaps(key, other)))
    if near.request != key.request:
        return f"another row: request {near.request}"
    if near.round != key.round:
        return f"stale: value of round {near.round}" if near.round < key.round else f"value of round {near.round}"
    if near.step != key.step:
        return f"stale: value of step {near.step}" if near.step < key.step else f"value of step {near.step}"
    if near.layer != key.layer:
        return f"value of layer {near.layer}"
    return f"another row: row {near.row}"


def _gaps(key: Key, other: Key) -> tuple[int, int, int]:
    return (abs(other.layer - key.layer), abs(other.step - key.step), abs(other.row - key.row))


def _equal(one: Datum, other: Datum) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape
        # Floats are never equal across implementations; a hint at where a value came from needs no more than this.
        return both and np.allclose(one, other, rtol=1e-2, atol=1e-3)
    return one == other
