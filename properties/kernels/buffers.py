"""Tensors of kernel cases: each lies somewhere in a larger allocation, its dimensions in any order, in poison."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels.case import Buffer, KernelCase

T = TypeVar("T")
Dtypes = Sequence[torch.dtype]
Arguments = dict[str, Buffer | int | float]
Sizes = Mapping[str, int]
"""dimension of an op's calls -> the size that a call is to have there"""
ANY: Sizes = MappingProxyType({})
"""No size that is asked for."""


@dataclass(frozen=True)
class Aim:
    """What a call is to be: sizes of some of its dimensions, and whether its values are of the "ring" or "float"."""

    sizes: Sizes = field(default_factory=dict)
    kind: str = ""

    def takes(self, dtype: torch.dtype) -> bool:
        """Return whether values of a call may be of this dtype."""
        return not self.kind or dtype.is_floating_point == (self.kind == "float")


NO_AIM = Aim()
DRAWS: dict[str, tuple[str, ...]] = {}
"""What the calls of each op may be asked for besides dtypes and sizes, by the op's name."""


def floats() -> Dtypes:
    """Return the dtypes of float calls in this process: Triton's interpreter adds the bit patterns of bfloat16.

    Asked for when a call is drawn, since a process may be forked to interpret after this was imported.
    """
    return (torch.float32, torch.float16 if os.environ.get("TRITON_INTERPRET") == "1" else torch.bfloat16)


def ring_and_floats() -> Dtypes:
    """Return the dtypes of calls that the ring has as well."""
    return (torch.int64, *floats())


def codes() -> Dtypes:
    """Return the dtypes that codes of quantised numbers have."""
    return (torch.int8, torch.int16)


# What float16 can hold ends at 65504.
VALUE_POISONS: dict[torch.dtype, Sequence[float]] = {
    **dict.fromkeys((torch.float64, torch.float32, torch.bfloat16), (float("nan"), -3e30)),
    torch.float16: (float("nan"), -6e4),
    torch.int64: (0x5EED5EED5EED5EED, -1),
    torch.int16: (0x5EED, -1),
    torch.int8: (0x5E, -1),
    # 384 and NaN of e4m3fn.
    torch.uint8: (0x7C, 0xFF),
}
# Poison for indices is in range where it can be: a wild one would crash rather than mislead.
INDEX_POISONS = (0, 1, 2)
WILD = (-1, -7, 1 << 40, (1 << 62) + 1)


# Elements behind a tensor, which is enough for any wrong stride of a small one.
_MOST_ROOM = 1 << 20


def distinct(choose: Choose, *names: str, aim: Sizes = ANY, high: int = 9) -> list[int]:
    """Choose sizes of these dimensions that all differ, so that mixing them up shows; `aim` has the given sizes.

    Without an aim, all sizes are one in one of eight cases.
    """
    if not aim and choose.one_of((*(False,) * 7, True)):
        return [1] * len(names)
    free = [size for size in range(1, high + 1) if size not in aim.values()]
    free += [high + 1 + more for more in range(len(names) - len(free))]
    return [aim[name] if name in aim else free.pop(choose.integer(0, len(free) - 1)) for name in names]


def alike(choose: Choose, first: int, second: int, *, asked: bool = False) -> tuple[int, int]:
    """Return two sizes, equal a fifth of the time unless they are `asked` for: keys and values, square states."""
    return (first, first if not asked and choose.one_of((False, False, False, False, True)) else second)


def page_size(choose: Choose, small: int, aim: Sizes = ANY) -> int:
    """Choose a small page size, or one that engines have."""
    return aim.get("page_size", 0) or choose.one_of((small, small, 8, 16, 64))


def shuffled(choose: Choose, values: Sequence[T]) -> list[T]:
    """Return the values in any order: one choice for all, however many there are."""
    return [values[place] for place in torch.randperm(len(values), generator=generator(choose)).tolist()]


def several(choose: Choose, values: Sequence[T], least: int, most: int) -> list[T]:
    """Return `least` to `most` of the values, none twice, in any order."""
    return shuffled(choose, values)[: choose.integer(least, min(most, len(values)))]


def generator(choose: Choose) -> torch.Generator:
    """Return a source of numbers: one choice for all of them, since they are many."""
    return torch.Generator().manual_seed(choose.integer(0, 2**32 - 1))


def any_word(choose: Choose) -> int:
    """Choose an int64, each of its bits."""
    return (choose.integer(0, 2**32 - 1) << 32 | choose.integer(0, 2**32 - 1)) - (1 << 63)


def _layout(choose: Choose, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Draw strides, an offset, and the allocation's size.

    Two in three have their dimensions in any order and gaps between them, the others are as an engine has them: with
    gaps between the first dimension's rows only.
    """
    strides, step = [0] * len(shape), 1
    packed = choose.one_of((False, False, True))
    left = list(range(len(shape)))
    order = left[::-1] if packed else [left.pop(choose.integer(0, len(left) - 1)) for _ in shape]
    for dimension in order:
        strides[dimension] = step + (0 if packed and dimension else choose.integer(0, 2))
        step = strides[dimension] * max(1, shape[dimension])
    offset = choose.integer(0, 5)
    return tuple(strides), offset, offset + step + choose.integer(1, 5)


def place(choose: Choose, values: torch.Tensor, poisons: Sequence[float] | None = None, room: int = 0) -> Buffer:
    """Put `values` into an allocation full of poison, that goes on for `room` times the largest stride.

    With room a wrong stride leads to memory that is compared, rather than to a crash.
    """
    strides, offset, size = _layout(choose, tuple(values.shape))
    size += min(room * max(strides, default=0), _MOST_ROOM)
    poisons = poisons or VALUE_POISONS[values.dtype]
    storage = torch.full((size,), choose.one_of(poisons), dtype=values.dtype)
    buffer = Buffer(storage, tuple(values.shape), strides, offset)
    buffer.tensor.copy_(values)
    return buffer


def index(choose: Choose, values: Sequence[Any] | torch.Tensor) -> Buffer:
    return place(choose, torch.as_tensor(values, dtype=torch.int64), INDEX_POISONS)


def numbers(choose: Choose, shape: tuple[int, ...], high: int, low: int = 0) -> torch.Tensor:
    """Return random integers in low..high: one choice for all."""
    return torch.randint(low, high + 1, shape, generator=generator(choose))


def values_of(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return random values: the whole ring, or floats in [-4, 4]."""
    source = generator(choose)
    if dtype == torch.int64:
        return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=source)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, shape, generator=source, dtype=dtype)
    return torch.randn(shape, generator=source, dtype=torch.float64).clamp_(-4.0, 4.0).to(dtype)


def unwritten(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype, room: int = 0) -> Buffer:
    """Return an output: poison throughout."""
    return place(choose, poisoned(choose, shape, dtype), room=room)


def poisoned(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return values that must not be read."""
    return torch.full(shape, choose.one_of(VALUE_POISONS[dtype]), dtype=dtype)


def given(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype, room: int = 0) -> Buffer:
    return place(choose, values_of(choose, shape, dtype), room=room)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that states and gates' constants have beside values of `dtype`."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def apart(choose: Choose, used: set[int], low: int, high: int) -> int:
    """Choose a size that differs from all used before, and add it to them; one beyond `high` if none is left."""
    free = [size for size in range(low, high + len(used) + 2) if size not in used]
    size = choose.one_of([size for size in free if size <= high] or free[:1])
    used.add(size)
    return size


def owned(choose: Choose, shape: tuple[int, ...], live: Sequence[int], dtype: torch.dtype) -> Buffer:
    """Return a pool with values in the live slots and poison in all others."""
    values = poisoned(choose, shape, dtype)
    values[list(live)] = values_of(choose, (len(live), *shape[1:]), dtype)
    return place(choose, values)


def mostly(choose: Choose, usual: T, odd: Sequence[T]) -> T:
    """Return what is usual five times in six, else one of what is odd."""
    return choose.one_of(odd) if choose.one_of((False, False, False, False, False, True)) else usual


def calls(default: Callable[[], Dtypes] = tuple) -> Callable[[Callable[..., Arguments]], Callable[..., KernelCase]]:
    """Turn a function that chooses an op's arguments into one that makes a call; both have the op's name.

    Besides `choose`, the one takes the dtypes to choose from, `default` if there are none, and an aim; the other the
    chosen dtype, unless the op has none, and the aim's sizes.
    """

    def call_of(arguments: Callable[..., Arguments]) -> Callable[..., KernelCase]:
        takes = inspect.signature(arguments).parameters.values()
        DRAWS[arguments.__name__] = tuple(one.name for one in takes if one.default is not one.empty)[1:]

        def call(choose: Choose, dtypes: Dtypes = (), aim: Aim = NO_AIM, **more: Any) -> KernelCase:
            known = dtypes or default()
            chosen = (choose.one_of([one for one in known if aim.takes(one)] or known),) if default() else ()
            return KernelCase(arguments.__name__, arguments(choose, *chosen, aim.sizes, **more))

        call.__name__ = call.__qualname__ = arguments.__name__
        return call

    return call_of
