"""What a token depends on: the entries and memories that were read on the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from draftproof.tracer.oracle import BitRows, Numbers, ReadOp, ReadView
from draftproof.tracer.program import CopyHead, Program, SlotMemory, Table


class Read(NamedTuple):
    """An operation in a row read another row: with the kind "slot" what a memory kept of it, or nothing (-1)."""

    op: ReadOp
    at: int
    seen: int


def reads_of(program: Program, tokens: Sequence[int]) -> frozenset[Read]:
    """Return every read that the token behind these depends on; rows are numbered by position.

    Of a table it depends on all inputs, though few of them may matter here.
    """
    seen: dict[tuple[ReadOp, int], int] = {}

    def entry(op: ReadOp, at: Numbers, wanted: Numbers) -> Numbers:
        seen.update({(op, row): max(found, -1) for row, found in zip(at.tolist(), wanted.tolist(), strict=True)})
        return wanted

    BitRows(program, ReadView(entry=entry)).extend(tokens)
    writers: dict[int, tuple[int, int, CopyHead | SlotMemory | Table]] = {}
    for number, layer in enumerate(program.layers):
        writers |= {bit: (number, i, copy) for i, copy in enumerate(layer.copies) for bit in copy.targets}
        writers |= {bit: (number, i, memory) for i, memory in enumerate(layer.memories) for bit in memory.targets}
        writers |= {table.target: (number, i, table) for i, table in enumerate(layer.tables)}
    # The layer that reads comes third: what it or a later one writes over an embedding is not what it reads.
    left = [(len(tokens) - 1, bit, len(program.layers)) for bit in program.outputs]
    known, found = set(left), set[Read]()
    while left:
        row, bit, before = left.pop()
        if bit not in writers:
            continue
        number, i, writer = writers[bit]
        if isinstance(writer, Table) and number >= before:
            continue
        needed: list[tuple[int, int]] = []
        if isinstance(writer, Table):
            needed = [(row, one) for one in (writer.lead, *writer.inputs)]
        elif isinstance(writer, CopyHead):
            op = ReadOp(number, "copy", i)
            found.add(Read(op, row, max(seen[op, row], 0)))
            needed = [(row, one) for one in writer.select]
            needed.append((max(seen[op, row], 0), writer.sources[writer.targets.index(bit)]))
        else:
            op = ReadOp(number, "slot", i)
            written = seen[op, row]
            needed = [(written, writer.sources[writer.targets.index(bit)])]
            if Read(op, row, written) not in found:
                found.add(Read(op, row, written))
                needed += [(row - writer.read.back, one) for one in writer.read.bits]
                # Later rows would have written there, or cleared the slot.
                for later in range(written + writer.back if written >= 0 else 0, row + 1):
                    needed += [(later, one) for one in (writer.writes, *writer.clears)]
                    needed += [(later - writer.write.back, one) for one in writer.write.bits]
        fresh = {(*one, number) for one in needed if one[0] >= 0} - known
        known |= fresh
        left += fresh
    return frozenset(found)
