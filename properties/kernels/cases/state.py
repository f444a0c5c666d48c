"""Calls of the ops on recurrent state; letters as in launch.py.

Pools have more rows and steps than a launch uses, and slots that nobody owns hold poison. No two rows of a launch write
one slot: which of them wins is not defined.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, ring_and_floats
from draftproof.properties.kernels.cases import launch
from draftproof.properties.kernels.cases.dense import normed
from draftproof.properties.kernels.cases.launch import LaunchSizes
from draftproof.properties.strategies.examples import integers, sampled


@calls(ring_and_floats)
def conv_verify(draw: Draw, dtype: torch.dtype, large: bool = False, convs: tuple[int, ...] = ()) -> Arguments:
    """Draw more steps than the width and more pool rows than the launch; rows that share a slot or have none."""
    return _convolved(draw, dtype, launch.launch_sizes(draw, large, convs))


@calls(ring_and_floats)
def conv_verify_tree(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw as conv_verify, with wider rows, which are trees."""
    sizes = launch.tree_sizes(draw)
    return {**_convolved(draw, dtype, sizes), "parents": launch.parents(draw, sizes)}


def _convolved(draw: Draw, dtype: torch.dtype, sizes: LaunchSizes) -> Arguments:
    slots = launch.sources(draw, sizes.rows, sizes.slots)
    row = (sizes.rows, sizes.width, sizes.channels)
    window = (sizes.conv - 1, sizes.channels)
    return {
        "out": bf.unwritten(draw, row, dtype),
        "windows": bf.unwritten(draw, (sizes.allocated_rows, sizes.allocated_steps, *window), dtype, sizes.room),
        "x": bf.given(draw, row, dtype),
        "conv": bf.owned(draw, (sizes.slots, *window), launch.existing(slots, sizes.slots), dtype),
        "weight": launch.conv_weight(draw, sizes, dtype),
        "state_slots": bf.index(draw, slots),
    }


@calls(ring_and_floats)
def gdn_verify(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw as conv_verify, with states that are not zero; wider rows, too, which another kernel runs."""
    return _verified(draw, dtype, launch.launch_sizes(draw, large) if large else launch.short_or_wide(draw))


@calls(ring_and_floats)
def gdn_verify_tree(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw as gdn_verify, with wider rows, which are trees."""
    sizes = launch.tree_sizes(draw)
    return {**_verified(draw, dtype, sizes), "parents": launch.parents(draw, sizes)}


def _verified(draw: Draw, dtype: torch.dtype, sizes: LaunchSizes) -> Arguments:
    slots = launch.sources(draw, sizes.rows, sizes.slots)
    rows = (sizes.rows, sizes.width)
    return {
        "out": bf.unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "states": bf.unwritten(
            draw, (sizes.allocated_rows, sizes.allocated_steps, *sizes.state), bf.wide(dtype), sizes.room
        ),
        "qkv": bf.given(draw, (*rows, sizes.channels), dtype),
        **launch.raw_gates(draw, (*rows, sizes.heads), dtype),
        **launch.gate_constants(draw, sizes, dtype),
        "ssm": bf.owned(draw, (sizes.slots, *sizes.state), launch.existing(slots, sizes.slots), bf.wide(dtype)),
        "state_slots": bf.index(draw, slots),
    }


@dataclass(frozen=True)
class _Packed:
    """Packed sequences: tokens, those that belong to a sequence, and the arguments that say which."""

    tokens: int
    owned: list[int]
    live: list[int]
    tracked: int
    arguments: Arguments


def _packed(draw: Draw, sizes: LaunchSizes, shortest: int = 0, longest: int = 6) -> _Packed:
    """Draw sequences of `shortest` to `longest` tokens, tokens around them, and steps to track, some beyond the end.

    In a long launch the first has 65 to 130, the others as many, or whole pieces of 64; there are at least two.
    """
    count, tracked = max(sizes.rows, 2 if sizes.is_long and longest > 1 else 0), sizes.slots + draw(integers(1, 3))
    lengths = [draw(integers(shortest, longest)) for _ in range(count)]
    if sizes.is_long and longest > 1:
        lengths = [draw(integers(65, 130)), *(draw(sampled((64, 128, 63, n))) for n in lengths[1:])]
    starts = [draw(sampled((0, 0, 2)))]
    for length in lengths:
        starts.append(starts[-1] + length)
    # Of those beyond the first piece of 64 half are tracked there.
    usual = [sampled((*range(n), -1)) if n <= 64 else sampled((64, n - 1, *range(0, n, 50))) for n in lengths]
    steps = [bf.mostly(draw, one, sampled((n - 1, n, n + 3, 1 << 40))) for one, n in zip(usual, lengths, strict=True)]
    slots, checkpoints = launch.targets(draw, count, sizes.slots), launch.targets(draw, count, tracked)
    longest = lengths.index(max(lengths))
    if lengths[longest] and draw(st.booleans()):
        # A token that there is, for the slot right behind the last.
        steps[longest], checkpoints[longest] = lengths[longest] - 1, tracked
    arguments: Arguments = {
        "state_slots": bf.index(draw, slots),
        "cu_seqlens": bf.index(draw, starts),
        "checkpoint_slots": bf.index(draw, checkpoints),
        "checkpoint_steps": bf.index(draw, steps),
    }
    tokens = starts[-1] + draw(integers(0 if starts[-1] else 1, 2))
    return _Packed(tokens, list(range(starts[0], starts[-1])), launch.existing(slots, sizes.slots), tracked, arguments)


@calls(ring_and_floats)
def conv_update(
    draw: Draw,
    dtype: torch.dtype,
    large: bool = False,
    convs: tuple[int, ...] = (),
    shortest: int = 0,
    longest: int = 6,
) -> Arguments:
    """Draw sequences shorter and longer than the window, and empty ones."""
    sizes = launch.launch_sizes(draw, large, convs)
    packed, window = _packed(draw, sizes, shortest, longest), (sizes.conv - 1, sizes.channels)
    return {
        "out": bf.unwritten(draw, (packed.tokens, sizes.channels), dtype),
        "conv": bf.owned(draw, (sizes.slots, *window), packed.live, dtype),
        "checkpoint_conv": bf.unwritten(draw, (packed.tracked, *window), dtype),
        "x": bf.owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        "weight": launch.conv_weight(draw, sizes, dtype),
        **packed.arguments,
    }


@calls(ring_and_floats)
def gdn_update(draw: Draw, dtype: torch.dtype, large: bool = False, shortest: int = 0, longest: int = 6) -> Arguments:
    """Draw as conv_update."""
    sizes = launch.launch_sizes(draw, large)
    packed = _packed(draw, sizes, shortest, longest)
    return {
        "out": bf.unwritten(draw, (packed.tokens, sizes.heads, sizes.values), dtype),
        "ssm": bf.owned(draw, (sizes.slots, *sizes.state), packed.live, bf.wide(dtype)),
        "checkpoint_ssm": bf.unwritten(draw, (packed.tracked, *sizes.state), bf.wide(dtype)),
        "qkv": bf.owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        **launch.raw_gates(draw, (packed.tokens, sizes.heads), dtype),
        **launch.gate_constants(draw, sizes, dtype),
        **packed.arguments,
    }


@calls(ring_and_floats)
def state_scatter(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw rows of one to three dimensions; steps that were not accepted at all, the last one, and impossible ones."""
    layers, rows, steps, slots, *inner = bf.distinct(draw, 4 + draw(integers(1, 3)), 8)
    inner = [*inner[:-1], 5000] if large else inner
    count = draw(integers(1, rows))
    wild = sampled((-1, steps, -1, steps, 1 << 40))
    last = [bf.mostly(draw, sampled((*range(steps), steps - 1)), wild) for _ in range(count)]
    return {
        "pool": bf.given(draw, (layers, slots, *inner), dtype),
        "steps": bf.given(draw, (layers, rows, steps, *inner), dtype),
        "state_slots": bf.index(draw, launch.targets(draw, count, slots)),
        "last_correct_step_indices": bf.index(draw, last),
    }


@calls()
def checkpoint_steps(draw: Draw) -> Arguments:
    """Draw lengths on and beside a multiple, counts that reach none, one or several, and rows that are padding."""
    rows, interval = bf.distinct(draw, 2)
    return {
        "steps": bf.unwritten(draw, (rows,), torch.int64),
        "seq_lens": bf.index(draw, [draw(integers(0, 40)) for _ in range(rows)]),
        "num_tokens": bf.index(draw, [draw(integers(-1, 12)) for _ in range(rows)]),
        "interval": interval,
    }


@calls(ring_and_floats)
def gated_norm(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw rows of different size; the weight may be of the wider dtype."""
    return normed(draw, dtype, "x", "z")
