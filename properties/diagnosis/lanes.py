"""States lane by lane: a state has two parts, the window and the matrix, and one of them may be well."""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.observed import Datum


def explains(state: Datum, value: Datum, right: Datum | None) -> bool:
    """Whether a wrong value is another state wherever it is not right."""
    one, other = _lanes(state), _lanes(value)
    if one is None or other is None or one.shape != other.shape:
        return False
    wrong = _wrong(other, right)
    return bool(wrong.any() and _close(one, other)[wrong].all())


def same(one: Datum | None, other: Datum) -> bool:
    """Whether two states are equal, as near as floats of two implementations can be."""
    lanes, others = _lanes(one), _lanes(other)
    if lanes is None or others is None or lanes.shape != others.shape:
        return False
    return bool(_close(lanes, others).all())


def parts(value: Datum | None, width: int) -> list[np.ndarray]:
    """A vector cut into vectors of `width` lanes; [] if it is not made of such."""
    lanes = _lanes(value)
    if lanes is None or not width or lanes.size % width:
        return []
    return list(lanes.reshape(-1, width))


def wrong_words(value: Datum, right: Datum | None) -> set[bytes]:
    """The words that a value has where it is not right."""
    lanes = _lanes(value)
    return set() if lanes is None else {lane.tobytes() for lane in lanes[_wrong(lanes, right)]}


def _wrong(lanes: np.ndarray, right: Datum | None) -> np.ndarray:
    own = _lanes(right)
    if own is None or own.shape != lanes.shape:
        return np.ones(lanes.shape, dtype=bool)
    return ~_close(lanes, own)


def _lanes(value: Datum | None) -> np.ndarray | None:
    if isinstance(value, bytes) and len(value) % 8 == 0:
        return np.frombuffer(value, dtype="<u8")
    return value if isinstance(value, np.ndarray) else None


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Lane by lane; floats of two implementations are never equal, and a hint needs no more than a percent."""
    return one == other if one.dtype.kind == "u" else np.isclose(one, other, rtol=1e-2, atol=1e-3)
