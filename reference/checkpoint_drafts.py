"""Drafts of checkpoints: float64 passes of heads, chains and blocks, remembered only under exactly their inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from draftproof.reference.memo import Memo, Pass
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.layers import KV
from draftproof.reference.models.target import DraftLayer


class Named(NamedTuple):
    """A draft and the target that it is on, as a memo knows them."""

    draft: Hashable
    target: Hashable


class CheckpointHead:
    """An EAGLE-1 head on a checkpoint, or an MTP layer of the checkpoint itself."""

    def __init__(self, head: DraftLayer, width: int, name: Hashable, memo: Memo) -> None:
        self._head, self._width, self._known = head, width, memo.of(name)

    @property
    def width(self) -> int:
        """Of the target's hidden states."""
        return self._width

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """The causal pass over entries 0, 1, ..; entry i has the token of position i + 1."""
        inputs = (tokens, hidden.tobytes())
        if (known := self._known.exact(inputs)) is not None:
            return known
        done = self._head.forward(tokens, torch.from_numpy(np.array(hidden)))
        whole = Pass(done.g.numpy(), done.logits.numpy(), tuple(map(packed, done.kv)))
        self._known.keep_exact(inputs, whole)
        return whole


class CheckpointChain:
    """The MTP layers of a checkpoint, each of which hands on the state that its logits are of."""

    chain = True

    def __init__(self, layers: Sequence[DraftLayer], width: int, name: Named, memo: Memo) -> None:
        self._width = width
        self._layers = [CheckpointHead(layer, width, (name, index), memo) for index, layer in enumerate(layers)]

    @property
    def width(self) -> int:
        """Of the target's hidden states."""
        return self._width

    @property
    def layers(self) -> int:
        """Their number."""
        return len(self._layers)

    def forward(self, layer: int, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """One layer over entries 0, 1, ..; entry i has the token of position i + 1 + layer.

        Raises ValueError for a layer that the checkpoint has not.
        """
        if not 0 <= layer < self.layers:
            raise ValueError(f"steps needs MTP layer {layer}, allowed: 0 .. {self.layers - 1}, those of the checkpoint")
        return self._layers[layer].forward(tokens, hidden)


class CheckpointBlock:
    """A DFlash draft on a checkpoint."""

    def __init__(self, head: ReferenceDFlashModel, name: Named, memo: Memo) -> None:
        self._head, self._config = head, head.config
        self._blocks = CheckpointHead(head, self.width, name, memo)

    @property
    def width(self) -> int:
        """Of the features of a position."""
        return self._config.hidden_size * len(self.features)

    @property
    def layers(self) -> int:
        """Of the draft."""
        return self._config.num_hidden_layers

    @property
    def features(self) -> tuple[int, ...]:
        """Layers of the target whose outputs are its context."""
        return self._config.target_layer_ids

    @property
    def mask(self) -> int:
        """The id of a masked token."""
        return self._config.mask_token_id

    @property
    def rows(self) -> int:
        """The rows of a block that the draft was made for."""
        return self._config.block_size

    def entries(self, features: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
        """Context entries [T, entry] of every layer from features [T, F] of positions `first`, .."""
        return tuple(map(packed, self._head.entries(torch.from_numpy(np.array(features)), first)))

    def forward(self, ids: tuple[int, ...], features: np.ndarray) -> Pass:
        """A block of ids at positions n, n + 1, .. after features [n, F]."""
        return self._blocks.forward(ids, features)


def packed(kv: KV) -> np.ndarray:
    """A layer's (k, v) as one entry a row: [T, M * Hk + M * Hv], keys first."""
    return torch.cat([part.flatten(1) for part in kv], dim=1).numpy()
