"""The integers modulo 2^64 in numpy: the finalizer that probes take for every nonlinearity, and its constants."""

from __future__ import annotations

import numpy as np

# Constants as arrays without axes: numpy converts anything else anew in every operation.
_A, _B = np.array(0xBF58476D1CE4E5B9, dtype=np.uint64), np.array(0x94D049BB133111EB, dtype=np.uint64)
_27, _30, _31 = (np.array(bits, dtype=np.uint64) for bits in (27, 30, 31))
ONE = np.array(1, dtype=np.uint64)


def mix(x: np.ndarray) -> np.ndarray:
    """The SplitMix64 finalizer, elementwise: every input bit reaches every output bit."""
    x = x ^ (x >> _30)
    x *= _A
    x ^= x >> _27
    x *= _B
    x ^= x >> _31
    return x


def turned(weight: np.ndarray) -> np.ndarray:
    """[out, in] -> [in, out], contiguous: a strided matrix product takes twice as long."""
    return np.ascontiguousarray(weight.T)
