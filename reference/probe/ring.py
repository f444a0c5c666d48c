"""The integers modulo 2^64 in numpy: the finalizer that probes take for every nonlinearity, and its constants."""

from __future__ import annotations

import numpy as np

# Constants as arrays without axes: numpy converts anything else anew in every operation.
_A, _B = np.array(0xBF58476D1CE4E5B9, dtype=np.uint64), np.array(0x94D049BB133111EB, dtype=np.uint64)
_27, _30, _31 = (np.array(bits, dtype=np.uint64) for bits in (27, 30, 31))
ONE = np.array(1, dtype=np.uint64)


def coded(x: np.ndarray, bits: int) -> np.ndarray:
    """Return x [.., H] as read from codes of `bits` bits: x_0, and (x_0 | 1) * (2 c + 1) for each other code c.

    A code is the top bits as a signed number.
    """
    codes = x.view(np.int64) >> np.int64(64 - bits)
    read: np.ndarray = (x[..., :1] | ONE) * (codes.view(np.uint64) * np.uint64(2) + ONE)
    read[..., 0] = x[..., 0]
    return read


def mix(x: np.ndarray) -> np.ndarray:
    """Apply the SplitMix64 finalizer elementwise: every input bit reaches every output bit."""
    x = x ^ (x >> _30)
    x *= _A
    x ^= x >> _27
    x *= _B
    x ^= x >> _31
    return x


def turned(weight: np.ndarray) -> np.ndarray:
    """[out, in] -> [in, out], contiguous: a strided matrix product takes twice as long."""
    return np.ascontiguousarray(weight.T)
