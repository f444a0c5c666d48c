"""Memory under test: poison in what nobody owns, and what each launch changed.

`S` KV slots. A changed slot is named (region, slot): region 0 target KV, 1 draft KV, 2 anything else of the arena
(then the slot is a byte offset).
"""

from __future__ import annotations

import torch

from draftproof.engine.arena import Arena, Region
from draftproof.engine.engine import Engine

POISON_BYTES = (0xFF, 0x5A)
REGIONS = {"target": 0, "draft": 1}
ELSEWHERE = 2


class MemoryWatch:
    """Poisons the arena of an engine and compares it before and after each launch."""

    def __init__(self, engine: Engine, poison: int) -> None:
        self._engine, self._arena, self._poison = engine, engine.arena, poison
        self._slots = (engine.config.pages + 1) * engine.config.page_size
        self._before = self._words(self._arena).clone()

    @staticmethod
    def _words(arena: Arena) -> torch.Tensor:
        return arena.memory.view(torch.int64)

    def poison_all(self) -> None:
        """Poison every value tensor, and the table beyond row 0 with pages that are in range."""
        for region in self._arena.regions:
            if region.name == "table":
                continue
            self._arena.memory[region.start : region.start + region.size] = POISON_BYTES[self._poison]
        table = self._arena["table"]
        for row in range(1, table.shape[0]):
            self.poison_row(row)
        self._arena["first"].fill_(self._poison)

    def poison_row(self, row: int) -> None:
        """Page 0, or a page that may be another request's: both are in range, neither is this row's."""
        table, pages = self._arena["table"], self._engine.config.pages
        columns = torch.arange(table.shape[1], device=table.device)
        table[row] = (columns + row) % pages + 1 if self._poison else 0

    def poison_pages(self, pages: tuple[int, ...]) -> None:
        """Overwrite freed pages in every layer of both models."""
        size = self._engine.config.page_size
        slots = torch.tensor([page * size + i for page in pages for i in range(size)], device=self._arena.memory.device)
        for region in self._arena.regions:
            if region.name.split(".")[0] in REGIONS:
                raw = self._arena.memory[region.start : region.start + region.size].view(self._slots, -1)
                raw[slots] = POISON_BYTES[self._poison]

    def before(self) -> None:
        self._before.copy_(self._words(self._arena))

    def changed(self) -> tuple[tuple[int, int], ...]:
        """(region, slot) of everything that changed since `before`, ascending."""
        different = torch.nonzero(self._words(self._arena) != self._before).flatten()
        if not len(different):
            return ()
        return tuple(sorted({self._name(8 * word) for word in different.tolist()}))

    def _name(self, offset: int) -> tuple[int, int]:
        region = self._region(offset)
        model = region.name.split(".")[0] if region else ""
        if region is None or model not in REGIONS:
            return (ELSEWHERE, offset)
        return (REGIONS[model], (offset - region.start) * self._slots // region.size)

    def _region(self, offset: int) -> Region | None:
        for region in self._arena.regions:
            if region.start <= offset < region.start + max(region.size, 8):
                return region
        return None
