"""Memory of one model: paged KV, and states beside it.

`S` slots (pages * page size), `N` kv heads, `H` head sizes, `T` packed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.arena import Arena
from draftproof.engine.kv_transfer import Entries
from draftproof.engine.models.base import (
    AttentionMetadata,
    CacheShape,
    MixedStates,
    RecurrentWeights,
    TokenInput,
    VerifyStates,
)
from draftproof.engine.models.config_fields import FULL_ATTENTION, LINEAR_ATTENTION, SLIDING
from draftproof.engine.probes import Probes
from draftproof.engine.states.base import StateCache
from draftproof.kernels.eager_codes import read_back
from draftproof.kernels.eager_fp8 import decoded

# The most positions of a table for which one program a head is faster than several kernels.
TOKEN_POSITIONS = 1024


def pool_shapes(name: str, shape: CacheShape, slots: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the arena entries of a cache: `name`.k.i [S, N, Hk] and `name`.v.i [S, N, Hv] for each layer i.

    Of codes there are `name`.k_scale.i and `name`.v_scale.i [S, N] beside them.
    """
    entries: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for layer in range(shape.layers):
        entries[f"{name}.k.{layer}"] = ((slots, shape.kv_heads, shape.key_dim), shape.stored)
        entries[f"{name}.v.{layer}"] = ((slots, shape.kv_heads, shape.value_dim), shape.stored)
        if shape.codes:
            for part in ("k_scale", "v_scale"):
                entries[f"{name}.{part}.{layer}"] = ((slots, shape.kv_heads), shape.dtype)
    return entries


def pools_of(arena: Arena, name: str, shape: CacheShape) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the keys and values of each layer of a cache, from the arena."""
    keys = tuple(arena[f"{name}.k.{layer}"] for layer in range(shape.layers))
    return keys, tuple(arena[f"{name}.v.{layer}"] for layer in range(shape.layers))


def layout_of(arena: Arena, name: str, shape: CacheShape, mrope: bool) -> dict[str, Any]:
    """Return what a cache has besides pools: windows, scales of codes, and the table of three positions a token."""
    layers = range(shape.layers if shape.codes else 0)
    scales = tuple((arena[f"{name}.k_scale.{layer}"], arena[f"{name}.v_scale.{layer}"]) for layer in layers)
    table = arena["mrope_positions"] if mrope else None
    return {"windows": shape.windows, "scales": scales, "fp8": shape.fp8, "rope_table": table}


@dataclass(frozen=True)
class PagedCache:
    """Key and value pools of every layer, and the page table that says which slots a request owns.

    `windows` are how many positions a row of each layer sees, 0 for all; empty where every layer sees all. `scales` are
    for the keys and the values of every layer, if these are codes; `fp8` is the same, one number each, if they are
    bytes of e4m3fn. `rope_table` [R, 3, C] has the positions of every column of a request row, if a token has three.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    page_table: Tensor
    page_size: int
    windows: tuple[int, ...] = field(default=(), kw_only=True)
    scales: tuple[tuple[Tensor, Tensor], ...] = field(default=(), kw_only=True)
    fp8: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)
    rope_table: Tensor | None = field(default=None, kw_only=True)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """Write the new entries, then attend to positions 0 .. last_visible (else positions): [T, Nq, Hv].

        In a layer with a window these begin as many positions before the token's own, itself included.
        """
        self.write(layer, k, v, metadata)
        keys, values = self.keys[layer], self.values[layer]
        last = metadata.positions if metadata.last_visible is None else metadata.last_visible
        out = q.new_empty((q.shape[0], q.shape[1], values.shape[2]))
        page_table, req_rows, page_size = self.page_table, metadata.req_rows, self.page_size
        window = self.window(layer)
        first = metadata.positions - (window - 1) if window else None
        if metadata.visible_slots is not None and metadata.ages is not None:
            # A table of its own for every token, of pages of one slot.
            page_table, page_size = metadata.visible_slots, 1
            if window:
                page_table, first = torch.where(metadata.ages < window, page_table, -1), None
            req_rows, last = (
                torch.arange(len(req_rows), device=q.device),
                torch.full_like(last, page_table.shape[1] - 1),
            )
        if self.fp8 or self.scales:
            first = torch.zeros_like(last) if first is None else first
        if self.fp8:
            of_layer = (page_size, scale, *self.fp8[layer])
            kernels.fp8_attention(out, q, keys, values, page_table, req_rows, first, last, *of_layer)
        elif self.scales:
            pools = (keys, values, *self.scales[layer])
            kernels.quantised_attention(out, q, *pools, page_table, req_rows, first, last, page_size, scale)
        elif first is not None:
            kernels.windowed_attention(out, q, keys, values, page_table, req_rows, first, last, page_size, scale)
        else:
            kernels.paged_attention(out, q, keys, values, page_table, req_rows, last, page_size, scale)
        return out

    def attend_token(self, layer: int, token: TokenInput, metadata: AttentionMetadata, scale: float) -> Tensor | None:
        """Do what `attend` does and all before it, for the only token: [1, Nq, H].

        None in a layer with a window or of codes, for a row that sees something else, and where a table is long: the
        choice is by shapes and by what the metadata has, the same at replays.
        """
        if not self._takes_token(layer, metadata):
            return None
        keys, values = self.keys[layer], self.values[layer]
        heads = token.weight.shape[0] // keys.shape[2] - 2 * keys.shape[1]
        out = token.x.new_empty((1, heads, keys.shape[2]))
        of_token = (token.x, token.norm, token.weight, token.eps, token.inv_freq, metadata.positions)
        where = (metadata.slot_mapping, self.page_table, metadata.req_rows, self.page_size)
        kernels.token_attention(out, keys, values, *of_token, *where, scale)
        return out

    def _takes_token(self, layer: int, metadata: AttentionMetadata) -> bool:
        if self.fp8 or self.scales or self.window(layer):
            return False
        if metadata.last_visible is not None or metadata.visible_slots is not None:
            return False
        return self.page_table.shape[1] * self.page_size <= TOKEN_POSITIONS

    def rope_positions(self, metadata: AttentionMetadata) -> Tensor:
        """Return the three positions of each token [T, 3], or its only one [T, 1]."""
        if self.rope_table is None:
            return metadata.positions.unsqueeze(1)
        return self.rope_table[metadata.req_rows, :, metadata.positions]

    def window(self, layer: int) -> int:
        """Return how many positions a row of a layer sees, 0 for all."""
        return self.windows[layer] if self.windows else 0

    def write(self, layer: int, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> None:
        """Write the new entries and attend to nothing."""
        pools = self.keys[layer], self.values[layer]
        if self.fp8:
            kernels.fp8_write(*pools, k, v, metadata.slot_mapping, *self.fp8[layer])
        elif self.scales:
            kernels.quantised_write(*pools, *self.scales[layer], k, v, metadata.slot_mapping)
        else:
            kernels.kv_write(*pools, k, v, metadata.slot_mapping)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Move entries of every layer from slots to slots, with their scales."""
        for keys, values in zip(self.keys, self.values, strict=True):
            kernels.kv_move(keys, values, source, target)
        for k_scales, v_scales in self.scales:
            kernels.kv_move(k_scales.unsqueeze(2), v_scales.unsqueeze(2), source, target)

    def read(self, layer: int, slots: Tensor) -> Tensor:
        """Return the entries of slots [T] as they are read, keys before values: [T, N * Hk + N * Hv]."""
        keys, values = self.keys[layer][slots], self.values[layer][slots]
        if self.fp8:
            # In float64 the products are exact.
            keys, values = (decoded(x, torch.float64) * s for x, s in zip((keys, values), self.fp8[layer], strict=True))
        if self.scales:
            k_scales, v_scales = self.scales[layer]
            keys, values = read_back(keys, k_scales[slots]), read_back(values, v_scales[slots])
        return torch.cat([keys.flatten(1), values.flatten(1)], dim=1)

    def copies(self, slots: Tensor) -> Entries:
        """Return copies of the entries of slots [T], as they are stored."""
        scales = tuple((of_keys[slots], of_values[slots]) for of_keys, of_values in self.scales)
        return Entries(tuple(keys[slots] for keys in self.keys), tuple(values[slots] for values in self.values), scales)

    def install(self, slots: Tensor, entries: Entries) -> None:
        """Store copies of entries in slots [T]."""
        for pools, copies in ((self.keys, entries.keys), (self.values, entries.values)):
            for pool, copy in zip(pools, copies, strict=True):
                pool[slots] = copy
        for scales, of_entries in zip(self.scales, entries.scales, strict=True):
            for pool, copy in zip(scales, of_entries, strict=True):
                pool[slots] = copy

    def keep_path(self, metadata: AttentionMetadata, accept_index: Tensor) -> Tensor:
        """Return the rows of a tree that were accepted as they are: there are no states here."""
        return accept_index

    def recur(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """Raise TypeError: there are no states here."""
        raise TypeError(f"linear layer {layer} of a model that declares none")


@dataclass(frozen=True)
class TargetCache(PagedCache):
    """A target's cache, with the states of its linear layers if it has any.

    Which memory a layer uses is decided by what the layer calls, and by no list.
    """

    states: StateCache | None
    probes: Probes

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """See PagedCache."""
        self.probes.on_layer(SLIDING if self.window(layer) else FULL_ATTENTION, layer)
        return super().attend(layer, q, k, v, metadata, scale)

    def attend_token(self, layer: int, token: TokenInput, metadata: AttentionMetadata, scale: float) -> Tensor | None:
        """See PagedCache; where that does nothing, `attend` tells of the layer."""
        if self._takes_token(layer, metadata):
            self.probes.on_layer(FULL_ATTENTION, layer)
        return super().attend_token(layer, token, metadata, scale)

    def keep_path(self, metadata: AttentionMetadata, accept_index: Tensor) -> Tensor:
        """Keep what the states have of the rows [B, P] of a tree that were accepted; return how they know these."""
        states = metadata.states.verify if isinstance(metadata.states, MixedStates) else metadata.states
        if self.states is None or not isinstance(states, VerifyStates):
            return accept_index
        return self.states.keep_path(states.state_slots, accept_index)

    def recur(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """Through the states that `metadata` names, of a verify or of a prefill: [T, U, E]."""
        self.probes.on_layer(LINEAR_ATTENTION, layer)
        if self.states is None:
            return super().recur(layer, weights, x, a, b, metadata)
        if isinstance(metadata.states, VerifyStates):
            return self.states.verify(layer, weights, x, a, b, metadata.states)
        if metadata.states is None:
            raise TypeError(f"linear layer {layer} was not told which states its tokens belong to")
        if isinstance(metadata.states, MixedStates):
            return self._recur_mixed(self.states, layer, weights, x, a, b, metadata.states)
        return self.states.prefill(layer, weights, x, a, b, metadata.states)

    def _recur_mixed(
        self,
        states: StateCache,
        layer: int,
        weights: RecurrentWeights,
        x: Tensor,
        a: Tensor,
        b: Tensor,
        mixed: MixedStates,
    ) -> Tensor:
        """Take the tokens of each kind out, run them apart, and put what comes of them where they were: [T, U, E]."""
        at, own = mixed.verify_tokens, mixed.prefill_tokens
        verified = states.verify(layer, weights, x[at], a[at], b[at], mixed.verify)
        out = verified.new_empty((x.shape[0], *verified.shape[1:]))
        out[at[mixed.live]] = verified[mixed.live]
        out[own] = states.prefill(layer, weights, x[own], a[own], b[own], mixed.prefill)
        return out
