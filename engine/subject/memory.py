"""Memory under test: poison in what nobody owns, and what each launch changed.

`S` KV slots. A changed slot is named (region, slot): region 0 target KV, 1 draft KV, 2 anything else of the arena
(then the slot is a byte offset).
"""

from __future__ import annotations

import numpy as np
import torch

from draftproof.engine.engine import Engine

POISON_BYTES = (0xFF, 0x5A)
REGIONS = {"target": 0, "draft": 1}
ELSEWHERE = 2


class MemoryWatch:
    """Poisons the arena of an engine and compares it before and after each launch."""

    def __init__(self, engine: Engine, poison: int) -> None:
        self._engine, self._arena, self._poison = engine, engine.arena, poison
        self._slots = (engine.config.pages + 1) * engine.config.page_size
        regions = self._arena.regions
        self._starts = np.array([region.start for region in regions])
        self._slot_bytes = np.array([max(1, region.size // self._slots) for region in regions])
        # A word never spans two slots.
        self._word = torch.int64 if not np.any(self._slot_bytes % 8) else torch.uint8
        self._before = self._words().clone()
        self._codes = np.array([REGIONS.get(region.name.split(".")[0], ELSEWHERE) for region in regions])

    def _words(self) -> torch.Tensor:
        return self._arena.memory.view(self._word)

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
        """Page 0 everywhere, or pages that may be another request's: in range, and not what the row will be given."""
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
        self._before.copy_(self._words())

    def changed(self) -> tuple[tuple[int, int], ...]:
        """(region, slot) of everything that changed since `before`, ascending; slot 0 is anyone's and left out."""
        words = torch.nonzero(self._words() != self._before).flatten().cpu().numpy()
        if not len(words):
            return ()
        offsets = self._word.itemsize * words
        index = np.searchsorted(self._starts, offsets, side="right") - 1
        slots = (offsets - self._starts[index]) // self._slot_bytes[index]
        known = (index >= 0) & (slots < self._slots) & (self._codes[index] != ELSEWHERE)
        codes = np.where(known, self._codes[index], ELSEWHERE)[~known | (slots > 0)]
        places = np.where(known, slots, offsets)[~known | (slots > 0)]
        return tuple((code, place) for code, place in sorted(set(zip(codes.tolist(), places.tolist(), strict=True))))
