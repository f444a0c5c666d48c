"""Sizes, slots and constants of a launch of the ops on recurrent state.

`S` state slots, `B` rows of a launch, `W` verify width, `T` packed tokens, `R` sequences, `A`
allocated steps, `L` layers, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` conv width, `Q` channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes
from draftproof.properties.kernels.case import Buffer

# Key heads and value heads.
_HEADS = ((1, 2), (1, 3), (1, 4), (2, 4), (3, 6), (1, 1), (2, 2), (3, 3))
# Half of the slots that do not exist are what pads a launch.
_PADDING = (-1, -1, -1)
# Keys so short that what a norm adds below its root is most of it.
_SHORT = 2.0**-10


@dataclass(frozen=True)
class LaunchSizes:
    """Pairwise distinct sizes of one launch, but that key and value heads may be as many, and states square."""

    rows: int
    width: int
    allocated_rows: int
    allocated_steps: int
    slots: int
    keys: int
    heads: int
    height: int
    values: int
    conv: int

    @property
    def channels(self) -> int:
        return 2 * self.keys * self.height + self.heads * self.values

    @property
    def room(self) -> int:
        """Return how many steps the rows take if none is skipped."""
        return self.rows * self.width

    @property
    def state(self) -> tuple[int, int, int]:
        return self.heads, self.height, self.values


def launch_sizes(choose: Choose, aim: Sizes = ANY, convs: tuple[int, ...] = ()) -> LaunchSizes:
    """Choose sizes; few rows and heads: each pair of them is a program of its own, and the interpreter is slow.

    `convs`: widths of the convolution to choose from, for a kernel that does not take all.
    """
    used = set[int](aim.values())

    def size(name: str, low: int, high: int) -> int:
        return aim[name] if name in aim else bf.apart(choose, used, low, high)

    # Two rows beside what is large.
    rows = size("rows", 1, 2 if max(used, default=0) > 16 else 4)
    width = size("width", 1, 4)
    keys, heads = _heads(choose, aim, rows, used)
    steps = aim["pending"] if "pending" in aim else bf.apart(choose, used, width + 1, width + 2)
    # Keys of one component come near zero too often, where their direction depends on rounding.
    height, values = size("key_size", 2, 6), size("value_size", 1, 6)
    if not aim.keys() & {"key_size", "value_size"}:
        height, values = bf.alike(choose, height, values)
    conv = size("taps", 2, 5)
    if convs:
        conv = choose.one_of([one for one in convs if one not in used] or convs)
    allocated, slots = bf.apart(choose, used, rows + 1, rows + 3), size("slots", 2, 8)
    return LaunchSizes(rows, width, allocated, steps, slots, keys, heads, height, values, conv)


def _heads(choose: Choose, aim: Sizes, rows: int, used: set[int]) -> tuple[int, int]:
    """Return key heads and value heads, which are often more."""
    if "heads" in aim:
        return choose.one_of([keys for keys in (1, aim["heads"]) if aim["heads"] % keys == 0]), aim["heads"]
    free = [(n, u) for n, u in _HEADS if not {n, u} & used and rows * u <= 12] or [(1, 1), (1, 2)]
    grouped = [(n, u) for n, u in free if n < u]
    keys, heads = choose.one_of(grouped if grouped and choose.integer(0, 3) else free)
    used |= {keys, heads}
    return keys, heads


def tree_sizes(choose: Choose, aim: Sizes = ANY) -> LaunchSizes:
    """Choose the sizes of a launch of trees: up to 7 tokens a row, in one or two rows."""
    width = choose.one_of((6, 7, 5, choose.integer(1, 4)))
    return launch_sizes(choose, {"rows": choose.integer(1, 2), "width": width, **aim})


def targets(choose: Choose, count: int, size: int, aim: Sizes = ANY) -> list[int]:
    """Choose slots to write, each at most once, slot 0 among them, and some that do not exist.

    Where something is asked for, the last row has a slot, the last one if slots are.
    """
    free = bf.shuffled(choose, range(size))[:count]
    if "slots" in aim:
        free = [*[slot for slot in free if slot != size - 1][: min(count, size) - 1], size - 1]
    slots = [bf.mostly(choose, slot, _absent(size)) for slot in free]
    if aim and slots:
        slots[-1] = free[-1]
    return [*[choose.one_of(_absent(size)) for _ in range(count - len(slots))], *slots]


def sources(choose: Choose, count: int, size: int, aim: Sizes = ANY) -> list[int]:
    """Choose slots to read only, so that rows may share one, and some that do not exist; the last as in `targets`."""
    slots = [bf.mostly(choose, choose.integer(0, size - 1), _absent(size)) for _ in range(count)]
    if aim:
        slots[-1] = size - 1
    return slots


def _absent(size: int) -> Sequence[int]:
    return (*_PADDING, *bf.WILD, size)


def existing(slots: Sequence[int], size: int) -> list[int]:
    return sorted({slot for slot in slots if 0 <= slot < size})


def scaled(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype, factor: float) -> Buffer:
    values = bf.values_of(choose, shape, dtype)
    return bf.place(choose, values if dtype == torch.int64 else values * factor)


def key_scales(choose: Choose, sizes: LaunchSizes, dtype: torch.dtype, aim: Sizes) -> torch.Tensor:
    """Return a factor for each channel of queries and keys, which are as short as what a norm adds in some calls."""
    short = dtype.is_floating_point and ("short" in aim or choose.one_of((False, False, False, True)))
    factors = torch.ones(sizes.channels, dtype=dtype)
    if short:
        factors[: 2 * sizes.keys * sizes.height] = _SHORT
    return factors


def conv_weight(choose: Choose, sizes: LaunchSizes, dtype: torch.dtype) -> Buffer:
    return scaled(choose, (sizes.channels, sizes.conv), dtype, 0.5)


def gate_constants(choose: Choose, sizes: LaunchSizes, dtype: torch.dtype) -> Arguments:
    """Choose a_log in [-2, 2] and dt_bias in [-4, 4]."""
    return {
        "a_log": scaled(choose, (sizes.heads,), bf.wide(dtype), 0.5),
        "dt_bias": bf.given(choose, (sizes.heads,), bf.wide(dtype)),
    }


def raw_gates(choose: Choose, shape: tuple[int, ...], dtype: torch.dtype) -> Arguments:
    """Choose gates a and b; every other time far on both sides of where softplus becomes linear."""
    return {"a": scaled(choose, shape, dtype, choose.one_of((1.0, 8.0))), "b": bf.given(choose, shape, dtype)}


def parents(choose: Choose, sizes: LaunchSizes) -> Buffer:
    """Choose the parents [B,W-1] of rows 1 .. of trees; some are no row before their own."""
    rows = [
        [
            bf.mostly(choose, choose.integer(0, row), (row, -1, row + 1, row + 2, 1 << 40))
            for row in range(sizes.width - 1)
        ]
        for _ in range(sizes.rows)
    ]
    return bf.index(choose, torch.tensor(rows, dtype=torch.int64).view(sizes.rows, sizes.width - 1))
