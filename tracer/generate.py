"""Programs drawn from a seed: each layer gathers bits of other rows and hashes them with tables."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from draftproof.tracer.program import (
    BOS,
    FIRST,
    SLOT_BITS,
    TAPS,
    TRUE,
    VOCABULARY,
    Address,
    BitHead,
    BitLayer,
    CopyHead,
    Program,
    SlotMemory,
    Table,
)

LAYERS, KEPT, HASHED, INPUTS = 4, 4, 8, 5
"""Layers, and of each: the bits that a memory keeps, the tables, and their inputs."""
WIDTH, CHOICES, OUTPUTS = 256, 8, 8
ID_BITS, REACH = 9, 8
"""Of an id: binary digits of its number. Of a draft: the most tokens that it may draft in a round and be right."""


class _Drawn:
    """A program in the making: the next free dimension, and the source of chance."""

    def __init__(self, seed: int, length: int) -> None:
        self.chance, self.far = random.Random(seed), max(length // 2, 16)
        self.used = FIRST + 1

    def fresh(self, count: int) -> tuple[int, ...]:
        self.used += count
        return tuple(range(self.used - count, self.used))

    def some(self, of: Sequence[int], count: int) -> tuple[int, ...]:
        return tuple(self.chance.sample(of, count))

    def distance(self, near: int, far: int) -> int:
        """Return a distance of evenly spread logarithm."""
        return round(near * (far / near) ** self.chance.random())

    def strips(self, first: int, count: int) -> list[tuple[int, ...]]:
        """Return lists of distances that have each one from the first on, once."""
        mixed = self.some(range(first, first + count * CHOICES), count * CHOICES)
        return [mixed[i::count] for i in range(count)]

    def afar(self, count: int) -> list[tuple[int, ...]]:
        """Return lists of distances to half of the length."""
        return [tuple(self.distance(min(64, self.far), self.far) for _ in range(CHOICES)) for _ in range(count)]

    def table(self, target: int, lead: int, inputs: tuple[int, ...], *, routed: bool = False) -> Table:
        """Return a table with as many ones as zeros, which each input changes in three cases of eight at least."""
        while True:
            values = [0, 1] * (1 << len(inputs) - 1)
            self.chance.shuffle(values)
            flips = (sum(values[i] != values[i ^ 1 << k] for i in range(len(values))) for k in range(len(inputs)))
            if all(8 * count >= 3 * len(values) for count in flips):
                return Table(target, lead, inputs, tuple(values), routed)


def generated(
    seed: int, length: int, mixers: str = "F", draft: str | None = None, *, window: int = 0, tied: bool = False
) -> Program:
    """Return the target that belongs to a seed, with its draft, which is often right.

    Its layers have in turn what `mixers` says: F copies, L memories. With a window every other layer sees no further.
    With tied embeddings the byte that follows is written over the bits of the id.
    """
    drafted = draft in ("eagle", "eagle3", "mtp")
    drawn = _Drawn(seed, length)
    embedded = (FIRST, *drawn.fresh(ID_BITS + CHOICES))
    codes = _codes(drawn, range(VOCABULARY) if tied else drawn.some(range(1 << ID_BITS), VOCABULARY))
    ids, of_token = list(embedded[1 : ID_BITS + 1]), embedded[ID_BITS + 1 :]
    choice, deep = of_token, list[int]()
    done: list[BitLayer] = []
    for number in range(LAYERS):
        is_last = number == LAYERS - 1
        copies: tuple[CopyHead, ...] = ()
        memories: tuple[SlotMemory, ...] = ()
        own = deep or ids
        if is_last and drafted:
            copies, own = _drafted_copies(drawn, ids, deep, of_token), ids
        elif mixers[number % len(mixers)] == "L":
            memories = _memories(drawn, ids + deep)
        else:
            copies = _copies(drawn, own, choice, 0 if number % 2 else window)
        copied = [bit for one in (copies or memories) for bit in one.targets]
        targets = tuple(ids[:OUTPUTS]) if is_last and tied else drawn.fresh(OUTPUTS if is_last else HASHED)
        leads = drawn.some(copied[:HASHED] if own == ids and deep else own, HASHED)
        route = (drawn.chance.choice(ids), drawn.chance.choice(copied))
        tables = _hashes(drawn, targets, leads, [bit for bit in copied if bit not in leads], own, route)
        if not is_last:
            choice = drawn.fresh(CHOICES)
            tables += _one_of(choice, drawn.some(copied, 3))
            deep = list(targets)
        elif tied:
            tables += (Table(ids[-1], TRUE, (), (0,)),)
            tables = tuple(msgspec.structs.replace(table, again=True) for table in tables)
        done.append(BitLayer(copies, memories, tables, route))
    last, plain = done[-1], Program(WIDTH, embedded, codes, tuple(done), targets, window=window)
    if draft == "standalone":
        return msgspec.structs.replace(plain, small=_with_last(plain, _twisted(last, drawn.some(deep, 2))))
    if not drafted:
        return plain
    target = _with_last(plain, _twisted(last, drawn.some(deep, 3)))
    of_features = draft == "eagle3"
    chained = drawn.some([table.target for table in done[-3].tables[:HASHED]] if of_features else deep, 4)
    return msgspec.structs.replace(target, head=_head(drawn, last, ids, of_token, deep, chained, features=of_features))


def _with_last(program: Program, layer: BitLayer) -> Program:
    return msgspec.structs.replace(program, layers=(*program.layers[:-1], layer))


def _twisted(layer: BitLayer, by: tuple[int, ...]) -> BitLayer:
    """Return a layer with another first table where all these bits are 1."""
    return msgspec.structs.replace(layer, tables=(_flipped(layer.tables[0], by), *layer.tables[1:]))


def _head(
    drawn: _Drawn,
    last: BitLayer,
    ids: Sequence[int],
    of_token: Sequence[int],
    deep: Sequence[int],
    chained: Sequence[int],
    *,
    features: bool,
) -> BitHead:
    """Return the draft that computes the target's last layer from the states of the rows before.

    Row i is the target's row i with the token behind it, so that distances are one less. In the state that it hands on
    it keeps bits of its own in the place of those that are `chained`.
    """
    before = dict(zip((*ids, *chained, FIRST), drawn.fresh(len(ids) + len(chained) + 1), strict=True))
    copies = tuple(
        msgspec.structs.replace(
            copy,
            sources=tuple(before.get(bit, bit) for bit in copy.sources),
            distances=tuple(distance - 1 for distance in copy.distances),
        )
        for copy in last.copies
    )
    given = [before[bit] for bit in chained]
    kept = tuple(
        drawn.table(to, lead, (*drawn.some([bit for bit in given if bit != lead], 2), *drawn.some(ids, 3)))
        for to, lead in zip(given if features else chained, given, strict=True)
    )
    kept = tuple(msgspec.structs.replace(table, firm=True) for table in kept)
    tables = (_flipped(last.tables[0], (given[0], given[1])), *last.tables[1:], *kept)
    if features:
        tables += tuple(Table(before[bit], bit, (), (1,)) for bit in ids)
        tables += tuple(Table(bit, TRUE, (), (1,)) for bit in (*ids, *(bit for copy in copies for bit in copy.targets)))
        tables += (Table(before[FIRST], TRUE, (), (0,)),)
        tables = tuple(msgspec.structs.replace(table, again=True) for table in tables)
    return BitHead(
        embedded=tuple((bit, bit) for bit in (*ids, *of_token)),
        handed=tuple((to, bit) for bit, to in before.items()) + tuple((bit, bit) for bit in deep if bit not in chained),
        zeros=() if features else (FIRST,),
        first=before[FIRST],
        layer=BitLayer(copies, (), tables, last.route),
        features=features,
    )


def _flipped(table: Table, by: tuple[int, ...]) -> Table:
    """Return a table that is otherwise where all these bits are 1."""
    values = table.values * ((1 << len(by)) - 1) + tuple(1 - value for value in table.values)
    return msgspec.structs.replace(table, inputs=(*table.inputs, *by), values=values)


def _codes(drawn: _Drawn, numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the bits of every id: that it is BOS, its number, and one of eight choices."""
    chosen = [i % CHOICES for i in range(VOCABULARY)]
    drawn.chance.shuffle(chosen)
    return tuple(
        (
            int(i == BOS),
            *((numbers[i] >> k) & 1 for k in range(ID_BITS)),
            *(int(chosen[i] == k) for k in range(CHOICES)),
        )
        for i in range(VOCABULARY)
    )


def _copies(drawn: _Drawn, pool: Sequence[int], choice: tuple[int, ...], window: int) -> tuple[CopyHead, ...]:
    """Return the heads of a layer: neighbours, every distance to 64 in turn, and some far away, as bits choose.

    The furthest is the last that a window has.
    """
    near = ((1,), (2,), (drawn.distance(3, 8),), (drawn.distance(8, 64),))
    others = [*drawn.strips(1, 8), *drawn.afar(4)]
    if window:
        others = [tuple(min(one, window - 1) for one in distances) for distances in others]
        others[-1] = (window - 1,)
    return (*_heads(drawn, pool, choice, near, 3), *_heads(drawn, pool, choice, others, 1))


def _drafted_copies(
    drawn: _Drawn, ids: Sequence[int], deep: Sequence[int], choice: tuple[int, ...]
) -> tuple[CopyHead, ...]:
    """Return heads that a draft can have, too: what it does not compute it reads no nearer than `REACH`.

    The first of them copies all of that.
    """
    near, far = ((1,), (2,), (drawn.distance(3, 8),)), ((drawn.distance(REACH, 64),),)
    return (
        *_heads(drawn, deep, choice, [(REACH,)], len(deep)),
        *_heads(drawn, ids, choice, near, 3),
        *_heads(drawn, ids, choice, drawn.strips(1, 3), 1),
        *_heads(drawn, deep, choice, (*far, *drawn.strips(REACH, 6), *drawn.afar(2)), 1),
    )


def _heads(
    drawn: _Drawn, pool: Sequence[int], choice: tuple[int, ...], each: Sequence[tuple[int, ...]], count: int
) -> tuple[CopyHead, ...]:
    return tuple(
        CopyHead(drawn.some(pool, count), drawn.fresh(count), distances, choice if len(distances) > 1 else ())
        for distances in each
    )


def _memories(drawn: _Drawn, pool: list[int]) -> tuple[SlotMemory, ...]:
    """Return two pairs of memories, of 8 and of 64 slots; of a pair, which shares its addresses, one is cleared."""
    found = []
    for bits in (3, SLOT_BITS):
        others = (TRUE,) * (SLOT_BITS - bits)
        write, read = (Address((*drawn.some(pool, bits), *others), drawn.chance.randrange(TAPS)) for _ in range(2))
        for cleared in (0, 5):
            back, writes = drawn.chance.randrange(TAPS), drawn.chance.choice(pool) if cleared else TRUE
            clears = drawn.some(pool, cleared)
            found.append(SlotMemory(write, read, drawn.some(pool, KEPT), back, writes, clears, drawn.fresh(KEPT)))
    return tuple(found)


def _hashes(
    drawn: _Drawn,
    targets: Sequence[int],
    leads: Sequence[int],
    copied: Sequence[int],
    own: Sequence[int],
    route: tuple[int, int],
) -> tuple[Table, ...]:
    """Return tables whose leads are given, so that no change of these is lost, and that use every copied bit."""
    tables = []
    for k, target in enumerate(targets):
        routed = k % 2 == 0
        start = tuple(dict.fromkeys((*(route if routed else ()), *copied[k :: len(targets)])))
        others = [bit for bit in (*own, *copied) if bit not in (*start, leads[k])]
        inputs = (*start, *drawn.some(others, max(INPUTS - len(start), 0)))
        tables.append(drawn.table(target, leads[k], inputs, routed=routed))
    return tuple(tables)


def _one_of(targets: Sequence[int], inputs: tuple[int, ...]) -> tuple[Table, ...]:
    """Return tables that make one bit of eight 1, which three others choose."""
    return tuple(
        Table(target, TRUE, inputs, tuple(int(i == k) for i in range(len(targets)))) for k, target in enumerate(targets)
    )
