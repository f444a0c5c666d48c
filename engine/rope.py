"""Three positions a token (M-RoPE), for a prompt with images and for everything that follows it.

Every launch has the rows and indices of its tokens, so positions are looked up by these. Buffers of three positions in
every launch would have to be filled again in each step, by every draft. `R` request rows, each with as many columns as
positions in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.engine.stages import ImageSpan, PrefillRow


def prompt_positions(length: int, images: Sequence[ImageSpan]) -> tuple[list[tuple[int, int, int]], int]:
    """Return the three positions of each token of a prompt, and the delta: what follows is at its place plus that."""
    positions: list[tuple[int, int, int]] = []
    following = 0
    for image in images:
        text = image.start - len(positions)
        positions += [(following + place,) * 3 for place in range(text)]
        base = following + text
        for place in range(image.count):
            frame, inside = divmod(place, image.height * image.width)
            row, column = divmod(inside, image.width)
            positions.append((base + frame, base + row, base + column))
        following = base + max(image.frames, image.height, image.width)
    positions += [(following + place,) * 3 for place in range(length - len(positions))]
    return positions, max(map(max, positions)) + 1 - length


class RopeTable:
    """The positions of every column of every request row: int64 [R, 3, columns], which kernels and graphs read."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def begin(self, rows: Sequence[PrefillRow]) -> None:
        """Fill the rows of texts that begin, to their ends and on."""
        for row in rows:
            positions, delta = prompt_positions(len(row.request.prompt), row.request.images)
            columns = torch.arange(self._table.shape[2], device=self._table.device) + delta
            self._table[row.req_row] = columns
            known = torch.tensor(positions, dtype=torch.int64, device=self._table.device)
            self._table[row.req_row, :, : len(positions)] = known.T
