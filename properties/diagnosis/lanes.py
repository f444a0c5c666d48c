"""Compare states element by element: the conv window and the SSM matrix can be wrong independently."""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.observed import Datum


def values_match(one: Datum | None, other: Datum | None) -> bool:
    """Return whether two values are equal; floats must be as close as those of two implementations can be."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and bool(_close(one, other).all())
    return not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other


def explains(state: Datum, value: Datum, right: Datum | None) -> bool:
    """Return whether a wrong value equals another state wherever it is not right."""
    one, other = _lanes(state), _lanes(value)
    if one is None or other is None or one.shape != other.shape:
        return False
    wrong = _wrong(other, right)
    return bool(wrong.any() and _close(one, other)[wrong].all())


def parts(value: Datum | None, width: int) -> list[np.ndarray]:
    """Cut a vector into vectors of `width` lanes; [] if it is not made of such."""
    lanes = _lanes(value)
    if lanes is None or not width or lanes.size % width:
        return []
    return list(lanes.reshape(-1, width))


def wrong_words(value: Datum, right: Datum | None) -> set[bytes]:
    """Return the words of a value where it is not right."""
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
    """Compare lane by lane; to find out where a float came from, one percent is near enough."""
    near: np.ndarray = one == other if one.dtype.kind == "u" else np.isclose(one, other, rtol=1e-2, atol=1e-3)
    return near
