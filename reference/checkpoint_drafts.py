"""Drafts of checkpoints: passes of heads, chains and blocks, remembered only under exactly their inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from draftproof.properties.values.drafts import StateOf
from draftproof.reference.memo import ALL_SURE, Memo, Pass
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.fp8 import Fp8, Fp8Store
from draftproof.reference.models.layers import KV
from draftproof.reference.models.target import DraftLayer, PassLayer


class Named(NamedTuple):
    """A draft and the target that it is on, as a memo knows them."""

    draft: Hashable
    target: Hashable


M = TypeVar("M")


def stored_by(fp8: Fp8 | None, model: M, tokens: tuple[int, ...], memo: Memo) -> tuple[M, Fp8Store | None]:
    """Return a model with the memory of one pass over tokens, and that memory; as it is unless it keeps FP8."""
    if fp8 is None:
        return model, None
    made, store = copy(model), fp8.store(tokens, memo)
    made.store = store  # type: ignore[attr-defined]  # of the architectures and drafts that `properties.values.fp8` has
    return made, store


class CheckpointHead:
    """An EAGLE-1 head on a checkpoint, or an MTP layer of the checkpoint itself; see `ReferenceHead`."""

    ids: tuple[int, ...] | None = None

    def __init__(
        self,
        head: PassLayer,
        width: int,
        name: Hashable,
        memo: Memo,
        takes: StateOf = "after_norm",
        fp8: Fp8 | None = None,
    ) -> None:
        self._fp8 = fp8
        self._head, self._memo, self._known, self.width, self.takes = head, memo, memo.of(name), width, takes

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Return the causal pass over entries 0, 1, ..; entry i has the token of position i + 1."""
        head, store = stored_by(self._fp8, self._head, tokens, self._memo)
        inputs: tuple[Hashable, ...] = (tokens, hidden.tobytes(), *(store.name if store else ()))
        if (known := self._known.exact(inputs)) is not None:
            return self._memo.note(known)
        done = head.forward(tokens, torch.from_numpy(np.array(hidden)))
        unsure = store.unsure if store else ALL_SURE
        whole = Pass(
            done.g.numpy(), done.logits.numpy(), tuple(map(packed_entries, done.kv)), gap=done.gap, unsure=unsure
        )
        self._known.keep_exact(inputs, whole)
        return self._memo.note(whole)


class CheckpointWideHead(CheckpointHead):
    """An EAGLE-3 head on a checkpoint; see `ReferenceWideHead`."""

    def __init__(self, head: ReferenceEagle3Head, name: Named, memo: Memo, fp8: Fp8 | None = None) -> None:
        super().__init__(head, head.fc.shape[1], name, memo, fp8=fp8)
        self._fc, self.features, self.ids = head.fc, head.features, head.ids

    def join(self, features: np.ndarray) -> np.ndarray:
        """Features [T, F] -> states of the head's own width."""
        joined: np.ndarray = (torch.from_numpy(np.array(features)) @ self._fc.T).numpy()
        return joined


class CheckpointChain:
    """The MTP layers of a checkpoint, chained or not; see `ReferenceChain`."""

    ids: tuple[int, ...] | None = None

    def __init__(self, layers: Sequence[DraftLayer], width: int, name: Named, memo: Memo, *, chain: bool) -> None:
        self.width, self.layers, self.chain, self.takes = width, len(layers), chain, layers[0].takes
        self._heads = [CheckpointHead(x, width, (name, i), memo) for i, x in enumerate(layers)]

    def forward(self, layer: int, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """One layer over entries 0, 1, ..; entry i has the token of position i + 1 + layer.

        Raises ValueError for a layer that the checkpoint has not.
        """
        if not 0 <= layer < self.layers:
            raise ValueError(f"steps needs MTP layer {layer}: expected 0 .. {self.layers - 1}, those of the checkpoint")
        return self._heads[layer].forward(tokens, hidden)


class CheckpointBlock:
    """A DFlash draft on a checkpoint; see `ReferenceBlock`."""

    def __init__(self, head: ReferenceDFlashModel, name: Named, memo: Memo) -> None:
        config = head.config
        self.width = config.hidden_size * len(config.target_layer_ids)
        self.layers, self.features = config.num_hidden_layers, config.target_layer_ids
        self.mask = config.mask_token_id
        self._head, self._blocks = head, CheckpointHead(head, self.width, name, memo)

    def entries(self, features: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
        """Context entries [T, entry] of every layer from features [T, F] of positions `first`, .."""
        return tuple(map(packed_entries, self._head.entries(torch.from_numpy(np.array(features)), first)))

    def forward(self, ids: tuple[int, ...], features: np.ndarray) -> Pass:
        """Return the pass over a block of ids at positions n, n + 1, .. after features [n, F]."""
        return self._blocks.forward(ids, features)


def packed_entries(kv: KV) -> np.ndarray:
    """Return a layer's (k, v) with one entry a row: [T, M * Hk + M * Hv], keys first."""
    return torch.cat([part.flatten(1) for part in kv], dim=1).numpy()
