"""What an engine is built for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of pools and batches. `steps` drafts at most (verify width steps + 1); `pages` and `request_slots` without
    the reserved ones; `sizes` are batch sizes that launches are padded to; `capture` says whether they are graphs."""

    steps: int
    page_size: int
    pages: int
    request_slots: int
    max_len: int
    max_batch: int
    chunk: int
    sizes: tuple[int, ...] = ()
    capture: bool = True
    row_seed: int = 0
    page_order: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        return self.steps + 1

    @property
    def pages_per_row(self) -> int:
        return -(-self.max_len // self.page_size)
