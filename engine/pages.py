"""Which request owns which page: the free list and the request-to-page table. Page 0 and row 0 are for padding.

Page 0 in a column of a live request stands for a page that no window reaches any more: it has been freed.

`P` page size in slots; position p of a request lies in page `table[row, p // P]`, slot page * P + p % P.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.engine.upload import uploaded


class PagePool:
    """A stack of free pages. `order` lists pages 1 .. in the order in which they are handed out."""

    def __init__(self, order: Sequence[int]) -> None:
        self._free = list(reversed(order))
        self._all = frozenset(order)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        return self._free.pop()

    def give_back(self, pages: Sequence[int]) -> None:
        self._free.extend(reversed(pages))

    def check(self, owned: Sequence[int]) -> None:
        """Raise RuntimeError unless free and owned pages together are all pages, each once."""
        both = [*self._free, *owned]
        if len(both) != len(self._all) or set(both) != self._all:
            raise RuntimeError(
                f"page pool out of balance: {len(self._free)} free, {len(owned)} owned, {len(self._all)} in all"
            )


class PageTable:
    """Pages of each request row, on the device for kernels and mirrored on the host for planning."""

    def __init__(self, page_table: Tensor) -> None:
        self.device = page_table
        self.pages: list[list[int]] = [[] for _ in range(page_table.shape[0])]
        self._free = list(range(page_table.shape[0] - 1, 0, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def take_row(self) -> int:
        return self._free.pop()

    def begin(self, row: int, pages: Sequence[int]) -> None:
        """Give a row its first pages, which others may have, too."""
        self.pages[row] = list(pages)
        self.device[row, : len(pages)] = torch.tensor(pages, dtype=torch.int64, device=self.device.device)

    def grow(self, wanted: Sequence[tuple[int, int]], pool: PagePool) -> None:
        """Give each (row, count) pages until it has `count`, and send the new entries to the device at once."""
        places, taken = list[int](), list[int]()
        for row, count in wanted:
            pages = self.pages[row]
            while len(pages) < count:
                places.append(row * self.device.shape[1] + len(pages))
                taken.append(pool.take())
                pages.append(taken[-1])
        if taken:
            sent = uploaded({"places": places, "pages": taken}, self.device.device)
            self.device.view(-1).scatter_(0, sent["places"], sent["pages"])

    def owned(self, row: int) -> tuple[int, ...]:
        """Return the pages that a row has."""
        return tuple(page for page in self.pages[row] if page)

    def drop(self, row: int, columns: int) -> tuple[int, ...]:
        """Give back the pages of the first columns of a row, which stay empty; returns them."""
        dropped = [column for column in range(min(columns, len(self.pages[row]))) if self.pages[row][column]]
        pages = tuple(self.pages[row][column] for column in dropped)
        for column in dropped:
            self.pages[row][column] = 0
        if dropped:
            self.device[row, dropped[0] : dropped[-1] + 1] = 0
        return pages

    def release(self, row: int) -> tuple[int, ...]:
        """Give back the row; returns its pages."""
        pages = self.owned(row)
        self.pages[row] = []
        self._free.append(row)
        return pages
