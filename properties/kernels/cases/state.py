"""Calls of the ops on recurrent state; letters as in launch.py.

Pools have more rows and steps than a launch uses, and slots that belong to no row hold poison. No two rows of a launch
write one slot, because it is not defined which of them wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, ring_and_floats
from draftproof.properties.kernels.cases import launch
from draftproof.properties.kernels.cases.dense import normed
from draftproof.properties.kernels.cases.launch import LaunchSizes

# Most tokens of a sequence, unless more are asked for.
_LONGEST = 6
# A sequence of this many tokens or more is long: others are, too.
_LONG = 33


@calls(ring_and_floats)
def conv_verify(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY, convs: tuple[int, ...] = ()) -> Arguments:
    """Choose more steps than the width and more pool rows than the launch; rows that share a slot or have none."""
    return _convolved(choose, dtype, launch.launch_sizes(choose, aim, convs), aim)


@calls(ring_and_floats)
def conv_verify_tree(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as conv_verify, with wider rows, which are trees."""
    sizes = launch.tree_sizes(choose, aim)
    return {**_convolved(choose, dtype, sizes, aim), "parents": launch.parents(choose, sizes)}


def _convolved(choose: Choose, dtype: torch.dtype, sizes: LaunchSizes, aim: Sizes) -> Arguments:
    slots = launch.sources(choose, sizes.rows, sizes.slots, aim)
    row = (sizes.rows, sizes.width, sizes.channels)
    window = (sizes.conv - 1, sizes.channels)
    return {
        "out": bf.unwritten(choose, row, dtype),
        "windows": bf.unwritten(choose, (sizes.allocated_rows, sizes.allocated_steps, *window), dtype, sizes.room),
        "x": bf.given(choose, row, dtype),
        "conv": bf.owned(choose, (sizes.slots, *window), launch.existing(slots, sizes.slots), dtype),
        "weight": launch.conv_weight(choose, sizes, dtype),
        "state_slots": bf.index(choose, slots),
    }


@calls(ring_and_floats)
def gdn_verify(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as conv_verify, with states that are not zero; wider rows, too, which another kernel runs."""
    width = {"width": choose.integer(5, 6)} if choose.one_of((True, False, False)) else {}
    return _verified(choose, dtype, launch.launch_sizes(choose, {**width, **aim}), aim)


@calls(ring_and_floats)
def gdn_verify_tree(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as gdn_verify, with wider rows, which are trees."""
    sizes = launch.tree_sizes(choose, aim)
    return {**_verified(choose, dtype, sizes, aim), "parents": launch.parents(choose, sizes)}


def _verified(choose: Choose, dtype: torch.dtype, sizes: LaunchSizes, aim: Sizes) -> Arguments:
    slots = launch.sources(choose, sizes.rows, sizes.slots, aim)
    rows, scales = (sizes.rows, sizes.width), launch.key_scales(choose, sizes, dtype, aim)
    return {
        "out": bf.unwritten(choose, (*rows, sizes.heads, sizes.values), dtype),
        "states": bf.unwritten(
            choose, (sizes.allocated_rows, sizes.allocated_steps, *sizes.state), bf.wide(dtype), sizes.room
        ),
        "qkv": bf.place(choose, bf.values_of(choose, (*rows, sizes.channels), dtype) * scales),
        **launch.raw_gates(choose, (*rows, sizes.heads), dtype),
        **launch.gate_constants(choose, sizes, dtype),
        "ssm": bf.owned(choose, (sizes.slots, *sizes.state), launch.existing(slots, sizes.slots), bf.wide(dtype)),
        "state_slots": bf.index(choose, slots),
    }


@dataclass(frozen=True)
class _Packed:
    """Packed sequences: tokens, those that belong to a sequence, and the arguments that say which."""

    tokens: int
    owned: list[int]
    live: list[int]
    tracked: int
    arguments: Arguments


def _packed(choose: Choose, sizes: LaunchSizes, aim: Sizes, shortest: int, longest: int) -> _Packed:
    """Choose sequences of `shortest` to `longest` tokens, tokens around them, and steps to track, some beyond the end.

    The last is as long as is asked for, and none is longer; the others of a long one are long as well, or whole pieces
    of 64.
    """
    count, tracked = sizes.rows, sizes.slots + choose.integer(1, 3)
    lengths = [choose.integer(shortest, longest) for _ in range(count)]
    if aim:
        asked = aim.get("tokens", max(lengths[-1], 1)) if longest > 1 else 1
        if asked >= _LONG:
            lengths = [min(asked, choose.one_of((64, 128, 63, length))) for length in lengths]
        lengths[-1] = asked
    starts = [choose.one_of((0, 0, 2))]
    for length in lengths:
        starts.append(starts[-1] + length)
    # Of those beyond the first piece of 64 half are tracked there.
    usual = [choose.one_of((*range(n), -1) if n <= 64 else (64, n - 1, *range(0, n, 50))) for n in lengths]
    steps = [bf.mostly(choose, one, (n - 1, n, n + 3, 1 << 40)) for one, n in zip(usual, lengths, strict=True)]
    slots = launch.targets(choose, count, sizes.slots, aim)
    checkpoints = launch.targets(choose, count, tracked, aim)
    most = lengths.index(max(lengths))
    if lengths[most] and choose.boolean():
        # A token that there is, for the slot right behind the last.
        steps[most], checkpoints[most] = lengths[most] - 1, tracked
    arguments: Arguments = {
        "state_slots": bf.index(choose, slots),
        "cu_seqlens": bf.index(choose, starts),
        "checkpoint_slots": bf.index(choose, checkpoints),
        "checkpoint_steps": bf.index(choose, steps),
    }
    tokens = starts[-1] + choose.integer(0 if starts[-1] else 1, 2)
    return _Packed(tokens, list(range(starts[0], starts[-1])), launch.existing(slots, sizes.slots), tracked, arguments)


@calls(ring_and_floats)
def conv_update(
    choose: Choose,
    dtype: torch.dtype,
    aim: Sizes = ANY,
    convs: tuple[int, ...] = (),
    shortest: int = 0,
    longest: int = _LONGEST,
) -> Arguments:
    """Choose sequences shorter and longer than the window, and empty ones."""
    sizes = launch.launch_sizes(choose, aim, convs)
    packed, window = _packed(choose, sizes, aim, shortest, longest), (sizes.conv - 1, sizes.channels)
    return {
        "out": bf.unwritten(choose, (packed.tokens, sizes.channels), dtype),
        "conv": bf.owned(choose, (sizes.slots, *window), packed.live, dtype),
        "checkpoint_conv": bf.unwritten(choose, (packed.tracked, *window), dtype),
        "x": bf.owned(choose, (packed.tokens, sizes.channels), packed.owned, dtype),
        "weight": launch.conv_weight(choose, sizes, dtype),
        **packed.arguments,
    }


@calls(ring_and_floats)
def gdn_update(
    choose: Choose, dtype: torch.dtype, aim: Sizes = ANY, shortest: int = 0, longest: int = _LONGEST
) -> Arguments:
    """Choose as conv_update."""
    sizes = launch.launch_sizes(choose, aim)
    packed, scales = _packed(choose, sizes, aim, shortest, longest), launch.key_scales(choose, sizes, dtype, aim)
    qkv = bf.poisoned(choose, (packed.tokens, sizes.channels), dtype)
    qkv[packed.owned] = bf.values_of(choose, (len(packed.owned), sizes.channels), dtype) * scales
    return {
        "out": bf.unwritten(choose, (packed.tokens, sizes.heads, sizes.values), dtype),
        "ssm": bf.owned(choose, (sizes.slots, *sizes.state), packed.live, bf.wide(dtype)),
        "checkpoint_ssm": bf.unwritten(choose, (packed.tracked, *sizes.state), bf.wide(dtype)),
        "qkv": bf.place(choose, qkv),
        **launch.raw_gates(choose, (packed.tokens, sizes.heads), dtype),
        **launch.gate_constants(choose, sizes, dtype),
        **packed.arguments,
    }


@calls(ring_and_floats)
def state_scatter(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose rows of one to three dimensions; steps that were not accepted at all, the last one, and impossible ones.

    An aim's states, with as many elements as it asks for, are copied for the last row.
    """
    layers, rows, steps, slots, *inner = bf.distinct(
        choose, "layers", "rows", "steps", "slots", *("i", "j", "k")[: choose.integer(1, 3)], aim=aim, high=8
    )
    if "elements" in aim:
        factor = choose.one_of([one for one in (1, 2, 3, 7) if aim["elements"] % one == 0])
        inner = choose.one_of(([aim["elements"]], [factor, aim["elements"] // factor]))
    count = rows if aim else choose.integer(1, rows)
    wild = (-1, steps, -1, steps, 1 << 40)
    last = [bf.mostly(choose, choose.one_of((*range(steps), steps - 1)), wild) for _ in range(count)]
    if aim:
        last[-1] = steps - 1
    return {
        "pool": bf.given(choose, (layers, slots, *inner), dtype),
        "steps": bf.given(choose, (layers, rows, steps, *inner), dtype),
        "state_slots": bf.index(choose, launch.targets(choose, count, slots, aim)),
        "last_correct_step_indices": bf.index(choose, last),
    }


@calls()
def checkpoint_steps(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose lengths on and beside a multiple, counts that reach none, one or several, and rows that are padding."""
    rows, interval = bf.distinct(choose, "rows", "interval", aim=aim)
    counts = [choose.integer(-1, 12) for _ in range(rows)]
    if aim:
        # Every row reaches a multiple of 1 with its last token.
        interval = max(interval, 2)
        # The last row reaches a multiple.
        counts[-1] = interval
    return {
        "steps": bf.unwritten(choose, (rows,), torch.int64),
        "seq_lens": bf.index(choose, [choose.integer(0, 40) for _ in range(rows)]),
        "num_tokens": bf.index(choose, counts),
        "interval": interval,
    }


@calls(ring_and_floats)
def gated_norm(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose rows of different size; the weight may be of the wider dtype."""
    return normed(choose, dtype, aim, "x", "z")
