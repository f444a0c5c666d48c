"""Strategies for the ops on recurrent state, one per op: `STATE_CASES[op](dtypes)`.

Pools have more rows and steps than a launch uses, slots that nobody owns hold poison, and so does what lies beyond the
pending tokens of a slot. No two rows of a launch write one slot: which of them wins is not defined.
`S` state slots, `B` rows of a launch, `W` verify width, `T` packed tokens, `R` sequences or rows of a pool, `A`
allocated steps, `L` layers, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` conv width, `D` channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    RING_AND_FLOATS,
    VALUE_POISONS,
    WILD,
    Arguments,
    Draw,
    Dtypes,
    apart,
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

# Key heads and value heads.
_HEADS = ((1, 2), (1, 3), (1, 4), (2, 4), (3, 6), (1, 1), (2, 2), (3, 3))


@dataclass(frozen=True)
class _Sizes:
    """Pairwise distinct sizes of one launch, but that key and value heads may be as many."""

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
        """How many steps the rows take if none is skipped."""
        return self.rows * self.width

    @property
    def state(self) -> tuple[int, int, int]:
        return self.heads, self.height, self.values


def _sizes(draw: Draw, large: bool = False) -> _Sizes:
    """Draw sizes; few rows and heads: each pair of them is a program of its own, and the interpreter is slow."""
    used: set[int] = set()
    most = 2 if large else 4
    rows, width = apart(draw, used, 1, most), apart(draw, used, 1, most)
    free = [(n, u) for n, u in _HEADS if not {n, u} & used and rows * u <= 12]
    grouped = [(n, u) for n, u in free if n < u]
    mostly_grouped = bool(grouped) and draw(st.integers(0, 3)) > 0
    keys, heads = draw(st.sampled_from(grouped if mostly_grouped else free))
    used |= {keys, heads}
    steps = apart(draw, used, width + 1, width + 2)
    # Keys of one component come near zero too often, where their direction hangs on a rounding.
    height, values = (18, 40) if large else (apart(draw, used, 2, 6), apart(draw, used, 1, 6))
    conv = apart(draw, used, 2, 5)
    allocated, slots = apart(draw, used, rows + 1, rows + 3), apart(draw, used, 2, 8)
    return _Sizes(rows, width, allocated, steps, slots, keys, heads, height, values, conv)


def _targets(draw: Draw, count: int, size: int) -> list[int]:
    """Draw slots to write, each at most once, slot 0 among them, and some that do not exist."""
    wild = st.sampled_from((*WILD, size))
    free = draw(st.permutations(range(size)))[:count]
    slots = [mostly(draw, st.just(slot), wild) for slot in free]
    return slots + [draw(wild) for _ in range(count - len(slots))]


def _sources(draw: Draw, count: int, size: int) -> list[int]:
    """Draw slots to read only, so that rows may share one, and some that do not exist."""
    live = st.integers(0, size - 1)
    return [mostly(draw, live, st.sampled_from((*WILD, size))) for _ in range(count)]


def _existing(slots: Sequence[int], size: int) -> list[int]:
    return sorted({slot for slot in slots if 0 <= slot < size})


def _scaled(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, factor: float) -> Buffer:
    values = values_of(draw, shape, dtype)
    return place(draw, values if dtype == torch.int64 else values * factor)


def _weight(draw: Draw, sizes: _Sizes, dtype: torch.dtype) -> Buffer:
    return _scaled(draw, (sizes.channels, sizes.conv), dtype, 0.5)


def _constants(draw: Draw, sizes: _Sizes, dtype: torch.dtype) -> Arguments:
    """a_log in [-2, 2] and dt_bias in [-4, 4]."""
    return {
        "a_log": _scaled(draw, (sizes.heads,), wide(dtype), 0.5),
        "dt_bias": given(draw, (sizes.heads,), wide(dtype)),
    }


def _gates(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Arguments:
    """Gates a and b; every other time far on both sides of where softplus becomes linear."""
    return {
        "a": _scaled(draw, shape, dtype, draw(st.sampled_from((1.0, 8.0)))),
        "b": given(draw, shape, dtype),
    }


@st.composite
def conv_verify(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """More steps than the width and more pool rows than the launch; rows that share a slot or have none."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    slots = _sources(draw, sizes.rows, sizes.slots)
    row = (sizes.rows, sizes.width, sizes.channels)
    window = (sizes.conv - 1, sizes.channels)
    arguments: Arguments = {
        "out": unwritten(draw, row, dtype),
        "windows": unwritten(draw, (sizes.allocated_rows, sizes.allocated_steps, *window), dtype, sizes.room),
        "x": given(draw, row, dtype),
        "conv": owned(draw, (sizes.slots, *window), _existing(slots, sizes.slots), dtype),
        "weight": _weight(draw, sizes, dtype),
        "slots": index(draw, slots),
    }
    return KernelCase("conv_verify", arguments)


@st.composite
def gdn_verify(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """As conv_verify, with states that are not zero."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    slots = _sources(draw, sizes.rows, sizes.slots)
    rows = (sizes.rows, sizes.width)
    arguments: Arguments = {
        "out": unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "states": unwritten(draw, (sizes.allocated_rows, sizes.allocated_steps, *sizes.state), wide(dtype), sizes.room),
        "qkv": given(draw, (*rows, sizes.channels), dtype),
        **_gates(draw, (*rows, sizes.heads), dtype),
        **_constants(draw, sizes, dtype),
        "ssm": owned(draw, (sizes.slots, *sizes.state), _existing(slots, sizes.slots), wide(dtype)),
        "slots": index(draw, slots),
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


def _packed(draw: Draw, sizes: _Sizes) -> _Packed:
    """Draw sequences of 0 to 6 tokens, tokens before and after them, and steps to track, some beyond the end."""
    count, tracked = sizes.rows, sizes.slots + draw(st.integers(1, 3))
    lengths = [draw(st.integers(0, 6)) for _ in range(count)]
    starts = [draw(st.sampled_from((0, 0, 2)))]
    for length in lengths:
        starts.append(starts[-1] + length)
    steps = [
        mostly(draw, st.sampled_from((*range(n), -1)), st.sampled_from((n - 1, n, n + 3, 1 << 40))) for n in lengths
    ]
    slots = _targets(draw, count, sizes.slots)
    arguments: Arguments = {
        "slots": index(draw, slots),
        "starts": index(draw, starts),
        "track_slots": index(draw, _targets(draw, count, tracked)),
        "track_steps": index(draw, steps),
    }
    tokens = starts[-1] + draw(st.integers(0 if starts[-1] else 1, 2))
    return _Packed(tokens, list(range(starts[0], starts[-1])), _existing(slots, sizes.slots), tracked, arguments)


@st.composite
def conv_update(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Sequences shorter and longer than the window, and empty ones."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    packed, window = _packed(draw, sizes), (sizes.conv - 1, sizes.channels)
    arguments: Arguments = {
        "out": unwritten(draw, (packed.tokens, sizes.channels), dtype),
        "conv": owned(draw, (sizes.slots, *window), packed.live, dtype),
        "track": unwritten(draw, (packed.tracked, *window), dtype),
        "x": owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        "weight": _weight(draw, sizes, dtype),
        **packed.arguments,
    }
    return KernelCase("conv_update", arguments)


@st.composite
def gdn_update(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """As conv_update."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    packed = _packed(draw, sizes)
    arguments: Arguments = {
        "out": unwritten(draw, (packed.tokens, sizes.heads, sizes.values), dtype),
        "ssm": owned(draw, (sizes.slots, *sizes.state), packed.live, wide(dtype)),
        "track": unwritten(draw, (packed.tracked, *sizes.state), wide(dtype)),
        "qkv": owned(draw, (packed.tokens, sizes.channels), packed.owned, dtype),
        **_gates(draw, (packed.tokens, sizes.heads), dtype),
        **_constants(draw, sizes, dtype),
        **packed.arguments,
    }
    return KernelCase("gdn_update", arguments)


@st.composite
def state_scatter(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Rows of one to three dimensions; steps that were not accepted at all, the last one, and impossible ones."""
    dtype = draw(st.sampled_from(dtypes))
    layers, rows, steps, slots, *inner = distinct(draw, 4 + draw(st.integers(1, 3)), 8)
    inner = [*inner[:-1], 5000] if large else inner
    count = draw(st.integers(1, rows))
    wild = st.sampled_from((-1, -1, steps, 1 << 40))
    last = [mostly(draw, st.sampled_from((*range(steps), steps - 1)), wild) for _ in range(count)]
    arguments: Arguments = {
        "pool": given(draw, (layers, slots, *inner), dtype),
        "steps": given(draw, (layers, rows, steps, *inner), dtype),
        "slots": index(draw, _targets(draw, count, slots)),
        "last_correct_step_indices": index(draw, last),
    }
    return KernelCase("state_scatter", arguments)


@st.composite
def checkpoint_steps(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Lengths on and beside a multiple, counts that reach none, one or several, and rows that are padding."""
    del dtypes
    rows, interval = distinct(draw, 2)
    arguments: Arguments = {
        "steps": unwritten(draw, (rows,), torch.int64),
        "lengths": index(draw, [draw(st.integers(0, 40)) for _ in range(rows)]),
        "counts": index(draw, [draw(st.integers(-1, 12)) for _ in range(rows)]),
        "interval": interval,
    }
    return KernelCase("checkpoint_steps", arguments)


@dataclass(frozen=True)
class _Pending:
    """What the slots of a launch have pending: a cursor (m, h) for every slot, and the pools that go with them."""

    cursor: list[list[int]]
    ssm: Buffer
    inputs: Buffer
    gates: Buffer


def _pending(draw: Draw, sizes: _Sizes, slots: Sequence[int], dtype: torch.dtype) -> _Pending:
    """Draw cursors, some impossible; only what is pending has values, all else in the pools is poison."""
    steps, before = sizes.allocated_steps, sizes.conv - 1
    count = st.sampled_from((*range(steps + 1), steps))
    cursor = [[draw(count), draw(st.integers(0, 1))] for _ in range(sizes.slots)]
    poison = draw(st.sampled_from(VALUE_POISONS[dtype.is_floating_point]))
    inputs = torch.full((2, sizes.slots, before + steps, sizes.channels), poison, dtype=dtype)
    gates = torch.full((2, sizes.slots, steps, 2, sizes.heads), poison, dtype=dtype)
    live = _existing(slots, sizes.slots)
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
    """Nothing, something and everything pending, in either half."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    slots = _targets(draw, sizes.rows, sizes.slots)
    pending, rows = _pending(draw, sizes, slots, dtype), (sizes.rows, sizes.width)
    arguments: Arguments = {
        "out": unwritten(draw, (*rows, sizes.heads, sizes.values), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "x": given(draw, (*rows, sizes.channels), dtype),
        **_gates(draw, (*rows, sizes.heads), dtype),
        "weight": _weight(draw, sizes, dtype),
        **_constants(draw, sizes, dtype),
        "cursor": index(draw, pending.cursor),
        "slots": index(draw, slots),
    }
    return KernelCase("gdn_replay", arguments)


@st.composite
def gdn_flush(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """As gdn_replay, without new tokens."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    slots = _targets(draw, sizes.rows, sizes.slots)
    pending = _pending(draw, sizes, slots, dtype)
    arguments: Arguments = {
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "cursor": index(draw, pending.cursor),
        "gates": pending.gates,
        "weight": _weight(draw, sizes, dtype),
        **_constants(draw, sizes, dtype),
        "slots": index(draw, slots),
    }
    return KernelCase("gdn_flush", arguments)


@st.composite
def gdn_checkpoint(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Rows that share a slot; steps that are -1, first, last, and beyond what is pending."""
    dtype, sizes = draw(st.sampled_from(dtypes)), _sizes(draw, large)
    slots, tracked = _sources(draw, sizes.rows, sizes.slots), sizes.slots + draw(st.integers(1, 3))
    pending = _pending(draw, sizes, slots, dtype)
    steps = []
    for slot in slots:
        m = pending.cursor[slot][0] if 0 <= slot < sizes.slots else 1
        within = st.sampled_from(range(min(max(1, m), sizes.allocated_steps)))
        steps.append(mostly(draw, within, st.sampled_from((-1, m - 1, m, 1 << 40))))
    arguments: Arguments = {
        "track_ssm": unwritten(draw, (tracked, *sizes.state), wide(dtype)),
        "track_conv": unwritten(draw, (tracked, sizes.conv - 1, sizes.channels), dtype),
        "ssm": pending.ssm,
        "inputs": pending.inputs,
        "gates": pending.gates,
        "weight": _weight(draw, sizes, dtype),
        **_constants(draw, sizes, dtype),
        "cursor": index(draw, pending.cursor),
        "slots": index(draw, slots),
        "track_slots": index(draw, _targets(draw, sizes.rows, tracked)),
        "steps": index(draw, steps),
    }
    return KernelCase("gdn_checkpoint", arguments)


def _cursors(draw: Draw) -> tuple[Buffer, Buffer, int]:
    """Draw a cursor [S,2], slots to write [B], and B."""
    rows, size = distinct(draw, 2)
    cursor = [[draw(st.sampled_from((0, 0, 1, 2, 5))), draw(st.integers(0, 1))] for _ in range(size)]
    return index(draw, cursor), index(draw, _targets(draw, rows, size)), rows


@st.composite
def replay_commit(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Rows of which nothing was verified, and some that accept one token or several."""
    del dtypes
    cursor, slots, rows = _cursors(draw)
    last = [draw(st.one_of(st.integers(-1, 7), st.integers(-1, 0))) for _ in range(rows)]
    arguments: Arguments = {"cursor": cursor, "slots": slots, "last_correct_step_indices": index(draw, last)}
    return KernelCase("replay_commit", arguments)


@st.composite
def replay_rewind(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Slots with and without something pending."""
    del dtypes
    cursor, slots, _ = _cursors(draw)
    return KernelCase("replay_rewind", {"cursor": cursor, "slots": slots})


@st.composite
def gated_norm(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Rows of different size; the weight may be of the wider dtype."""
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


STATE_CASES: dict[str, Callable[..., st.SearchStrategy[KernelCase]]] = {
    "checkpoint_steps": checkpoint_steps,
    "conv_update": conv_update,
    "conv_verify": conv_verify,
    "gated_norm": gated_norm,
    "gdn_checkpoint": gdn_checkpoint,
    "gdn_flush": gdn_flush,
    "gdn_replay": gdn_replay,
    "gdn_update": gdn_update,
    "gdn_verify": gdn_verify,
    "replay_commit": replay_commit,
    "replay_rewind": replay_rewind,
    "state_scatter": state_scatter,
}
