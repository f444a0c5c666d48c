"""Tensors of kernel cases: each lies somewhere in a larger allocation, its dimensions in any order, in poison."""

import inspect
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.case import Buffer, KernelCase
from draftproof.properties.strategies.examples import integers, sampled

T = TypeVar("T")
Draw = st.DrawFn
Dtypes = Sequence[torch.dtype]
Arguments = dict[str, Buffer | int | float]
DRAWS: dict[str, tuple[str, ...]] = {}
"""What the strategy of each op may be given besides dtypes, by the op's name."""


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


def distinct(draw: Draw, count: int, high: int = 9) -> list[int]:
    """Draw sizes that all differ, so that one taken for another shows; one in eight times all are one."""
    if draw(sampled((*(False,) * 7, True))):
        return [1] * count
    return draw(_sizes(count, high))


# Hypothesis looks over every new strategy, which takes longer than the draw.
@lru_cache(maxsize=64)
def _sizes(count: int, high: int) -> st.SearchStrategy[list[int]]:
    return st.lists(integers(1, high), min_size=count, max_size=count, unique=True)


@lru_cache(maxsize=64)
def _orders(count: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(count))


def alike(draw: Draw, first: int, second: int) -> tuple[int, int]:
    """Draw two sizes equal a fifth of the time: keys and values as wide, square states."""
    return (first, first if draw(sampled((False, False, False, False, True))) else second)


def page_size(draw: Draw, small: int) -> int:
    """Draw a small page size, or one that engines have."""
    return draw(sampled((small, small, 8, 16, 64)))


def _layout(draw: Draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Draw strides, an offset, and the allocation's size.

    Two in three have their dimensions in any order and gaps between them, the others are as an engine has them: with
    gaps between the first dimension's rows only.
    """
    strides, step = [0] * len(shape), 1
    packed = draw(sampled((False, False, True)))
    order = range(len(shape))[::-1] if packed else draw(_orders(len(shape)))
    for dimension in order:
        strides[dimension] = step + (0 if packed and dimension else draw(integers(0, 2)))
        step = strides[dimension] * max(1, shape[dimension])
    offset = draw(integers(0, 5))
    return tuple(strides), offset, offset + step + draw(integers(1, 5))


def place(draw: Draw, values: torch.Tensor, poisons: Sequence[float] | None = None, room: int = 0) -> Buffer:
    """Put `values` into an allocation full of poison, that goes on for `room` times the largest stride.

    With room a wrong stride leads to memory that is compared, rather than to a crash.
    """
    strides, offset, size = _layout(draw, tuple(values.shape))
    size += room * max(strides, default=0)
    poisons = poisons or VALUE_POISONS[values.dtype]
    storage = torch.full((size,), draw(sampled(poisons)), dtype=values.dtype)
    buffer = Buffer(storage, tuple(values.shape), strides, offset)
    buffer.tensor.copy_(values)
    return buffer


def index(draw: Draw, values: Sequence[Any] | torch.Tensor) -> Buffer:
    return place(draw, torch.as_tensor(values, dtype=torch.int64), INDEX_POISONS)


def numbers(draw: Draw, shape: tuple[int, ...], high: int, low: int = 0) -> torch.Tensor:
    """Return random integers in low..high: one draw for all, since each draw costs more than most kernels."""
    generator = torch.Generator().manual_seed(draw(integers(0, 2**32 - 1)))
    return torch.randint(low, high + 1, shape, generator=generator)


def values_of(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return random values: the whole ring, or floats in [-4, 4]."""
    generator = torch.Generator().manual_seed(draw(integers(0, 2**32 - 1)))
    if dtype == torch.int64:
        return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).clamp_(-4.0, 4.0).to(dtype)


def unwritten(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, room: int = 0) -> Buffer:
    """Return an output: poison throughout."""
    poison = draw(sampled(VALUE_POISONS[dtype]))
    return place(draw, torch.full(shape, poison, dtype=dtype), room=room)


def given(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, room: int = 0) -> Buffer:
    return place(draw, values_of(draw, shape, dtype), room=room)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that states and gates' constants have beside values of `dtype`."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def apart(draw: Draw, used: set[int], low: int, high: int) -> int:
    """Draw a size that differs from all used before, and add it to them; the next one beyond `high` if none is left."""
    free = [size for size in range(low, high + len(used) + 2) if size not in used]
    size = draw(sampled([size for size in free if size <= high] or free[:1]))
    used.add(size)
    return size


def owned(draw: Draw, shape: tuple[int, ...], live: Sequence[int], dtype: torch.dtype) -> Buffer:
    """Return a pool with values in the live slots and poison in all others."""
    poison = draw(sampled(VALUE_POISONS[dtype]))
    values = torch.full(shape, poison, dtype=dtype)
    values[list(live)] = values_of(draw, (len(live), *shape[1:]), dtype)
    return place(draw, values)


def mostly(draw: Draw, usual: st.SearchStrategy[T], odd: st.SearchStrategy[T]) -> T:
    """Draw what is usual five times in six; `one_of` takes either as often."""
    return draw(odd if draw(sampled((False, False, False, False, False, True))) else usual)


def calls(
    default: Callable[[], Dtypes] = tuple,
) -> Callable[[Callable[..., Arguments]], Callable[..., st.SearchStrategy[KernelCase]]]:
    """Turn a function that draws an op's arguments into the strategy of its calls; both have the op's name.

    The strategy takes the dtypes to choose from, `default` if there are none; the function, besides `draw`, the chosen
    one, unless the op has none.
    """

    def strategy_of(arguments: Callable[..., Arguments]) -> Callable[..., st.SearchStrategy[KernelCase]]:
        takes = inspect.signature(arguments).parameters.values()
        DRAWS[arguments.__name__] = tuple(one.name for one in takes if one.default is not one.empty)

        def case(draw: Draw, dtypes: Dtypes = (), **sizes: Any) -> KernelCase:
            known = default()
            dtype = (draw(sampled(dtypes or known)),) if known else ()
            return KernelCase(arguments.__name__, arguments(draw, *dtype, **sizes))

        case.__name__ = case.__qualname__ = arguments.__name__
        return st.composite(case)

    return strategy_of
