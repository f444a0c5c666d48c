"""Eager arithmetic in the ring of integers modulo 2^64, held in int64. `T` rows, `I` inputs, `O` outputs.

The mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
"""

import numpy as np
from torch import Tensor

from draftproof.kernels.registry import register

_GOLDEN = 0x9E3779B97F4A7C15
# Arrays without dimensions: numpy takes them faster than its scalars.
_FIRST, _SECOND = np.array(0xBF58476D1CE4E5B9, np.uint64), np.array(0x94D049BB133111EB, np.uint64)
_BY30, _BY27, _BY31 = (np.array(count, np.uint64) for count in (30, 27, 31))
_MODULUS = 1 << 64


def mix_in_place(x: np.ndarray) -> np.ndarray:
    """Mix a uint64 array (not a scalar) in place and return it; zero stays zero."""
    shifted = x >> _BY30
    x ^= shifted
    x *= _FIRST
    x ^= np.right_shift(x, _BY27, out=shifted)
    x *= _SECOND
    x ^= np.right_shift(x, _BY31, out=shifted)
    return x


@register("out")
def ring_mix(out: Tensor, x: Tensor, salt: int) -> None:
    """Set out = mix(x + salt * golden ratio), elementwise; int64 tensors of one shape, at most three dimensions."""
    result = out.numpy().view(np.uint64)
    if not result.ndim:
        result = result.reshape(1)
    if salt:
        np.add(x.numpy().view(np.uint64), np.uint64(salt * _GOLDEN % _MODULUS), out=result)
    elif out is not x:
        result[...] = x.numpy().view(np.uint64)
    mix_in_place(result)


@register("out")
def ring_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Set out [T,O] = x [T,I] @ weight [O,I].T, int64."""
    np.matmul(x.numpy(), weight.numpy().T, out=out.numpy())
