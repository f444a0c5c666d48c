"""Memory under test: poison in what belongs to no request, and what each launch changed."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.properties.values.observed import MemoryRegion, WriteSet, WrittenPlace

POISON_BYTES = (0xFF, 0x5A)
_REGIONS = {
    "target": MemoryRegion.TARGET,
    "draft": MemoryRegion.DRAFT,
    "states": MemoryRegion.STATES,
    "intermediate": MemoryRegion.INTERMEDIATE,
    "checkpoint": MemoryRegion.CHECKPOINTS,
}
# How many leading dimensions of a tensor of each region come before that of its slots, and how many name a place.
_AXES = {"target": (0, 1), "draft": (0, 1), "states": (1, 1), "intermediate": (1, 2), "checkpoint": (1, 1)}
_STATE_AXES = {"states.inputs": (2, 1), "states.gates": (2, 1), "states.cursor": (0, 1)}
_INDICES = ("page_table", "states.cursor")
_REGION_OF = {int(region): region for region in MemoryRegion}
_OTHER, _INTERMEDIATE = int(MemoryRegion.OTHER), int(MemoryRegion.INTERMEDIATE)
_CHECKPOINTS = int(MemoryRegion.CHECKPOINTS)
_SHIFT = 48
"""A place is compared as one number: its region, shifted by this many bits, plus its offset."""
_MOST_WORDS = 1 << 18
"""Of a larger memory the places of words are computed as they change, not all at the start."""


class MemoryWatch:
    """Poisons the arena of an engine and compares it before and after each launch."""

    def __init__(self, engine: Engine, poison: int) -> None:
        self._engine, self._arena, self._poison = engine, engine.arena, poison
        regions = self._arena.regions
        self._starts = np.array([region.start for region in regions])
        self._sizes = np.array([region.size for region in regions])
        places = [self._places(region.name) for region in regions]
        self._count = np.array([count for count, _ in places])
        self._slot_bytes = np.array([size for _, size in places])
        # The second checkpoint of a state slot is reported as the slot's, too.
        self._turn = engine.states.checkpoints.second if engine.states else 0
        # A word never spans two slots.
        self._word = torch.int64 if not np.any(self._slot_bytes % 8) else torch.uint8
        self._before = self._arena.memory.clone()
        self._astray: set[int] = set()
        self._codes = np.array([_REGIONS.get(region.name.split(".")[0], MemoryRegion.OTHER) for region in regions])
        words = self._before.numel() // self._word.itemsize
        self._named = self._names(np.arange(words)) if words <= _MOST_WORDS else None

    def _places(self, name: str) -> tuple[int, int]:
        """Return the places of a tensor and the bytes of each; a tensor of no region is one place."""
        tensor, kind = self._arena[name], name.split(".")[0]
        if kind not in _REGIONS:
            return 1, max(1, tensor.numel() * tensor.element_size())
        skip, axes = _STATE_AXES.get(name, _AXES[kind])
        return prod(tensor.shape[skip : skip + axes]), max(1, prod(tensor.shape[skip + axes :])) * tensor.element_size()

    def poison_all(self) -> None:
        """Poison every value tensor, and indices beyond row 0 of the table with what is in range."""
        for region in self._arena.regions:
            if region.name not in _INDICES:
                self._arena.memory[region.start : region.start + region.size] = POISON_BYTES[self._poison]
        page_table = self._arena["page_table"]
        for row in range(1, page_table.shape[0]):
            self.poison_row(row)
        for region in self._arena.regions:
            if region.name in self._engine.draft.token_memory:
                self._arena[region.name].fill_(self._poison)
        if self._engine.states:
            self.poison_states(tuple(range(self._engine.config.request_slots + 1)))
        self._before.copy_(self._arena.memory)

    def poison_row(self, row: int) -> None:
        """Fill a row with page 0, or with pages in range that are not what the row will be given."""
        page_table, pages = self._arena["page_table"], self._engine.config.pages
        columns = torch.arange(page_table.shape[1], device=page_table.device)
        page_table[row] = (columns + row) % pages + 1 if self._poison else 0

    def poison_pages(self, pages: tuple[int, ...]) -> None:
        """Overwrite freed pages in every layer of both models."""
        size = self._engine.config.page_size
        self._poison_places(("target", "draft"), [page * size + i for page in pages for i in range(size)])

    def poison_states(self, slots: tuple[int, ...]) -> None:
        """Overwrite freed state slots and their checkpoints in every layer."""
        self._poison_places(("states",), list(slots))
        second = [self._turn + slot for slot in slots] if self._engine.config.checkpoint_turns > 1 else []
        self._poison_places(("checkpoint",), [*slots, *second])

    def poison_checkpoints(self, slots: tuple[int, ...]) -> None:
        """Overwrite checkpoints that were evicted, in every layer."""
        self._poison_places(("checkpoint",), list(slots))

    def _poison_places(self, kinds: tuple[str, ...], places: list[int]) -> None:
        at = torch.tensor(places, dtype=torch.int64, device=self._arena.memory.device)
        for region, count, size in zip(self._arena.regions, self._count, self._slot_bytes, strict=True):
            if region.name.split(".")[0] in kinds:
                # What the poison overwrites is no news at the next launch.
                for memory in (self._arena.memory, self._before):
                    raw = memory[region.start : region.start + region.size]
                    if region.name in _INDICES:
                        raw.view(torch.int64).view(int(count), -1)[at] = self._poison
                    else:
                        raw.view(-1, int(count), int(size))[:, at] = POISON_BYTES[self._poison]

    def before(self) -> None:
        """Note the start of a launch; what changed in a pool since the last one counts as its own."""
        self._astray = {place for place in self._take_changes() if place >> _SHIFT != _OTHER}

    def changed(self, rows: int) -> WriteSet:
        """Return everything that a launch of live `rows` changed, except slot 0 and states after padding rows."""
        changes = self._astray.union(self._take_changes())
        live = rows * self._engine.config.most_width
        named = [(place >> _SHIFT, place & (1 << _SHIFT) - 1) for place in sorted(changes)]
        return tuple(
            WrittenPlace(_REGION_OF[code], place) for code, place in named if code != _INTERMEDIATE or place < live
        )

    def _take_changes(self) -> set[int]:
        """Return what changed since the last call."""
        now, before = self._arena.memory, self._before
        whole = now.view(torch.int64), before.view(torch.int64)
        words = changed = _different(*whole)
        if not changed.size:
            return set()
        if self._word is torch.uint8:
            each = (8 * words[:, None] + np.arange(8)).ravel()
            words = each[_different(now[each], before[each])]
        _copy_words(*whole, changed)
        names = self._names(words) if self._named is None else self._named[words]
        # Most neighbours are words of one place.
        return {int(names[0]), *names[1:][names[1:] != names[:-1]].tolist()} - {-1}

    def _names(self, words: np.ndarray) -> np.ndarray:
        """Return the place of each word; -1 for slot 0, which belongs to no single request."""
        offsets = self._word.itemsize * words
        index = np.searchsorted(self._starts, offsets, side="right") - 1
        inside = (index >= 0) & (offsets - self._starts[index] < self._sizes[index])
        known = inside & (self._codes[index] != _OTHER)
        places = (offsets - self._starts[index]) // self._slot_bytes[index] % self._count[index]
        if self._turn:
            places = np.where(self._codes[index] == _CHECKPOINTS, places % self._turn, places)
        anyones = known & (places == 0) & (self._codes[index] != _INTERMEDIATE)
        codes = np.where(known, self._codes[index], _OTHER)
        return np.where(anyones, -1, (codes << _SHIFT) + np.where(known, places, offsets))


def _copy_words(now: Tensor, before: Tensor, places: np.ndarray) -> None:
    """Copy what differs; on a GPU a copy of all is faster than sending the places there."""
    if now.is_cpu:
        before.numpy()[places] = now.numpy()[places]
    else:
        before.copy_(now)


def _different(now: Tensor, before: Tensor) -> np.ndarray:
    """Return where two vectors differ; on a CPU numpy finds that several times faster than torch."""
    if now.is_cpu:
        return np.flatnonzero(now.numpy() != before.numpy())
    return torch.nonzero(now != before).flatten().cpu().numpy()
