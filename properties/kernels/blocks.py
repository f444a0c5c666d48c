"""Where kernels cut the sizes of calls: blocks, tiles and pieces of each op's dimensions, and forms of its kernel.

A list of calls has each size that is asked for here once: a block, one more, and more than three blocks. The blocks of
a package's kernel are unknown, so the other calls use powers of two there, or one less or more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from draftproof.properties.choose import Choose
from draftproof.properties.kernels.buffers import Aim
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.sizes import (
    Sizes,
    accepted,
    chain,
    elements,
    folds,
    goes_on,
    has_short_keys,
    is_ahead,
    is_known,
    is_tiled,
    last_of_pieces,
    live_columns,
    number,
    seen,
    sequence,
    shape,
    written,
)

POWERS = tuple(1 << power for power in range(4, 13))
"""Sizes that kernels are likely to be blocked by."""
_NEAR_POWERS = [power + more for power in POWERS for more in (-1, 0, 1)]
_FEW, _TOGETHER = 40, 1 << 13
"""A call has one size that is larger than the one, and all sizes that are asked for multiply to the other, or not much
more than the largest alone: what is calculated grows with most of them."""
# Why a dimension has no more.
_HEAD = "no model has larger heads, and every number of one is multiplied by the twin"
_HEADS = "no model has more, and each is a program, or as long as one in the interpreter"
_PROGRAMS = "each is a program, which takes the interpreter some ms and the twin as long"
_ROUND = "no verify is wider, and each column is a step of a loop"


@dataclass(frozen=True)
class Dimension:
    """A size of an op's calls that a kernel may cut into `blocks`, up to `most`; `reason` says why it is no larger.

    `kind` is the kind of values for which kernels have these blocks. `asks` returns all sizes of an aim that needs more
    than one, and `interpreted` is the largest size where Triton is interpreted.
    """

    name: str
    size: Sizes
    blocks: tuple[int, ...] = ()
    most: int = POWERS[-1] + 1
    reason: str = ""
    kind: str = ""
    asks: Callable[[Choose, int], Mapping[str, int]] | None = None
    interpreted: int | None = None

    @property
    def largest(self) -> int:
        """Return the most in this process."""
        return (self.interpreted or self.most) if os.environ.get("TRITON_INTERPRET") == "1" else self.most

    def aim(self, choose: Choose, size: int) -> Aim:
        """Return the aim at a size."""
        return Aim(self.asks(choose, size) if self.asks else {self.name: size}, self.kind)


@dataclass(frozen=True)
class Wanted:
    """What calls have to come to: a name for it, an aim at it, and whether a call is there."""

    name: str
    aim: Callable[[Choose], Aim]
    holds: Callable[[KernelCase], bool]


@dataclass(frozen=True)
class Blocks:
    """The dimensions of an op, and the forms of its kernel that no single size leads to."""

    dimensions: tuple[Dimension, ...]
    forms: tuple[Wanted, ...] = ()

    def wanted(self) -> list[Wanted]:
        """Return all that a list of calls has to come to in this process."""
        return [one for dimension in self.dimensions for one in _sizes(dimension)] + list(self.forms)


def _sizes(dimension: Dimension) -> Iterator[Wanted]:
    """Yield a block, one more, and more than three of each; of a dimension without blocks what is large."""
    for block in dimension.blocks:
        yield from _between(dimension, str(block), [block], block)
        yield from _between(dimension, str(block + 1), [block + 1], block + 1)
        several = range(3 * block + 1, 4 * block + 2)
        yield from _between(dimension, f"over {3 * block}", several, dimension.most)
    if not dimension.blocks:
        yield from _between(dimension, f"from {POWERS[0]} on", _NEAR_POWERS[1:], dimension.most)


def _between(dimension: Dimension, name: str, sizes: Sequence[int], most: int) -> Iterator[Wanted]:
    """Yield what asks for one of these sizes, and is there from the least of them to `most`."""
    largest = dimension.largest
    possible = [size for size in sizes if size <= largest]

    def aim(choose: Choose) -> Aim:
        return dimension.aim(choose, choose.one_of(possible))

    def holds(case: KernelCase) -> bool:
        return _is_of(case, dimension.kind) and any(sizes[0] <= size <= most for size in dimension.size(case))

    if possible:
        yield Wanted(" ".join((dimension.kind, dimension.name, name)).strip(), aim, holds)


def _is_of(case: KernelCase, kind: str) -> bool:
    """Return whether a call has values of a kind; the first argument is an output of that dtype."""
    first = next(iter(case.buffers.values())).storage
    return not kind or first.is_floating_point() == (kind == "float")


def covering(op: str, choose: Choose) -> list[Aim]:
    """Return aims at all that is wanted of an op, each as often as once, in any order."""
    if op not in BLOCKS:
        return []
    left = [one.aim(choose) for one in BLOCKS[op].wanted()]
    left = [left.pop(choose.integer(0, len(left) - 1)) for _ in range(len(left))]
    made: list[Aim] = []
    while left:
        joined, rest = left[0], list[Aim]()
        for other in left[1:]:
            if _fit(joined, other):
                joined = Aim({**joined.sizes, **other.sizes}, joined.kind or other.kind)
            else:
                rest.append(other)
        made.append(joined)
        left = rest
    return made


def _fit(one: Aim, other: Aim) -> bool:
    """Return whether one call can have all sizes of both: not two that are large, nor many that together are."""
    sizes = {**one.sizes, **other.sizes}
    largest = sorted(max(aim.sizes.values()) for aim in (one, other))
    apart = not one.sizes.keys() & other.sizes.keys() and len({one.kind, other.kind} - {""}) < 2
    return apart and largest[0] <= _FEW and math.prod(sizes.values()) <= max(_TOGETHER, _FEW * largest[1])


def random_aim(op: str, choose: Choose) -> Aim:
    """Return an aim at one dimension: a power of two, one less, or one more."""
    dimensions = [one for one in BLOCKS[op].dimensions if one.largest >= POWERS[0]] if op in BLOCKS else []
    if not dimensions:
        return Aim()
    dimension = choose.one_of(dimensions)
    return dimension.aim(choose, choose.one_of([size for size in _NEAR_POWERS if size <= dimension.largest]))


def lacking(op: str, calls: Sequence[KernelCase]) -> tuple[str, ...]:
    """Return what no call of a list comes to."""
    if op not in BLOCKS:
        return ()
    return tuple(one.name for one in BLOCKS[op].wanted() if not any(one.holds(case) for case in calls))


def _form(name: str, holds: Callable[[KernelCase], bool], kind: str = "", **sizes: int | tuple[int, int]) -> Wanted:
    """Return a form that sizes lead to, each a number or any between two."""

    def aim(choose: Choose) -> Aim:
        chosen = {key: size if isinstance(size, int) else choose.integer(*size) for key, size in sizes.items()}
        return Aim(chosen, kind)

    return Wanted(name, aim, lambda case: _is_of(case, kind) and holds(case))


def _programs(name: str, size: Sizes) -> Dimension:
    """Return a dimension in which each is a program."""
    return Dimension(name, size, most=257, interpreted=65, reason=_PROGRAMS)


def _beside(name: str, **others: int) -> Callable[[Choose, int], Mapping[str, int]]:
    return lambda _choose, size: {name: size, **others}


def _entries(tokens: str, pool: str, *slots: str) -> tuple[Dimension, ...]:
    """Return the dimensions of writes to pools: one program a token, with all of its heads."""

    def live(place: int, of: str = pool) -> Sizes:
        return is_known(shape(of, place), pool, *slots)

    return (
        _programs("tokens", shape(tokens, 0)),
        Dimension("heads", live(1), (4,), 129, _HEADS),
        Dimension("keys", live(2), (8,), 257, _HEAD),
        Dimension("values", live(2, "v_pool"), (8,), 257, _HEAD),
        Dimension(
            "slots",
            written(pool, *slots),
            (1 << 16,),
            (1 << 16) + 1,
            "beyond what 16 bits count",
            asks=_beside("slots", heads=1, keys=2, values=3),
        ),
    )


def _more_than_a_page(choose: Choose, size: int) -> Mapping[str, int]:
    return {"page_size": size, "positions": size + choose.integer(1, size)}


_PAGES = Dimension(
    "page_size", number("page_size"), (64,), 257, "more positions than a page are seen", asks=_more_than_a_page
)


def _attention(*forms: Wanted, ring: bool = True, floats: bool = True, most: int = 2049) -> Blocks:
    """Return the blocks of attention: of the ring 16 positions, 4 query heads and 8 numbers, of floats others.

    Of floats 128 positions are one block, 512 are what one split reads. A few query heads are one block.
    """
    found = [
        _programs("tokens", shape("out", 0)),
        Dimension("heads", shape("k_pool", 1), most=33, reason=_HEADS),
        _PAGES,
    ]
    for kind, positions, group, width in (("ring", (16,), 4, 8), ("float", (128, 512), 16, 16)):
        if not {"ring": ring, "float": floats}[kind]:
            continue
        many, of = "the twin looks at each number of each of them", kind if ring and floats else ""
        found += [
            Dimension("positions", seen, positions, most, many, of),
            Dimension("group", group_of, (group,), 65, _HEADS, of),
            Dimension("keys", shape("k_pool", 2), (width,), 257, _HEAD, of),
            Dimension("values", shape("v_pool", 2), (width,), 257, _HEAD, of),
        ]
    return Blocks(tuple(found), (*forms, _LAST))


def group_of(case: KernelCase) -> tuple[int]:
    """Return how many query heads a KV head has."""
    return (case.buffers["out"].shape[1] // case.buffers["k_pool"].shape[1],)


def _is_of_many_programs(case: KernelCase) -> bool:
    pools, table, most = case.buffers["k_pool"], case.buffers["page_table"], 264
    capacity = table.shape[1] * int(case.arguments["page_size"])  # type: ignore[arg-type]
    return case.buffers["out"].shape[0] * pools.shape[1] > most and capacity > 512


def _rowwise(rows: str, columns: Dimension) -> Blocks:
    return Blocks((_programs("tokens", shape(rows, 0)), columns))


def _linear(out: str, rows: int, *forms: Wanted) -> Blocks:
    """Return the blocks of a linear op; `rows` is how many outputs a program has with 33 to 64 inputs.

    From 2049 inputs on it has other shapes.
    """
    return Blocks(
        (
            Dimension("tokens", shape(out, 0), most=17, reason="the kernel is unrolled, for few of them"),
            Dimension("inputs", shape("x", 1), (4096,), 12289, "as wide as models are"),
            Dimension("outputs", _at_forty_inputs(out), (rows,), 4097, "", "", _beside("outputs", inputs=40)),
        ),
        forms,
    )


def _at_forty_inputs(out: str) -> Sizes:
    return lambda case: (case.buffers[out].shape[1],) if 32 < case.buffers["x"].shape[1] <= 64 else ()


def _at_eight_columns(case: KernelCase) -> tuple[int, ...]:
    return (case.buffers["out"].shape[0],) if case.buffers["out"].shape[1] <= 8 else ()


def _of_channels(choose: Choose, size: int) -> Mapping[str, int]:
    """Return sizes of one head that add up to `size` channels: two key sizes and a value size."""
    height = choose.integer(2, 6)
    return {"heads": 1, "key_size": height, "value_size": size - 2 * height}


def _launch(
    pool: str, *more: Dimension, forms: tuple[Wanted, ...] = (), states: str = "", channels: str = ""
) -> Blocks:
    """Return the blocks of an op on recurrent state: of channels, and, of ops on states, of these."""
    many = "each is as long as a whole call"
    few = _beside("rows", width=2)
    found = [Dimension("rows", shape("state_slots", 0), most=129, interpreted=17, reason=_PROGRAMS, asks=few)]
    if channels:
        of = is_known(shape(channels, -1), pool, "state_slots")
        found.append(Dimension("channels", of, (32, 256), 1025, many, asks=_of_channels))
    if states:
        tall, wide, heads = (is_known(shape(states, place), pool, "state_slots") for place in (-2, -1, -3))
        found += [
            Dimension("key_size", tall, (8,), 129, _HEAD),
            Dimension("value_size", wide, (16,), 129, _HEAD),
            Dimension("heads", heads, (4,) if channels else (), 33, _HEADS, asks=_beside("heads", rows=1)),
        ]
    return Blocks((*found, *more), (*forms, *(_SHORT if states else ())))


def _folds(name: str, least: int, most: int, *, width: int, pending: int, **states: int) -> Wanted:
    """Return a form of replay: rows of tokens between two numbers, and states that are so large at least."""
    sizes = {key: (size, 2 * size) for key, size in states.items()}
    return _form(name, lambda case: folds(case, least, most, **states), "float", width=width, pending=pending, **sizes)


_SHORT = (_form("short keys", has_short_keys, "float", short=1),)
_TAPS = Dimension("taps", shape("weight", 1), (4, 8), 9, "no model has a longer convolution")
_WIDTH = Dimension("width", shape("out", 1), (4,), 33, _ROUND, asks=_beside("width", rows=1))
_TREE = Dimension(
    "width",
    shape("out", 1),
    most=17,
    reason="each row is computed anew from the first by the twin",
    asks=_beside("width", rows=1),
)
_VOCABULARY = "no more than a few blocks, all of whose tokens are counted by the twin"
_TILED = _form("tiles of 32 columns", is_tiled, "float", rows=(264, 266), heads=1, value_size=33, width=1)
_FOLDS = (
    _folds("chunk of keys over 32", 9, 16, key_size=33, width=4, pending=6),
    _folds("chunk of values over 64", 9, 16, value_size=65, width=3, pending=8),
    _folds("16 tokens in a chunk", 16, 16, width=6, pending=10),
    _folds("more tokens than a chunk has", 17, 99, width=9, pending=9),
)  # fmt: skip
_AHEAD = _form("few tokens of states of three tiles", is_ahead, "float", value_size=(33, 48), width=(1, 4), rows=1)
_GOES_ON = _form("programs that go on", goes_on, tokens=1, inputs=(1025, 1100), outputs=(1025, 1100))
_MANY = _form(
    "more programs than are cut into splits", _is_of_many_programs, "float", tokens=133, heads=2, group=1, positions=520
)
# Two pieces of four tokens, and one of one.
_LAST = _form(
    "a last piece of one token",
    lambda case: last_of_pieces(case) == 1,
    tokens=9, heads=4, keys=21, values=24, positions=300,
)  # fmt: skip
_CURSORS = Blocks(
    (
        Dimension("rows", shape("state_slots", 0), (32,), 1025, "all are in one program"),
        Dimension("slots", shape("cursor", 0)),
    )
)

BLOCKS: Mapping[str, Blocks] = {
    "accept_tree": Blocks(
        (
            Dimension("width", chain, (32,), 129, _ROUND),
            _programs("batch", shape("bonus", 0)),
        )
    ),
    "add_rms_norm": _rowwise("out", Dimension("columns", shape("out", 1), (1024,))),
    "apply_penalties": Blocks(
        (
            Dimension("vocabulary", shape("logits", 2), (512, 1024), 4097, _VOCABULARY),
            Dimension("width", shape("logits", 1), most=33, reason=_ROUND, asks=_beside("width", batch=2)),
            _programs("batch", shape("logits", 0)),
            Dimension("requests", shape("biases", 0), most=257, reason="each has a whole vocabulary"),
        )
    ),
    "assign_slots": Blocks(
        (
            Dimension("width", live_columns, (32,), 257, _ROUND),
            _programs("rows", shape("positions", 0)),
            Dimension("requests", shape("page_table", 0)),
            Dimension("pages", shape("page_table", 1)),
            Dimension("page_size", number("page_size"), (64,), 4097),
        )
    ),
    "best_choices": Blocks(
        (
            _programs("tokens", shape("logits", 0)),
            Dimension("topk", shape("token_ids", 1), most=17, reason="the kernel is unrolled, for few of them"),
            Dimension("vocabulary", shape("logits", 1), (512, 1024)),
        )
    ),
    "checkpoint_steps": Blocks(
        (Dimension("rows", shape("steps", 0), (32, 256)), Dimension("interval", number("interval")))
    ),
    "conv_update": _launch(
        "conv", _TAPS,
        Dimension("tokens", sequence("conv"), (64, 256), 1025, "one after another in the interpreter", interpreted=769),
        channels="x",
    ),
    "conv_verify": _launch("conv", _TAPS, Dimension("width", shape("out", 1), most=129, reason=_ROUND), channels="x"),
    "conv_verify_tree": _launch("conv", _TAPS, _TREE, channels="x"),
    "fp8_attention": _attention(ring=False),
    "fp8_write": Blocks(_entries("k", "k_pool", "slot_mapping")),
    "gated_norm": Blocks(
        (
            Dimension("tokens", _at_eight_columns, (128,), 4097, "", "", _beside("tokens", columns=8), 513),
            Dimension("columns", shape("out", 1), (8, 1024)),
        )
    ),
    "gdn_checkpoint": _launch("cursor", _TAPS, states="ssm", channels="inputs"),
    "gdn_flush": _launch("cursor", _TAPS, states="ssm", channels="inputs"),
    "gdn_replay": _launch("cursor", _TAPS, forms=_FOLDS, states="ssm", channels="x"),
    "gdn_replay_tree": _launch("cursor", _TREE, states="ssm", channels="x"),
    "gdn_update": _launch(
        "ssm",
        Dimension(
            "tokens", sequence("ssm"), (64,), 257, "one after another in the interpreter",
            asks=_beside("tokens", rows=2, heads=2), interpreted=129,
        ),
        states="ssm",
    ),
    "gdn_verify": _launch("ssm", _WIDTH, forms=(_TILED, _AHEAD), states="ssm"),
    "gdn_verify_tree": _launch("ssm", _TREE, states="ssm"),
    "greedy_accept": Blocks((Dimension("width", accepted, (32,), 1025, _ROUND), _programs("rows", shape("bonus", 0)))),
    "greedy_choice": Blocks(
        (
            _programs("tokens", shape("logits", 0)),
            # Eight blocks of 4096 are as many as the second kernel takes at least.
            Dimension("vocabulary", shape("logits", 1), (512, 4096, 1 << 15), (1 << 17) + 1),
        )
    ),
    "kv_move": Blocks(_entries("src", "k_pool", "src", "dst")),
    "kv_write": Blocks(_entries("k", "k_pool", "slot_mapping")),
    "linear_add": _linear("residual", 128),
    "narrow_linear": _linear("out", 128),
    "norm_gate_up": _linear("out", 64, _GOES_ON),
    "norm_linear": _linear("out", 128),
    "paged_attention": _attention(_MANY),
    "quantised_attention": _attention(floats=False, most=257),
    "quantised_write": Blocks(_entries("k", "k_pool", "slot_mapping")),
    "rejection_choice": Blocks(
        (
            Dimension("tokens", shape("weights", 0), most=129, reason=_PROGRAMS),
            Dimension("vocabulary", shape("weights", 1), (512, 1024), 4097, _VOCABULARY),
        )
    ),
    "replay_commit": _CURSORS,
    "replay_move": _launch(
        "cursor",
        Dimension("layers", shape("inputs", 0), most=65, interpreted=17, reason=_PROGRAMS),
        Dimension("places", shape("accept_index", 1), most=33, reason=_ROUND),
        Dimension("heads", is_known(shape("gates", -1), "cursor", "state_slots"), (4,), 33, _HEADS),
        channels="inputs",
    ),
    "replay_rewind": _CURSORS,
    "ring_linear": Blocks(
        (
            Dimension("tokens", shape("x", 0), most=257, interpreted=33, reason=_PROGRAMS),
            Dimension("inputs", shape("x", 1), (64,)),
            Dimension("outputs", shape("out", 1), (64,), 4097, interpreted=1025),
        )
    ),
    "ring_mix": Blocks((Dimension("elements", elements("x", 0), (256,)),)),
    "rms_norm": _rowwise("out", Dimension("columns", shape("out", 1), (1024,))),
    "rope": Blocks(
        (
            _programs("tokens", shape("q", 0)),
            Dimension("q_heads", shape("q", 1), (8,), 257, _HEADS),
            Dimension("k_heads", shape("k", 1), (8,), 257, _HEADS),
            Dimension("half", shape("inv_freq", 0), most=129, reason=_HEAD),
        )
    ),
    "sampled_choice": Blocks(
        (
            Dimension("tokens", shape("weights", 0), most=129, reason=_PROGRAMS),
            Dimension("vocabulary", shape("weights", 1), (512, 1024), 4097, _VOCABULARY),
            Dimension("drafts", shape("drafts", 1), (16,), 65, "no tree has more children of a node"),
        )
    ),
    "silu_mul": _rowwise("out", Dimension("columns", shape("out", 1), (1024,))),
    "state_scatter": Blocks(
        (
            Dimension(
                "elements", is_known(elements("pool", 2), "pool", "state_slots", place=1), (128, 4096), (1 << 14) + 1
            ),
            Dimension("rows", shape("state_slots", 0), most=257, interpreted=65, reason=_PROGRAMS),
            Dimension("slots", shape("pool", 1)),
            Dimension("steps", shape("steps", 2), most=257, reason="each has a state of its own"),
            Dimension("layers", shape("pool", 0), most=257, interpreted=65, reason=_PROGRAMS),
        )
    ),
    "token_attention": Blocks(
        (
            Dimension("positions", seen, (256,), 2049, "the twin looks at each number of each of them"),
            _PAGES,
            Dimension("heads", shape("k_pool", 1), most=17, reason=_HEADS),
            Dimension("group", group_of, most=17, reason=_HEADS),
            Dimension("half", shape("inv_freq", 0), most=65, reason=_HEAD),
            Dimension("inputs", shape("x", 1), most=1025, reason="each is multiplied by each output"),
        )
    ),
    "windowed_attention": _attention(),
}  # fmt: skip
"""Op -> its blocks."""
