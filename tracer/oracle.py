"""What a tracer checkpoint must emit: integers only.

`BitRows` evaluates a program for several requests, token by token. Everything that an operation reads of other rows
goes through a `ReadView`, so that a mistake of an engine is a view with one function replaced. A row's number is
`request * SPAN + position`, so a view may name rows of another request. A position below 0 is before the prompt: a
copy reads the first row instead, and a memory nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftproof.properties.lib.errors import require_input
from draftproof.tracer.program import BOS, VOCABULARY, Address, BitLayer, Program, SlotMemory

SPAN = 1 << 20
DRAFT_LAYER = -1
"""The number of a draft's first layer; the others of one that is a model of its own are below."""
Numbers = NDArray[np.int64]
Bits = NDArray[np.int8]


class ReadOp(NamedTuple):
    """An operation that reads, and its number in its layer.

    The kind is "copy", or of a memory "value", "write" and "read" (rows of a convolution's window, whose bits are
    written, and are numbers of slots), "slot" (the row whose bits were found in one; -1: none) or "state".
    """

    layer: int
    kind: str
    number: int


@dataclass(frozen=True)
class ReadView:
    """What each read sees; the default is the truth. Arrays are of row numbers, `at` are the rows that read.

    entry(place, at, wanted): the rows whose KV entry, or place in a convolution's window, is read.
    state(place, at, before): the row after which a memory is as row `at` finds it; -1 for an empty one.
    token(at, wanted): of a draft, the rows whose token is consumed; that of row i is i + 1.
    hidden(at, wanted): of a draft, the rows whose state is consumed; `handed(row)` is the state of the draft itself.
    runs(layer): False for a layer that is skipped.
    """

    entry: Callable[[ReadOp, Numbers, Numbers], Numbers] = lambda place, at, wanted: wanted
    state: Callable[[ReadOp, int, int], int] = lambda place, at, before: before
    token: Callable[[Numbers, Numbers], Numbers] = lambda at, wanted: wanted
    hidden: Callable[[Numbers, Numbers], Numbers] = lambda at, wanted: wanted
    runs: Callable[[int], bool] = lambda layer: True


def handed(row: int) -> int:
    """Return what stands in `ReadView.hidden` for the state that the draft computed in a row."""
    return -2 - row


def _first(rows: Numbers) -> Numbers:
    """Return the first row of the request of each row, which may lie a little before it."""
    return (rows + SPAN // 2) // SPAN * SPAN


class _Store:
    """One array a request, which grows: a line for each row."""

    def __init__(self, width: int, fill: int, dtype: type) -> None:
        self._width, self._fill, self._dtype = width, fill, dtype
        self._lines: dict[int, NDArray[Any]] = {}

    def _of(self, request: int, count: int = 1) -> NDArray[Any]:
        have = self._lines.get(request)
        if have is None or len(have) < count:
            more: NDArray[Any] = np.full((2 * count + 64, self._width), self._fill, self._dtype)
            if have is not None:
                more[: len(have)] = have
            self._lines[request] = have = more
        return have

    def get(self, rows: Numbers) -> NDArray[Any]:
        """Return the lines of these rows; those of none are as at the beginning."""
        if len(rows) == 1 and (row := int(rows[0])) >= 0:
            return self._of(row // SPAN, row % SPAN + 1)[row % SPAN : row % SPAN + 1].copy()
        first, last = int(rows.min()), int(rows.max())
        if first >= 0 and first // SPAN == last // SPAN:
            return self._of(first // SPAN, last % SPAN + 1)[rows % SPAN]
        found: NDArray[Any] = np.full((len(rows), self._width), self._fill, self._dtype)
        for request in np.unique(rows[rows >= 0] // SPAN):
            mine = (rows >= 0) & (rows // SPAN == request)
            at = rows[mine] % SPAN
            found[mine] = self._of(int(request), int(at.max()) + 1)[at]
        return found

    def put(self, rows: Numbers, lines: NDArray[Any]) -> None:
        """Set the lines of consecutive rows."""
        first = int(rows[0])
        self._of(first // SPAN, first % SPAN + len(rows))[first % SPAN : first % SPAN + len(rows)] = lines


Index = slice | Numbers


def _index(dimensions: Sequence[int]) -> Index:
    """Return what indexes these dimensions: a slice where they follow each other, which is read much faster."""
    first, count = (dimensions[0] if dimensions else 0), len(dimensions)
    is_run = tuple(dimensions) == tuple(range(first, first + count))
    return slice(first, first + count) if is_run else np.array(dimensions, int)


class _Copy(NamedTuple):
    place: ReadOp
    select: Numbers
    distances: Numbers
    targets: Index
    sources: Index


class _Tables(NamedTuple):
    """Tables that have as many inputs: their fields, the weight of each input, and their numbers."""

    target: Numbers
    lead: Numbers
    inputs: Numbers
    values: Numbers
    weights: Numbers
    numbers: Numbers


class _Layer(NamedTuple):
    copies: list[_Copy]
    tables: list[_Tables]


@lru_cache(maxsize=64)
def _arrays(number: int, layer: BitLayer) -> _Layer:
    """Return the copies and tables of a layer as what indexes arrays."""
    copies = [
        _Copy(
            ReadOp(number, "copy", i),
            np.array(copy.select, int),
            np.array(copy.distances, int),
            _index(copy.targets),
            _index(copy.sources),
        )
        for i, copy in enumerate(layer.copies)
    ]
    tables = []
    for size in sorted({len(table.inputs) for table in layer.tables}):
        alike = [table for table in layer.tables if len(table.inputs) == size]
        target, lead, inputs, values = (
            np.array([getattr(table, name) for table in alike], int) for name in ("target", "lead", "inputs", "values")
        )
        tables.append(_Tables(target, lead, inputs, values, 1 << np.arange(size), np.arange(len(alike))))
    return _Layer(copies, tables)


class BitRows:
    """The rows of some requests: the target's, and those of its draft if it has one."""

    def __init__(self, program: Program, view: ReadView | None = None, *, is_draft: bool = False) -> None:
        self.program, self.view = program, view or ReadView()
        self._small = BitRows(program.small, view, is_draft=True) if program.small else None
        # A draft's layers count from -1 downward.
        self._numbers = [DRAFT_LAYER - i if is_draft else i for i in range(len(program.layers))]
        layers = dict(zip(self._numbers, program.layers, strict=True))
        layers |= {DRAFT_LAYER: program.head.layer} if program.head else {}
        self._arrays = {number: _arrays(number, layer) for number, layer in layers.items()}
        self.tokens: dict[int, list[int]] = {}
        self._codes = np.array(program.codes, np.int8)
        self._bits = {False: _Store(program.width, 1, np.int8), True: _Store(program.width, 1, np.int8)}
        self._handed = _Store(program.width, 1, np.int8)
        self._memories: dict[ReadOp, _Store] = {}
        self._is_drafted: dict[int, int] = {}

    def extend(self, tokens: Sequence[int], request: int = 0) -> None:
        """Append tokens to a request. Raises InputError for ids that a tracer does not read."""
        old = self.tokens.setdefault(request, [])
        for place, token in enumerate(tokens, len(old)):
            require_input(0 <= token < VOCABULARY, "id", token, f"0 .. {VOCABULARY - 1}")
            require_input((token == BOS) == (place == 0), "id", token, f"{BOS} as the first token, and nowhere else")
        at = request * SPAN + np.arange(len(old), len(old) + len(tokens))
        old.extend(tokens)
        if not len(at):
            return
        bits = np.ones((len(at), self.program.width), np.int8)
        bits[:, self.program.embedded] = self._codes[list(tokens)]
        for number, layer in zip(self._numbers, self.program.layers, strict=True):
            self._bits[False].put(at, bits)
            if self.view.runs(number):
                self._run(number, layer, at, bits)
        self._bits[False].put(at, bits)

    def following(self, request: int = 0) -> int:
        """Return the token that the target emits behind the last one."""
        return self.emitted(request * SPAN + len(self.tokens[request]) - 1)

    def emitted(self, row: int) -> int:
        """Return the token that the target emits behind a row."""
        return self._byte(row)

    def drafted(self, width: int, request: int = 0, cached: Sequence[int] | None = None) -> list[int]:
        """Return what the draft proposes for the `width` tokens behind the last one, of which there are two at least.

        Rows whose state the target has computed are drafted once; those of the chain again in each round. A standalone
        draft reads what is `cached`, if that is not the request's tokens.
        """
        if self._small:
            return self._small._ahead(self.tokens[request] if cached is None else cached, width, request)
        tokens, start = list(self.tokens[request]), request * SPAN
        last, first = start + len(tokens) - 1, start + self._is_drafted.get(request, 0)
        known = np.arange(first, last)
        hidden = self.view.hidden(known, known)
        for some in (slice(None),) if (hidden >= 0).all() else [slice(i, i + 1) for i in range(len(known))]:
            self._draft(known[some], hidden[some], tokens)
        self._is_drafted[request] = last - start
        drafts = [self._byte(last - 1, is_draft=True)]
        for row in range(last, last + width - 1):
            at = np.array([row])
            self._draft(at, self.view.hidden(at, np.array([handed(row - 1)])), tokens + drafts)
            drafts.append(self._byte(row, is_draft=True))
        return drafts

    def keep_drafted(self, rows: Sequence[int], to: Sequence[int]) -> None:
        """Copy what the draft computed in rows to others, which nothing else writes."""
        for row, place in zip(rows, to, strict=True):
            draft, is_draft = (self._small, False) if self._small else (self, True)
            draft._bits[is_draft].put(np.array([place]), draft._bits[is_draft].get(np.array([row])))

    def _ahead(self, tokens: Sequence[int], width: int, request: int) -> list[int]:
        """Return the continuation of tokens, which begin with those of the request, and forget it again."""
        self.extend(tokens[len(self.tokens.get(request, ())) :], request)
        for _ in range(width):
            self.extend([self.following(request)], request)
        mine = self.tokens[request]
        drafts = mine[len(tokens) :]
        del mine[len(tokens) :]
        return drafts

    def _draft(self, at: Numbers, hidden: Numbers, tokens: list[int]) -> None:
        """Compute consecutive rows of the draft, where `tokens` are those of the request with the chain's."""
        head, request = self.program.head, int(at[0]) // SPAN if len(at) else 0
        if head is None or not len(at):
            return
        of = {**self.tokens, request: tokens}
        wanted = [(of[row // SPAN], row % SPAN) for row in self.view.token(at, at + 1).tolist()]
        ids = [known[min(place, len(known) - 1)] for known, place in wanted]
        embedded = np.ones((len(at), self.program.width), np.int8)
        embedded[:, self.program.embedded] = self._codes[ids]
        own = self._handed.get(-2 - hidden)
        bits = np.ones_like(embedded)
        bits[:, head.zeros] = 0
        to, source = np.array(head.handed, int).reshape(-1, 2).T
        is_own, of_target = (hidden < -1)[:, None], self._bits[False].get(hidden)[:, source]
        bits[:, to] = np.where(is_own, own[:, to if head.features else source], of_target)
        to, source = np.array(head.embedded, int).reshape(-1, 2).T
        bits[:, to] = embedded[:, source]
        self._bits[True].put(at, bits)
        self._run(DRAFT_LAYER, head.layer, at, bits, is_draft=True)
        self._handed.put(at, bits)

    def _byte(self, row: int, *, is_draft: bool = False) -> int:
        store = self._handed if is_draft else self._bits[False]
        bits = store.get(np.array([row]))[0, list(self.program.outputs)]
        return int(bits @ (1 << np.arange(len(bits))))

    def _run(self, number: int, layer: BitLayer, at: Numbers, bits: Bits, is_draft: bool = False) -> None:
        """Run one layer on consecutive rows of a request, whose bits so far are stored."""
        store = self._bits[is_draft]
        copies, tables = self._arrays[number]
        for copy in copies:
            distance = bits[:, copy.select] @ copy.distances if len(copy.select) else copy.distances[0]
            seen = self.view.entry(copy.place, at, at - distance)
            bits[:, copy.targets] = store.get(np.maximum(seen, _first(seen)))[:, copy.sources]
        for i, memory in enumerate(layer.memories):
            bits[:, memory.targets] = store.get(self._read(number, i, memory, at, bits))[:, memory.sources]
        known = bits.copy()
        for one in tables:
            lines = known[:, one.inputs] @ one.weights
            bits[:, one.target] = known[:, one.lead] ^ 1 ^ one.values[one.numbers, lines]

    def _read(self, number: int, i: int, memory: SlotMemory, at: Numbers, bits: Bits) -> Numbers:
        """Return the row that wrote what each row reads of a memory, or -1."""

        def behind(kind: str, back: int) -> Numbers:
            seen = self.view.entry(ReadOp(number, kind, i), at, at - back)
            return np.where(seen < _first(seen), -1, seen)

        def slot(kind: str, address: Address) -> list[int]:
            rows = behind(kind, address.back)
            numbers = self._bits[False].get(rows)[:, address.bits] @ (1 << np.arange(len(address.bits)))
            return np.where(rows < 0, -1, numbers).tolist()

        place = ReadOp(number, "state", i)
        states = self._memories.setdefault(place, _Store(1 << len(memory.write.bits), -1, np.int64))
        values, writes, reads = behind("value", memory.back), slot("write", memory.write), slot("read", memory.read)
        found = []
        for row, write, read, value, kept in zip(
            at.tolist(), writes, reads, values.tolist(), bits[:, (memory.writes, *memory.clears)].tolist(), strict=True
        ):
            before = self.view.state(place, row, row - 1 if row % SPAN else -1)
            state = states.get(np.array([before]))
            if kept[1:] and all(kept[1:]):
                state[:] = -1
            if kept[0] and write >= 0:
                state[0, write] = value
            states.put(np.array([row]), state)
            found.append(int(state[0, read]) if read >= 0 else -1)
        return self.view.entry(ReadOp(number, "slot", i), at, np.array(found))


class Round(NamedTuple):
    """One round of speculative decoding: what was drafted, how much of it is accepted, and the tokens it emits."""

    drafts: list[int]
    accepted: int
    emitted: list[int]


def continuation(program: Program, prompt: Sequence[int], count: int, view: ReadView | None = None) -> list[int]:
    """Return the tokens that greedy decoding emits behind a prompt."""
    rows = BitRows(program, view)
    rows.extend(prompt)
    for _ in range(count):
        rows.extend([rows.following()])
    return rows.tokens[0][len(prompt) :]


def rounds(
    program: Program, prompt: Sequence[int], count: int, width: int, view: ReadView | None = None
) -> list[Round]:
    """Return so many rounds behind a prompt and the first token, which the prompt's own pass emits."""
    rows, found = BitRows(program, view), []
    rows.extend(prompt)
    rows.extend([rows.following()])
    for _ in range(count):
        drafts, emitted = rows.drafted(width), [rows.following()]
        while emitted[-1] == [*drafts, None][len(emitted) - 1]:
            rows.extend(emitted[-1:])
            emitted.append(rows.following())
        rows.extend(emitted[-1:])
        found.append(Round(drafts, len(emitted) - 1, emitted))
    return found
