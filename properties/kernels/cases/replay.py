"""Calls of the ops on replayed state; letters as in launch.py. Beyond the pending tokens of a slot lies poison."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    RING_AND_FLOATS,
    VALUE_POISONS,
    Arguments,
    Draw,
    Dtypes,
    distinct,
    given,
    index,
    mostly,
    owned,
    place,
    unwritten,
    values_of,
    wide,
)
from draftproof.properties.kernels.case import Buffer, KernelCase
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


@dataclass(frozen=True)
class _Pending:
    """What the slots of a launch have pending: a cursor (m, h) for every slot, and the pools that go with them."""

    cursor: list[list[int]]
    ssm: Buffer
    inputs: Buffer
    gates: Buffer


def _pending(draw: Draw, sizes: LaunchSizes, slots: Sequence[int], dtype: torch.dtype) -> _Pending:
    """Draw cursors, some impossible; only what is pending has values, all else in the pools is poison."""
    steps, before = sizes.allocated_steps, sizes.conv - 1
    count = st.sampled_from((*range(steps + 1), steps))
    cursor = [[draw(count), draw(st.integers(0, 1))] for _ in range(sizes.slots)]
    poison = draw(st.sampled_from(VALUE_POISONS[dtype.is_floating_point]))
    inputs = torch.full((2, sizes.slots, before + steps, sizes.channels), poison, dtype=dtype)
    gates = torch.full((2, sizes.slots, steps, 2, sizes.heads), poison, dtype=dtype)
    live = existing(slots, sizes.slots)
    for slot in live:
        m, h = cursor[slot]
        inputs[h, slot, : before + m] = values_of(draw, (before + m, sizes.channels), dtype)
        gates[h, slot, :m] = values_of(draw, (m, 2, sizes.heads), dtype)
        impossible = st.sampled_from(([-1, 0], [steps + 1, 1], [1 << 40, 0], [m, -1], [m, 2]))
        cursor[slot] = mostly(draw, st.just([m, h]), impossible)
    ssm = owned(draw, (sizes.slots, *sizes.state), live, wide(dtype))
    return _Pending(cursor, ssm, place(draw, inputs), place(draw, gates))


@st.composite
def gdn_replay(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw nothing, something and everything pending, in either half."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    slots = targets(draw, sizes.rows, sizes.slots)
    pending, rows = _pending(draw, sizes, slots, dtype), (sizes.rows, sizes.width)
    arguments: Arguments = {
        "out": unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "x": given(draw, (*rows, sizes.channels), dtype),
        **raw_gates(draw, (*rows, sizes.heads), dtype),
        "weight": conv_weight(draw, sizes, dtype),
        **gate_constants(draw, sizes, dtype),
        "cursor": index(draw, pending.cursor),
        "state_slots": index(draw, slots),
    }
    return KernelCase("gdn_replay", arguments)


@st.composite
def gdn_flush(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw as gdn_replay, without new tokens."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    slots = targets(draw, sizes.rows, sizes.slots)
    pending = _pending(draw, sizes, slots, dtype)
    arguments: Arguments = {
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "cursor": index(draw, pending.cursor),
        "gates": pending.gates,
        "weight": conv_weight(draw, sizes, dtype),
        **gate_constants(draw, sizes, dtype),
        "state_slots": index(draw, slots),
    }
    return KernelCase("gdn_flush", arguments)


@st.composite
def gdn_checkpoint(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Draw rows that share a slot; steps that are -1, first, last, and beyond what is pending."""
    dtype, sizes = draw(st.sampled_from(dtypes)), launch_sizes(draw, large)
    slots, tracked = sources(draw, sizes.rows, sizes.slots), sizes.slots + draw(st.integers(1, 3))
    pending = _pending(draw, sizes, slots, dtype)
    steps = []
    for slot in slots:
        m = pending.cursor[slot][0] if 0 <= slot < sizes.slots else 1
        within = st.sampled_from(range(min(max(1, m), sizes.allocated_steps)))
        steps.append(mostly(draw, within, st.sampled_from((-1, m - 1, m, 1 << 40))))
    arguments: Arguments = {
        "checkpoint_ssm": unwritten(draw, (tracked, *sizes.state), wide(dtype)),
        "checkpoint_conv": unwritten(draw, (tracked, sizes.conv - 1, sizes.channels), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "weight": conv_weight(draw, sizes, dtype),
        **gate_constants(draw, sizes, dtype),
        "cursor": index(draw, pending.cursor),
        "state_slots": index(draw, slots),
        "checkpoint_slots": index(draw, targets(draw, sizes.rows, tracked)),
        "checkpoint_steps": index(draw, steps),
    }
    return KernelCase("gdn_checkpoint", arguments)


def _cursors(draw: Draw) -> tuple[Buffer, Buffer, int]:
    """Draw a cursor [S,2], slots to write [B], and B."""
    rows, size = distinct(draw, 2)
    cursor = [[draw(st.sampled_from((0, 0, 1, 2, 5))), draw(st.integers(0, 1))] for _ in range(size)]
    return index(draw, cursor), index(draw, targets(draw, rows, size)), rows


@st.composite
def replay_commit(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Draw rows of which nothing was verified, and some that accept one token or several."""
    del dtypes
    cursor, slots, rows = _cursors(draw)
    last = [draw(st.one_of(st.integers(-1, 7), st.integers(-1, 0))) for _ in range(rows)]
    arguments: Arguments = {"cursor": cursor, "state_slots": slots, "last_correct_step_indices": index(draw, last)}
    return KernelCase("replay_commit", arguments)


@st.composite
def replay_rewind(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Draw slots with and without something pending."""
    del dtypes
    cursor, slots, _ = _cursors(draw)
    return KernelCase("replay_rewind", {"cursor": cursor, "state_slots": slots})
