"""How a wrong output of a kernel relates to the right one: rows in one another's place, and the stride behind it.

A row is what one index of a tensor's first dimensions names, say states[b,t]. Rows are looked for in memory, not by
index, since a wrong stride leads anywhere in the allocation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import torch

from draftproof.properties.kernels.case import Buffer, KernelCase, words
from draftproof.properties.kernels.others.table import ALL_OPS
from draftproof.properties.values import relations as rel

Index = tuple[int, ...]
# Whether each of the second values may stand for the first, which may be one for all of them.
Near = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MOST_ROWS = 32
# Elements of a row that are looked for one by one, before whole rows are compared.
_TRIED = 3


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor in its allocation, at `depth` leading dimensions."""

    buffer: Buffer
    depth: int

    @cached_property
    def inner(self) -> torch.Tensor:
        """Offsets of a row's elements from its first."""
        zero = torch.zeros(1, dtype=torch.int64)
        sizes = zip(self.buffer.shape[self.depth :], self.buffer.strides[self.depth :], strict=True)
        return reduce(lambda grid, d: (grid[:, None] + torch.arange(d[0]) * d[1]).flatten(), sizes, zero)

    def start(self, index: Index, strides: Sequence[int] = ()) -> int:
        """Return the offset of a row's first element, or where other strides lead."""
        return self.buffer.offset + sum(i * s for i, s in zip(index, strides or self.buffer.strides, strict=False))

    def of(self, storage: torch.Tensor, index: Index) -> torch.Tensor:
        return storage[self.start(index) + self.inner]

    def where(self, wrong: torch.Tensor) -> list[Index]:
        """Return the first rows in which any element of the allocation is marked."""
        marked = self.buffer.of(wrong).reshape(*self.buffer.shape[: self.depth], -1).any(-1)
        return [tuple(index) for index in marked.nonzero()[:_MOST_ROWS].tolist()]

    def spot(self, offset: int) -> rel.TensorLocation:
        """Return what starts at an offset: a row, an element inside one, or memory around the tensor."""
        if self.buffer.elements[offset] < 0:
            return rel.TensorLocation("around", (offset,))
        index = self.buffer.index(offset)
        return (
            rel.TensorLocation("inside", index)
            if any(index[self.depth :])
            else rel.TensorLocation("row", index[: self.depth])
        )

    def find(self, storage: torch.Tensor, content: torch.Tensor, near: Near) -> list[int]:
        """Return the offsets in `storage` at which a row of this content lies."""
        starts = torch.arange(max(0, storage.numel() - int(self.inner.max())))
        for i in range(min(_TRIED, len(content))):
            starts = starts[near(content[i], storage[starts + self.inner[i]])]
            if not starts.numel():
                return []
        return starts[near(content, storage[starts[:, None] + self.inner]).all(1)].tolist()


@dataclass(frozen=True, eq=False)
class WrongArgument:
    """An argument of a call that is not what it must be: its allocation as expected and got, with its wrong elements.

    `near` compares the values of rows.
    """

    case: KernelCase
    name: str
    expected: torch.Tensor
    got: torch.Tensor
    wrong: torch.Tensor
    near: Near

    @property
    def buffer(self) -> Buffer:
        """The argument as it was before the call."""
        return self.case.buffers[self.name]


def explain(one: WrongArgument) -> rel.KernelRelation | None:
    """Relate an argument's wrong allocation to what it must be, or return None where no relation is seen."""
    shape, values = one.buffer.shape, one.buffer.of(one.expected)
    if not values.is_floating_point() and not _telling(values):
        return None
    depths = [depth for depth in range(1, len(shape) + 1) if _telling(values) or prod(shape[depth:]) > 1]
    rows = [Rows(one.buffer, depth) for depth in depths]
    seekers: tuple[Callable[[WrongArgument, Rows], rel.RowElsewhere | rel.RowTaken | None], ...] = (_displaced, _taken)
    for seek in seekers:
        relations = [relation for relation in (seek(one, of) for of in rows) if relation]
        if relations:
            # Of rows and their parts, which are displaced as well, those that show why.
            shown = (each for each in relations if isinstance(each.cause, rel.WrongStride | rel.SwappedStrides))
            return next(shown, relations[0])
    return next((relation for of in rows if (relation := _stale(one, of))), None)


def _telling(values: torch.Tensor) -> bool:
    """Return whether elements identify themselves: ring values do; small integers and close floats do not."""
    whole = values.dtype != torch.bool and not values.is_floating_point()
    return whole and bool((values.abs() >> 32 > 0).double().mean() > 0.5)


def _displaced(one: WrongArgument, rows: Rows) -> rel.RowElsewhere | None:
    """Look for rows that were to be written, and lie elsewhere."""
    before = rows.buffer.storage
    places: dict[Index, list[int]] = {}
    due = words(one.expected) != words(before)
    for index in rows.where(one.wrong & due):
        if rows.of(due, index).double().mean() < 0.9:
            continue
        content = rows.of(one.expected, index)
        found = set(rows.find(one.got, content, one.near))
        for right in (before, one.expected) if found else ():
            found.difference_update(rows.find(right, content, one.near))
        if found:
            places[index] = sorted(found)
    if not places:
        return None
    index, offsets = next(iter(places.items()))
    return rel.RowElsewhere(rows.spot(offsets[0]), index, _stride(one.case, one.name, rows, places))


def _taken(one: WrongArgument, rows: Rows) -> rel.RowElsewhere | rel.RowTaken | None:
    """Look for rows with the contents of another row, which has them as well, or of a wrong row of an input."""
    written = words(one.got) != words(rows.buffer.storage)
    indices = rows.where(one.wrong & written)
    for index in indices[:1]:
        offsets = [
            offset
            for offset in rows.find(one.expected, rows.of(one.got, index), one.near)
            if offset != rows.start(index)
        ]
        owners = [spot.index for spot in map(rows.spot, offsets) if spot.kind == "row"]
        if owners:
            return rel.RowElsewhere(rel.TensorLocation("row", index), owners[0])
    for other, source in _sources(one.case, one.name, rows):
        places: dict[Index, list[int]] = {}
        taken: dict[Index, tuple[rel.TensorLocation, rel.TensorLocation]] = {}
        for index in indices:
            right = source.find(source.buffer.storage, rows.of(one.expected, index), _same)
            offsets = source.find(source.buffer.storage, rows.of(one.got, index), _same)
            if right and offsets:
                own = source.spot(right[0])
                taken[index] = source.spot(offsets[0]), own
                places[own.index if own.kind == "row" else ()] = offsets
        if taken:
            index, (got, expected) = next(iter(taken.items()))
            return rel.RowTaken(index, other, got, expected, _stride(one.case, other, source, places))
    return None


def _sources(case: KernelCase, name: str, rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Yield other arguments that may have rows of this shape, as rows."""
    shape = rows.buffer.shape[rows.depth :]
    if prod(shape) < 2:
        return
    for other, buffer in case.buffers.items():
        depth = len(buffer.shape) - len(shape)
        alike = buffer.shape[depth:] == shape and buffer.storage.dtype == rows.buffer.storage.dtype
        if other != name and depth > 0 and alike:
            yield other, Rows(buffer, depth)


def _same(value: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return words(value) == words(values)


def _stale(one: WrongArgument, rows: Rows) -> rel.RowUnwritten | rel.RowOverwritten | None:
    """Look whether the first wrong row was not written at all, or must not have been."""
    before = rows.buffer.storage
    for index in rows.where(one.wrong)[:1]:
        if torch.equal(words(rows.of(one.got, index)), words(rows.of(before, index))):
            return rel.RowUnwritten(index)
        if torch.equal(words(rows.of(one.expected, index)), words(rows.of(before, index))):
            return rel.RowOverwritten(index)
    return None


def _stride(case: KernelCase, name: str, rows: Rows, places: dict[Index, list[int]]) -> rel.Cause | None:
    """Return the one stride, or two exchanged, that leads from every index to a place where its row was found."""
    strides = list(rows.buffer.strides[: rows.depth])
    places = {index: offsets for index, offsets in places.items() if index}
    for dimension in range(rows.depth if len(places) > 1 else 0):
        rest = [0 if d == dimension else stride for d, stride in enumerate(strides)]
        steps = [_steps(rows, rest, index, index[dimension], offsets) for index, offsets in places.items()]
        # One index alone fits with any stride, so then only one that has a name is told.
        several = len({index[dimension] for index in places}) > 1
        for step in sorted(set.intersection(*steps)):
            pitch = _named(case, name, rows, dimension, step)
            if pitch:
                return rel.WrongStride(pitch)
            if several:
                return rel.WrongStride(rel.StridePair(step, strides[dimension]), dimension)
    for first in range(rows.depth):
        for second in range(first):
            swapped = list(strides)
            swapped[first], swapped[second] = strides[second], strides[first]
            if all(rows.start(index, swapped) in offsets for index, offsets in places.items()):
                return rel.SwappedStrides(second, first)
    return _shift(rows, places)


def _steps(rows: Rows, rest: list[int], index: Index, count: int, offsets: list[int]) -> set[int]:
    """Return the strides of the left-out dimension that lead to one of the offsets."""
    distances = [offset - rows.start(index, rest) for offset in offsets]
    return {distance // count for distance in distances if count and distance % count == 0}


def _named(case: KernelCase, name: str, rows: Rows, dimension: int, step: int) -> rel.StridePair | None:
    """Return a wrong stride in rows of the next dimension, if that many have a name in the op: W=3 instead of A=5."""
    inner = dimension + 1
    if inner >= len(rows.buffer.shape) or step % rows.buffer.strides[inner]:
        return None
    count, right = step // rows.buffer.strides[inner], rows.buffer.shape[inner]
    letters = ALL_OPS[case.op].letters
    named: dict[str, int] = {}
    for other, letters_of in letters.items():
        named |= dict(zip(letters_of, case.buffers[other].shape, strict=False))
    letter = next((letter for letter in "WA" if named.get(letter) == count), "")
    if not letter and count != right - 1:
        return None
    own = letters[name][inner] if name in letters else "."
    return rel.StridePair(count, right, letter, own.strip("."))


def _shift(rows: Rows, places: dict[Index, list[int]]) -> rel.Shifted | None:
    """Return the constant number of elements by which all rows are moved, if there is one."""
    moved = {offset - rows.start(index) for index, offsets in places.items() for offset in offsets[:1]}
    return rel.Shifted(len(places), moved.pop()) if len(places) > 1 and len(moved) == 1 else None
