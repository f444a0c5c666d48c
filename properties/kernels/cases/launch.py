"""Sizes, slots and constants of a launch of the ops on recurrent state.

`S` state slots, `B` rows of a launch, `W` verify width, `T` packed tokens, `R` sequences, `A`
allocated steps, `L` layers, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` conv width, `Q` channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.strategies.examples import integers, sampled

# Key heads and value heads.
_HEADS = ((1, 2), (1, 3), (1, 4), (2, 4), (3, 6), (1, 1), (2, 2), (3, 3))
# The least width of launches with many tokens.
LONG = 9
# Half of the slots that do not exist are what pads a launch.
_PADDING = (-1, -1, -1)


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
    def is_long(self) -> bool:
        return self.width >= LONG

    @property
    def room(self) -> int:
        """Return how many steps the rows take if none is skipped."""
        return self.rows * self.width

    @property
    def state(self) -> tuple[int, int, int]:
        return self.heads, self.height, self.values


def launch_sizes(draw: Draw, large: bool = False, convs: tuple[int, ...] = ()) -> LaunchSizes:
    """Draw sizes; few rows and heads: each pair of them is a program of its own, and the interpreter is slow.

    Large: a third, the first of a list among them, have many tokens, the others large states. `convs`: widths of the
    convolution to choose from, for a kernel that does not take all.
    """
    used: set[int] = set()
    long = large and draw(sampled((True, False, False)))
    rows = bf.apart(draw, used, 1, 2 if large else 4)
    width = bf.apart(draw, used, LONG, 17) if long else bf.apart(draw, used, 1, 2 if large else 4)
    free = [(n, u) for n, u in _HEADS if not {n, u} & used and rows * u <= 12]
    grouped = [(n, u) for n, u in free if n < u]
    mostly_grouped = bool(grouped) and draw(integers(0, 3)) > 0
    keys, heads = draw(sampled(grouped if mostly_grouped else free))
    used |= {keys, heads}
    steps = bf.apart(draw, used, width + 1, width + 2)
    # Keys of one component come near zero too often, where their direction hangs on a rounding.
    height, values = (18, 40) if large and not long else (bf.apart(draw, used, 2, 6), bf.apart(draw, used, 1, 6))
    height, values = bf.alike(draw, height, values)
    if convs:
        conv = draw(sampled([one for one in convs if one not in used] or convs))
        used.add(conv)
    else:
        conv = bf.apart(draw, used, 2, 5)
    allocated, slots = bf.apart(draw, used, rows + 1, rows + 3), bf.apart(draw, used, 2, 8)
    return LaunchSizes(rows, width, allocated, steps, slots, keys, heads, height, values, conv)


def tree_sizes(draw: Draw) -> LaunchSizes:
    """Draw sizes of a launch whose rows are trees: of up to 7 tokens, in up to two rows."""
    sizes = launch_sizes(draw)
    return replace(_with_width(sizes, draw(sampled((6, 7, 5, sizes.width)))), rows=min(sizes.rows, 2))


def short_or_wide(draw: Draw) -> LaunchSizes:
    """Draw sizes of a launch of which one in three has rows of more tokens than a kernel unrolls."""
    sizes = launch_sizes(draw)
    return _with_width(sizes, draw(sampled((sizes.width, 5, sizes.width, 6, sizes.width, sizes.width))))


def _with_width(sizes: LaunchSizes, width: int) -> LaunchSizes:
    return replace(sizes, width=width, allocated_steps=sizes.allocated_steps + width - sizes.width)


def targets(draw: Draw, count: int, size: int) -> list[int]:
    """Draw slots to write, each at most once, slot 0 among them, and some that do not exist."""
    wild = _absent(size)
    free = draw(st.permutations(range(size)))[:count]
    slots = [bf.mostly(draw, st.just(slot), wild) for slot in free]
    return slots + [draw(wild) for _ in range(count - len(slots))]


def sources(draw: Draw, count: int, size: int) -> list[int]:
    """Draw slots to read only, so that rows may share one, and some that do not exist."""
    live = integers(0, size - 1)
    return [bf.mostly(draw, live, _absent(size)) for _ in range(count)]


def _absent(size: int) -> st.SearchStrategy[int]:
    return sampled((*_PADDING, *bf.WILD, size))


def existing(slots: Sequence[int], size: int) -> list[int]:
    return sorted({slot for slot in slots if 0 <= slot < size})


def scaled(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, factor: float) -> Buffer:
    values = bf.values_of(draw, shape, dtype)
    return bf.place(draw, values if dtype == torch.int64 else values * factor)


def conv_weight(draw: Draw, sizes: LaunchSizes, dtype: torch.dtype) -> Buffer:
    return scaled(draw, (sizes.channels, sizes.conv), dtype, 0.5)


def gate_constants(draw: Draw, sizes: LaunchSizes, dtype: torch.dtype) -> Arguments:
    """Draw a_log in [-2, 2] and dt_bias in [-4, 4]."""
    return {
        "a_log": scaled(draw, (sizes.heads,), bf.wide(dtype), 0.5),
        "dt_bias": bf.given(draw, (sizes.heads,), bf.wide(dtype)),
    }


def raw_gates(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Arguments:
    """Draw gates a and b; every other time far on both sides of where softplus becomes linear."""
    return {"a": scaled(draw, shape, dtype, draw(sampled((1.0, 8.0)))), "b": bf.given(draw, shape, dtype)}


def parents(draw: Draw, sizes: LaunchSizes) -> Buffer:
    """Draw the parents [B,W-1] of rows 1 .. of trees; some are no row before their own."""
    rows = [
        [
            bf.mostly(draw, integers(0, row), sampled((row, -1, row + 1, row + 2, 1 << 40)))
            for row in range(sizes.width - 1)
        ]
        for _ in range(sizes.rows)
    ]
    return bf.index(draw, torch.tensor(rows, dtype=torch.int64).view(sizes.rows, sizes.width - 1))
