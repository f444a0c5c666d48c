"""Calls of the ops on replayed state; letters as in launch.py. Beyond the pending tokens of a slot lies poison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, ring_and_floats
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.kernels.cases import launch
from draftproof.properties.kernels.cases.launch import LaunchSizes


@dataclass(frozen=True)
class _Pending:
    """What the slots of a launch have pending: a cursor (m, h) for every slot, and the pools that go with them."""

    cursor: list[list[int]]
    ssm: Buffer
    inputs: Buffer
    gates: Buffer


def _pending(
    choose: Choose, sizes: LaunchSizes, slots: Sequence[int], dtype: torch.dtype, scales: torch.Tensor, aim: Sizes
) -> _Pending:
    """Choose cursors, some impossible; only what is pending has values, all else in the pools is poison.

    Where something is asked for, all steps of the last row's slot are pending.
    """
    steps, before = sizes.allocated_steps, sizes.conv - 1
    cursor = [[choose.one_of((*range(steps + 1), steps)), choose.integer(0, 1)] for _ in range(sizes.slots)]
    inputs = bf.poisoned(choose, (2, sizes.slots, before + steps, sizes.channels), dtype)
    gates = torch.full((2, sizes.slots, steps, 2, sizes.heads), inputs[0, 0, 0, 0].item(), dtype=dtype)
    live = launch.existing(slots, sizes.slots)
    if aim and live:
        cursor[slots[-1]][0] = steps
    for slot in live:
        m, h = cursor[slot]
        inputs[h, slot, : before + m] = bf.values_of(choose, (before + m, sizes.channels), dtype) * scales
        gates[h, slot, :m] = bf.values_of(choose, (m, 2, sizes.heads), dtype)
        if not aim or slot != slots[-1]:
            cursor[slot] = bf.mostly(choose, [m, h], ([-1, 0], [steps + 1, 1], [1 << 40, 0], [m, -1], [m, 2]))
    ssm = bf.owned(choose, (sizes.slots, *sizes.state), live, bf.wide(dtype))
    return _Pending(cursor, ssm, bf.place(choose, inputs), bf.place(choose, gates))


@calls(ring_and_floats)
def gdn_replay(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose nothing, something and everything pending, in either half."""
    return _replayed(choose, dtype, launch.launch_sizes(choose, aim), aim)


@calls(ring_and_floats)
def gdn_replay_tree(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as gdn_replay, with wider rows, which are trees."""
    sizes = launch.tree_sizes(choose, aim)
    return {**_replayed(choose, dtype, sizes, aim), "parents": launch.parents(choose, sizes)}


@calls(ring_and_floats)
def replay_move(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose paths from no row at all to every row; some rows stay where they are.

    An aim's move is in the last row.
    """
    sizes = launch.tree_sizes(choose, {name: size for name, size in aim.items() if name not in ("layers", "places")})
    layers, most = aim.get("layers", choose.integer(1, 3)), aim.get("places", choose.integer(1, 6))
    if "places" in aim:
        sizes = replace(sizes, allocated_steps=most + choose.integer(1, 3))
    slots, steps = launch.targets(choose, sizes.rows, sizes.slots, aim), sizes.allocated_steps
    paths = [sorted(bf.several(choose, range(steps), 0, min(most, steps))) for _ in range(sizes.rows)]
    cursor = [[choose.integer(0, steps), choose.one_of((0, 1, 0, 1, 2, -1))] for _ in range(sizes.slots)]
    if aim:
        # The last rows, but for the first of them.
        paths[-1], cursor[slots[-1]][1] = list(range(steps))[-min(most, steps - 1) :], choose.integer(0, 1)
    return {
        "inputs": bf.given(choose, (layers, 2, sizes.slots, sizes.conv - 1 + steps, sizes.channels), dtype),
        "gates": bf.given(choose, (layers, 2, sizes.slots, steps, 2, sizes.heads), dtype),
        "cursor": bf.index(choose, cursor),
        "state_slots": bf.index(choose, slots),
        "accept_index": bf.index(choose, [path + [-1] * (most - len(path)) for path in paths]),
    }


def _replayed(choose: Choose, dtype: torch.dtype, sizes: LaunchSizes, aim: Sizes) -> Arguments:
    slots, scales = launch.targets(choose, sizes.rows, sizes.slots, aim), launch.key_scales(choose, sizes, dtype, aim)
    pending, rows = _pending(choose, sizes, slots, dtype, scales, aim), (sizes.rows, sizes.width)
    return {
        "out": bf.unwritten(choose, (*rows, sizes.heads, sizes.values), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "x": bf.place(choose, bf.values_of(choose, (*rows, sizes.channels), dtype) * scales),
        **launch.raw_gates(choose, (*rows, sizes.heads), dtype),
        "weight": launch.conv_weight(choose, sizes, dtype),
        **launch.gate_constants(choose, sizes, dtype),
        "cursor": bf.index(choose, pending.cursor),
        "state_slots": bf.index(choose, slots),
    }


@calls(ring_and_floats)
def gdn_flush(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as gdn_replay, without new tokens."""
    sizes = launch.launch_sizes(choose, aim)
    slots, scales = launch.targets(choose, sizes.rows, sizes.slots, aim), launch.key_scales(choose, sizes, dtype, aim)
    pending = _pending(choose, sizes, slots, dtype, scales, aim)
    return {
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "cursor": bf.index(choose, pending.cursor),
        "gates": pending.gates,
        "weight": launch.conv_weight(choose, sizes, dtype),
        **launch.gate_constants(choose, sizes, dtype),
        "state_slots": bf.index(choose, slots),
    }


@calls(ring_and_floats)
def gdn_checkpoint(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose rows that share a slot; steps that are -1, first, last, and beyond what is pending."""
    sizes = launch.launch_sizes(choose, aim)
    slots, tracked = launch.sources(choose, sizes.rows, sizes.slots, aim), sizes.slots + choose.integer(1, 3)
    pending = _pending(choose, sizes, slots, dtype, launch.key_scales(choose, sizes, dtype, aim), aim)
    steps = []
    for slot in slots:
        m = pending.cursor[slot][0] if 0 <= slot < sizes.slots else 1
        within = choose.integer(0, min(max(1, m), sizes.allocated_steps) - 1)
        steps.append(bf.mostly(choose, within, (-1, m - 1, m, 1 << 40)))
    if aim:
        steps[-1] = pending.cursor[slots[-1]][0] - 1
    return {
        "checkpoint_ssm": bf.unwritten(choose, (tracked, *sizes.state), bf.wide(dtype)),
        "checkpoint_conv": bf.unwritten(choose, (tracked, sizes.conv - 1, sizes.channels), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "weight": launch.conv_weight(choose, sizes, dtype),
        **launch.gate_constants(choose, sizes, dtype),
        "cursor": bf.index(choose, pending.cursor),
        "state_slots": bf.index(choose, slots),
        "checkpoint_slots": bf.index(choose, launch.targets(choose, sizes.rows, tracked, aim)),
        "checkpoint_steps": bf.index(choose, steps),
    }


def _cursors(choose: Choose, aim: Sizes) -> tuple[Buffer, Buffer, int]:
    """Choose a cursor [S,2], slots to write [B], and B; what is asked for is of consequence in the last row."""
    rows, size = bf.distinct(choose, "rows", "slots", aim=aim)
    size = max(size, rows) if aim else size
    cursor = [[choose.one_of((0, 0, 1, 2, 5)), choose.integer(0, 1)] for _ in range(size)]
    slots = launch.targets(choose, rows, size, aim)
    if aim:
        cursor[slots[-1]][0] = 2
    return bf.index(choose, cursor), bf.index(choose, slots), rows


@calls()
def replay_commit(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose rows without anything verified, and rows that accept one token or several."""
    cursor, slots, rows = _cursors(choose, aim)
    last = [choose.one_of((choose.integer(-1, 7), choose.integer(-1, 0))) for _ in range(rows)]
    if aim:
        last[-1] = 3
    return {"cursor": cursor, "state_slots": slots, "last_correct_step_indices": bf.index(choose, last)}


@calls()
def replay_rewind(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose slots with and without something pending."""
    cursor, slots, _ = _cursors(choose, aim)
    return {"cursor": cursor, "state_slots": slots}
