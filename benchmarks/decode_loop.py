"""Greedy decoding with the draft off: one graph per batch size, each step feeding its tokens to the next on the device.

`B` requests of a batch, all of one length.
"""

from __future__ import annotations

from collections.abc import Callable

import bench
import torch
from decode_model import Setup

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.models.base import AttentionMetadata
from draftproof.engine.models.llama import Llama

PAGE = 16


class DecodeLoop:
    """`prefill` starts every request anew, `step` makes one token for each: [B] token ids in `ids`."""

    def __init__(self, dense: Llama, given: Setup, batch: int) -> None:
        self._dense, self._batch, self._device = dense, batch, given.device
        self._max_len = -(-(given.prompt + given.new + 1) // PAGE) * PAGE
        self._cache = self._new_cache()
        self.ids, self._lengths, self._counts = torch.zeros((3, batch), dtype=torch.int64, device=self._device)
        self._rows = torch.arange(1, batch + 1, device=self._device)
        self.logits = torch.empty(0)
        self.step: Callable[[], None] = self._eager_step
        self.prefill(torch.zeros((batch, given.prompt), dtype=torch.int64, device=self._device))
        if self._device == "cuda":
            self.step = bench.captured(self._eager_step, warm=lambda: [self._eager_step() for _ in range(2)])

    def prefill(self, prompts: torch.Tensor) -> None:
        """Run prompts [B, n]; their first tokens are in `ids`, and the logits that gave them in `logits` [B, V]."""
        length = prompts.shape[1]
        rows = self._rows.repeat_interleave(length)
        where = self._where(rows, torch.arange(length, device=self._device).repeat(self._batch))
        hidden = self._dense.forward(prompts.reshape(-1), where, self._cache)
        self.logits = self._dense.logits(hidden.view(self._batch, length, -1)[:, -1])
        kernels.greedy_choice(self.ids, self.logits)
        self._lengths.fill_(length)

    def _eager_step(self) -> None:
        hidden = self._dense.forward(self.ids, self._where(self._rows, self._lengths), self._cache)
        kernels.greedy_choice(self.ids, self._dense.logits(hidden))
        self._lengths.add_(1)

    def _where(self, rows: torch.Tensor, lengths: torch.Tensor) -> AttentionMetadata:
        positions, slots = torch.empty_like(lengths), torch.empty_like(lengths)
        live = self._counts if rows is self._rows else torch.zeros_like(rows)
        kernels.assign_slots(
            positions[:, None], slots[:, None], self._cache.page_table, rows, lengths, live, PAGE, self._max_len
        )
        return AttentionMetadata(rows, positions, slots)

    def _new_cache(self) -> PagedCache:
        shape, per_row = self._dense.cache_shape, self._max_len // PAGE
        slots = (self._batch * per_row + 1) * PAGE
        pools = [
            torch.zeros((2, slots, shape.kv_heads, shape.key_dim), dtype=shape.dtype, device=self._device)
            for _ in range(shape.layers)
        ]
        table = torch.zeros((self._batch + 1, per_row), dtype=torch.int64, device=self._device)
        # Pages in a shuffled order, as they are in a pool that has been in use.
        pages = torch.randperm(self._batch * per_row, generator=torch.Generator().manual_seed(0)) + 1
        table[1:] = pages.view(self._batch, per_row).to(self._device)
        return PagedCache(tuple(pool[0] for pool in pools), tuple(pool[1] for pool in pools), table, PAGE)
