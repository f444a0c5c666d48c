"""KV entries and recurrent states, read from SGLang's pools by slot."""

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
        self._layers = {place: place for place in range(len(self._pool.k_buffer))}
        if pool is not self._pool and not runner.is_draft_worker:
            self._layers = dict(pool.full_attention_layer_id_mapping)

    def poison(self) -> None:
        """Fill all slots with values that must not be read."""
        for buffer in (*self._pool.k_buffer, *self._pool.v_buffer):
            buffer.fill_(_JUNK)

    def read(self, slots: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each layer with the entries of these slots, in float64, a row each."""
        import torch

        for layer, place in self._layers.items():
            sides = (self._pool.k_buffer[place], self._pool.v_buffer[place])
            at = torch.as_tensor(slots, device=sides[0].device)
            rows = torch.cat([side[at].flatten(1) for side in sides], dim=1)
            yield layer, rows.double().cpu().numpy()


class StatePool:
    """The recurrent states of a hybrid: the committed ones by slot, and those after each verify row by place.

    `L` layers, `B` rows of a batch, `W` rows of a verify. A state is the convolution's window, oldest input first, then
    the matrix of each value head, which SGLang keeps with values first (S-GDN-8).
    """

    def __init__(self, requests: Any) -> None:
        self._requests, self._cache = requests, requests.mamba_pool.mamba_cache
        self.layers = tuple(requests.mamba_map)

    def slots(self, req_pool_indices: Any) -> Any:
        """Return the state slot [B] of each row."""
        return self._requests.get_mamba_indices(req_pool_indices)

    def poison(self) -> None:
        """Fill all slots with values that must not be read."""
        cache = self._cache
        for buffer in (*cache.conv, cache.temporal, *cache.intermediate_conv_window, cache.intermediate_ssm):
            buffer.fill_(_JUNK)

    def committed(self, slots: Any) -> Any:
        """Return the committed states [L, B, N] of these slots, as they are on the current stream."""
        return _joined(self._cache.conv[0][:, slots], self._cache.temporal[:, slots])

    def intermediate(self, rows: int) -> Any:
        """Return the states [L, B, W, N] after each verify row, as they are on the current stream."""
        return _joined(self._cache.intermediate_conv_window[0][:, :rows], self._cache.intermediate_ssm[:, :rows])


def _joined(window: Any, matrix: Any) -> Any:
    import torch

    parts = (window.transpose(-1, -2).flatten(-2), matrix.transpose(-1, -2).flatten(-3))
    return torch.cat([part.double() for part in parts], dim=-1)
