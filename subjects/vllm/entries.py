"""KV entries read from vLLM's cache, whatever the layout: it is learned by writing numbers and looking for them.

`P` page size, `N` key-value heads, `H` head size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from draftproof.subjects.vllm.taps import attention_layers


class LayerEntries:
    """Where in a page of one layer's cache the entry of each offset is: keys of all heads, then values of all heads."""

    def __init__(self, layer: Any, page_size: int) -> None:
        self._cache = cache_of(layer)
        self._page_size = page_size
        self._places = _learned(layer, self._cache, page_size)

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Return the entries in these slots, in float64, a row each."""
        pages, offsets = np.divmod(slots, self._page_size)
        found = [
            self._cache[int(page)].flatten().numpy()[self._places[offset]]
            for page, offset in zip(pages, offsets, strict=True)
        ]
        return np.stack(found).astype(np.float64)


def layers_of(model: Any, page_size: int) -> dict[str, LayerEntries]:
    """Return layer name -> where its entries are, in the order of the model; none of compressed attention."""
    plain = (layer for layer in attention_layers(model) if not hasattr(layer, "kv_lora_rank"))
    return {layer.layer_name: LayerEntries(layer, page_size) for layer in plain}


def cache_of(layer: Any) -> Any:
    """Return the tensor that is a layer's cache: older releases keep one for each virtual engine."""
    cache = layer.kv_cache
    return cache[0] if isinstance(cache, (list, tuple)) else cache


def _learned(layer: Any, cache: Any, page_size: int) -> np.ndarray:
    """Return, for each offset in a page, the places of its entry in the flattened page."""
    import torch

    heads, size = layer.num_kv_heads, layer.head_size
    width = heads * size
    numbers = torch.arange(1, 2 * page_size * width + 1, dtype=cache.dtype)
    if int(numbers[-1]) != 2 * page_size * width:
        raise ValueError(f"{cache.dtype} cannot hold {2 * page_size * width} numbers: expected float32 entries")
    keys, values = (x.reshape(page_size, heads, size).clone() for x in numbers.chunk(2))
    scratch = torch.zeros_like(cache[:2])
    slots = torch.arange(page_size, 2 * page_size, dtype=torch.int64)
    layer.impl.do_kv_cache_update(layer, keys, values, scratch, slots)
    place = np.zeros(len(numbers) + 1, dtype=np.int64)
    found = scratch[1].flatten().numpy().astype(np.int64)
    place[found] = np.arange(len(found))
    parts = (place[1:].reshape(2, page_size, width)[side] for side in (0, 1))
    return np.concatenate(tuple(parts), axis=1)
