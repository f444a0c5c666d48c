"""KV entries, read from SGLang's pools by slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_JUNK = 997.0


class EntryPool:
    """The KV pool of one model runner: keys of all heads, then values of all heads, a row for each slot."""

    def __init__(self, runner: Any) -> None:
        pool = runner.token_to_kv_pool
        self._pool = getattr(pool, "full_kv_pool", pool)  # a hybrid has one for its attention layers
        self._layers = len(self._pool.k_buffer)

    def poison(self) -> None:
        """Fill all slots with values that must not be read."""
        for buffer in (*self._pool.k_buffer, *self._pool.v_buffer):
            buffer.fill_(_JUNK)

    def read(self, slots: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each layer with the entries of these slots, in float64, a row each."""
        import torch

        for layer in range(self._layers):
            sides = (self._pool.k_buffer[layer], self._pool.v_buffer[layer])
            at = torch.as_tensor(slots, device=sides[0].device)
            rows = torch.cat([side[at].flatten(1) for side in sides], dim=1)
            yield layer, rows.double().cpu().numpy()
