"""Calls of the ops on recurrent state; letters as in launch.py.

Pools have more rows and steps than a launch uses, and slots that nobody owns hold poison. No two rows of a launch write
one slot: which of them wins is not defined.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    RING_AND_FLOATS,
    Arguments,
    Draw,
    Dtypes,
    distinct,
    given,
    index,
    mostly,
    owned,
    unwritten,
    wide,
)
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.cases.launch import (
    LaunchSizes,
    conv_weight,
    existing,
    gate_constants,
    launch_sizes,
    raw_gates,
    sources,
    targets,
)


@st.composite
def conv_verify(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw more steps than the width and more pool rows than the launch; rows that share a slot or have none."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    slots = sources(draw, sizes.rows, sizes.slots)
    row = (sizes.rows, sizes.width, sizes.channels)
    window = (sizes.conv - 1, sizes.channels)
    arguments: Arguments = {
        "out": unwritten(draw, row, dtype),
        "windows": unwritten(draw, (sizes.allocated_rows, sizes.allocated_steps, *window), dtype, sizes.room),
        "x": given(draw, row, dtype),
        "conv": owned(draw, (sizes.slots, *window), existing(slots, sizes.slots), dtype),
        "weight": conv_weight(draw, sizes, dtype),
        "state_slots": index(draw, slots),
    }
    return KernelCase("conv_verify", arguments)


@st.composite
def gdn_verify(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw as conv_verify, with states that are not zero."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    slots = sources(draw, sizes.rows, sizes.slots)
    rows = (sizes.rows, sizes.width)
    arguments: Arguments = {
        "out": unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "states": unwritten(draw, (sizes.allocated_rows, sizes.allocated_steps, *sizes.state), wide(dtype), sizes.room),
        "qkv": given(draw, (*rows, sizes.channels), dtype),
        **raw_gates(draw, (*rows, sizes.heads), dtype),
        **gate_constants(draw, sizes, dtype),
        "ssm": owned(draw, (sizes.slots, *sizes.state), existing(slots, sizes.slots), wide(dtype)),
        "state_slots": index(draw, slots),
    }
    return KernelCase("gdn_verify", arguments)


@dataclass(frozen=True)
class _Packed:
    """Packed sequences: tokens, those that belong to a sequence, and the arguments that say which."""

    tokens: int
    owned: list[int]
    live: list[int]
    tracked: int
    arguments: Arguments


def _packed(draw: Draw, sizes: LaunchSizes) -> _Packed:
    """Draw sequences of 0 to 6 tokens, tokens before and after them, and steps to track, some beyond the end."""
    count, tracked = sizes.rows, sizes.slots + draw(st.integers(1, 3))
    lengths = [draw(st.integers(0, 6)) for _ in range(count)]
    starts = [draw(st.sampled_from((0, 0, 2)))]
    for length in lengths:
        starts.append(starts[-1] + length)
    steps = [
        mostly(draw, st.sampled_from((*range(n), -1)), st.sampled_from((n - 1, n, n + 3, 1 << 40))) for n in lengths
    ]
    slots = targets(draw, count, sizes.slots)
    arguments: Arguments = {
        "state_slots": index(draw, slots),
        "cu_seqlens": index(draw, starts),
        "checkpoint_slots": index(draw, targets(draw, count, tracked)),
        "checkpoint_steps": index(draw, steps),
    }
    tokens = starts[-1] + draw(st.integers(0 if starts[-1] else 1, 2))
    return _Packed(tokens, list(range(starts[0], starts[-1])), existing(slots, sizes.slots), tracked, arguments)


@st.composite
def conv_update(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw sequences shorter and longer than the window, and empty ones."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    packed, window = _packed(draw, sizes), (sizes.conv - 1, sizes.channels)
    arguments: Arguments = {
        "out": unwritten(draw, (packed.tokens, sizes.channels), dtype),
        "conv": owned(draw, (sizes.slots, *window), packed.live, dtype),
        "checkpoint_conv": unwritten(draw, (packed.tracked, *window), dtype),
        "x": owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        "weight": conv_weight(draw, sizes, dtype),
        **packed.arguments,
    }
    return KernelCase("conv_update", arguments)


@st.composite
def gdn_update(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw as conv_update."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    packed = _packed(draw, sizes)
    arguments: Arguments = {
        "out": unwritten(draw, (packed.tokens, sizes.heads, sizes.values), dtype),
        "ssm": owned(draw, (sizes.slots, *sizes.state), packed.live, wide(dtype)),
        "checkpoint_ssm": unwritten(draw, (packed.tracked, *sizes.state), wide(dtype)),
        "qkv": owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        **raw_gates(draw, (packed.tokens, sizes.heads), dtype),
        **gate_constants(draw, sizes, dtype),
        **packed.arguments,
    }
    return KernelCase("gdn_update", arguments)


@st.composite
def state_scatter(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw rows of one to three dimensions; steps that were not accepted at all, the last one, and impossible ones."""
    dtype = draw(st.sampled_from(dtypes))
    layers, rows, steps, slots, *inner = distinct(draw, 4 + draw(st.integers(1, 3)), 8)
    inner = [*inner[:-1], 5000] if large else inner
    count = draw(st.integers(1, rows))
    wild = st.sampled_from((-1, -1, steps, 1 << 40))
    last = [mostly(draw, st.sampled_from((*range(steps), steps - 1)), wild) for _ in range(count)]
    arguments: Arguments = {
        "pool": given(draw, (layers, slots, *inner), dtype),
        "steps": given(draw, (layers, rows, steps, *inner), dtype),
        "state_slots": index(draw, targets(draw, count, slots)),
        "last_correct_step_indices": index(draw, last),
    }
    return KernelCase("state_scatter", arguments)


@st.composite
def checkpoint_steps(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Draw lengths on and beside a multiple, counts that reach none, one or several, and rows that are padding."""
    del dtypes
    rows, interval = distinct(draw, 2)
    arguments: Arguments = {
        "steps": unwritten(draw, (rows,), torch.int64),
        "seq_lens": index(draw, [draw(st.integers(0, 40)) for _ in range(rows)]),
        "num_tokens": index(draw, [draw(st.integers(-1, 12)) for _ in range(rows)]),
        "interval": interval,
    }
    return KernelCase("checkpoint_steps", arguments)


@st.composite
def gated_norm(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Draw rows of different size; the weight may be of the wider dtype."""
    dtype = draw(st.sampled_from(dtypes))
    rows, width = distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": unwritten(draw, (rows, width), dtype),
        "x": given(draw, (rows, width), dtype),
        "z": given(draw, (rows, width), dtype),
        "weight": given(draw, (width,), draw(st.sampled_from((dtype, wide(dtype))))),
        "eps": draw(st.sampled_from((1e-6, 1e-2))),
    }
    return KernelCase("gated_norm", arguments)
