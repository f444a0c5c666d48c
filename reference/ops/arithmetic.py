"""Scalar arithmetic of the naive twins: the ring of integers modulo 2^64, and floats in float64."""

import math
from collections.abc import Iterable
from typing import TypeVar

import torch

Number = TypeVar("Number", int, float)
MODULUS = 1 << 64
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """Return SplitMix64's finalizer of x modulo 2^64, in [0, 2^64)."""
    x %= MODULUS
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % MODULUS
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % MODULUS
    return x ^ (x >> 31)


def signed(x: int) -> int:
    """Return the int64 that stands for x in the ring."""
    x %= MODULUS
    return x - MODULUS if x >= MODULUS // 2 else x


def rounded(values: list[float], dtype: torch.dtype) -> list[float]:
    """Return the float of `dtype` that stands for each value."""
    numbers: list[float] = torch.tensor(values, dtype=torch.float64).to(dtype).tolist()
    return numbers


def products(a: Iterable[Number], b: Iterable[Number]) -> list[Number]:
    """Return the product of each pair of two vectors of one length."""
    return [x * y for x, y in zip(a, b, strict=True)]


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x)), whatever the size of x."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def softplus(x: float) -> float:
    """Return log(1 + exp(x)), and x itself above 20, as torch does."""
    return x if x > 20.0 else math.log1p(math.exp(x))
