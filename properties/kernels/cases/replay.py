"""Calls of the ops on replayed state; letters as in launch.py. Beyond the pending tokens of a slot lies poison."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, ring_and_floats
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.kernels.cases import launch
from draftproof.properties.kernels.cases.launch import LaunchSizes
from draftproof.properties.strategies.examples import integers, sampled


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
    count = sampled((*range(steps + 1), steps))
    cursor = [[draw(count), draw(integers(0, 1))] for _ in range(sizes.slots)]
    poison = draw(sampled(bf.VALUE_POISONS[dtype]))
    inputs = torch.full((2, sizes.slots, before + steps, sizes.channels), poison, dtype=dtype)
    gates = torch.full((2, sizes.slots, steps, 2, sizes.heads), poison, dtype=dtype)
    live = launch.existing(slots, sizes.slots)
    for slot in live:
        m, h = cursor[slot]
        inputs[h, slot, : before + m] = bf.values_of(draw, (before + m, sizes.channels), dtype)
        gates[h, slot, :m] = bf.values_of(draw, (m, 2, sizes.heads), dtype)
        impossible = st.sampled_from(([-1, 0], [steps + 1, 1], [1 << 40, 0], [m, -1], [m, 2]))
        cursor[slot] = bf.mostly(draw, st.just([m, h]), impossible)
    ssm = bf.owned(draw, (sizes.slots, *sizes.state), live, bf.wide(dtype))
    return _Pending(cursor, ssm, bf.place(draw, inputs), bf.place(draw, gates))


@calls(ring_and_floats)
def gdn_replay(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw nothing, something and everything pending, in either half."""
    return _replayed(draw, dtype, launch.launch_sizes(draw, large))


@calls(ring_and_floats)
def gdn_replay_tree(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw as gdn_replay, with wider rows, which are trees."""
    sizes = launch.tree_sizes(draw)
    return {**_replayed(draw, dtype, sizes), "parents": launch.parents(draw, sizes)}


@calls(ring_and_floats)
def replay_move(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw paths from nothing to every row, some of which stay where they are.

    Large: inputs have so many channels that they take several programs.
    """
    sizes, layers = launch.tree_sizes(draw), draw(integers(1, 3))
    if large:
        sizes = replace(sizes, values=sizes.values + 256)
    slots, most, steps = launch.targets(draw, sizes.rows, sizes.slots), draw(integers(1, 6)), sizes.allocated_steps
    paths = [sorted(draw(st.sets(integers(0, steps - 1), max_size=min(most, steps)))) for _ in range(sizes.rows)]
    cursor = [[draw(integers(0, steps)), draw(sampled((0, 1, 0, 1, 2, -1)))] for _ in range(sizes.slots)]
    return {
        "inputs": bf.given(draw, (layers, 2, sizes.slots, sizes.conv - 1 + steps, sizes.channels), dtype),
        "gates": bf.given(draw, (layers, 2, sizes.slots, steps, 2, sizes.heads), dtype),
        "cursor": bf.index(draw, cursor),
        "state_slots": bf.index(draw, slots),
        "accept_index": bf.index(draw, [path + [-1] * (most - len(path)) for path in paths]),
    }


def _replayed(draw: Draw, dtype: torch.dtype, sizes: LaunchSizes) -> Arguments:
    slots = launch.targets(draw, sizes.rows, sizes.slots)
    pending, rows = _pending(draw, sizes, slots, dtype), (sizes.rows, sizes.width)
    return {
        "out": bf.unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "x": bf.given(draw, (*rows, sizes.channels), dtype),
        **launch.raw_gates(draw, (*rows, sizes.heads), dtype),
        "weight": launch.conv_weight(draw, sizes, dtype),
        **launch.gate_constants(draw, sizes, dtype),
        "cursor": bf.index(draw, pending.cursor),
        "state_slots": bf.index(draw, slots),
    }


@calls(ring_and_floats)
def gdn_flush(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw as gdn_replay, without new tokens."""
    sizes = launch.launch_sizes(draw, large)
    slots = launch.targets(draw, sizes.rows, sizes.slots)
    pending = _pending(draw, sizes, slots, dtype)
    return {
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "cursor": bf.index(draw, pending.cursor),
        "gates": pending.gates,
        "weight": launch.conv_weight(draw, sizes, dtype),
        **launch.gate_constants(draw, sizes, dtype),
        "state_slots": bf.index(draw, slots),
    }


@calls(ring_and_floats)
def gdn_checkpoint(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw rows that share a slot; steps that are -1, first, last, and beyond what is pending."""
    sizes = launch.launch_sizes(draw, large)
    slots, tracked = launch.sources(draw, sizes.rows, sizes.slots), sizes.slots + draw(integers(1, 3))
    pending = _pending(draw, sizes, slots, dtype)
    steps = []
    for slot in slots:
        m = pending.cursor[slot][0] if 0 <= slot < sizes.slots else 1
        within = st.sampled_from(range(min(max(1, m), sizes.allocated_steps)))
        steps.append(bf.mostly(draw, within, sampled((-1, m - 1, m, 1 << 40))))
    return {
        "checkpoint_ssm": bf.unwritten(draw, (tracked, *sizes.state), bf.wide(dtype)),
        "checkpoint_conv": bf.unwritten(draw, (tracked, sizes.conv - 1, sizes.channels), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "weight": launch.conv_weight(draw, sizes, dtype),
        **launch.gate_constants(draw, sizes, dtype),
        "cursor": bf.index(draw, pending.cursor),
        "state_slots": bf.index(draw, slots),
        "checkpoint_slots": bf.index(draw, launch.targets(draw, sizes.rows, tracked)),
        "checkpoint_steps": bf.index(draw, steps),
    }


def _cursors(draw: Draw) -> tuple[Buffer, Buffer, int]:
    """Draw a cursor [S,2], slots to write [B], and B."""
    rows, size = bf.distinct(draw, 2)
    cursor = [[draw(sampled((0, 0, 1, 2, 5))), draw(integers(0, 1))] for _ in range(size)]
    return bf.index(draw, cursor), bf.index(draw, launch.targets(draw, rows, size)), rows


@calls()
def replay_commit(draw: Draw) -> Arguments:
    """Draw rows of which nothing was verified, and some that accept one token or several."""
    cursor, slots, rows = _cursors(draw)
    last = [draw(st.one_of(integers(-1, 7), integers(-1, 0))) for _ in range(rows)]
    return {"cursor": cursor, "state_slots": slots, "last_correct_step_indices": bf.index(draw, last)}


@calls()
def replay_rewind(draw: Draw) -> Arguments:
    """Draw slots with and without something pending."""
    cursor, slots, _ = _cursors(draw)
    return {"cursor": cursor, "state_slots": slots}
