"""Real models as the target and head of a scenario: float64 passes, remembered only under exactly their inputs.

A row of a longer float pass can differ in its last bit from that of a shorter one, so no prefix is ever reused.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, LayerType
from draftproof.reference.config import CheckpointError
from draftproof.reference.dense import Dense
from draftproof.reference.dense_layer import KV
from draftproof.reference.eagle_head import EagleHead
from draftproof.reference.hybrid import Hybrid
from draftproof.reference.hybrid_checkpoint import read_target_config
from draftproof.reference.hybrid_config import ARCHITECTURES, FULL, HybridConfig
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.mtp import Mtp

# States of every token of every pass: what a target may add to a memo before it computes again instead.
_REMEMBERED_BYTES = 1 << 29


class RealTarget:
    """A checkpoint of a language model; `hidden` is the state after the final norm.

    Passes are remembered until their states take up `_REMEMBERED_BYTES`; further ones are computed whenever asked for.
    """

    def __init__(self, model: Dense | Hybrid, name: Checkpoint, memo: Memo) -> None:
        self._model, self._known, self._room = model, memo.of(name), _REMEMBERED_BYTES

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer."""
        config = self._model.config
        return config.types if isinstance(config, HybridConfig) else (FULL,) * config.layers

    def forward(self, tokens: tuple[int, ...]) -> Pass:
        """The causal pass over tokens at positions 0, 1, .."""
        if (known := self._known.exact(tokens)) is not None:
            return known
        done = self._model.forward(tokens)
        whole = Pass(
            hidden=done.hidden.numpy(),
            logits=done.logits.numpy(),
            kv=tuple(map(_entries, done.kv)),
            states=tuple(layer.numpy() for layer in done.states),
        )
        self._room -= sum(layer.nbytes for layer in whole.states)
        if self._room >= 0:
            self._known.keep_exact(tokens, whole)
        return whole


class RealHead:
    """An EAGLE-1 head on a checkpoint, or the MTP layer of the checkpoint itself."""

    def __init__(self, head: EagleHead | Mtp, name: tuple[CheckpointDraft, Checkpoint], memo: Memo) -> None:
        self._head, self._known = head, memo.of(name)

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """The causal pass over entries 0, 1, ..; entry i has the token of position i + 1."""
        inputs = (tokens, hidden.tobytes())
        if (known := self._known.exact(inputs)) is not None:
            return known
        done = self._head.forward(tokens, torch.from_numpy(np.array(hidden)))
        whole = Pass(done.g.numpy(), done.logits.numpy(), tuple(map(_entries, done.kv)))
        self._known.keep_exact(inputs, whole)
        return whole


def load(model: Checkpoint, head: CheckpointDraft, memo: Memo) -> tuple[RealTarget, RealHead]:
    """Read both. Raises CheckpointError, and ValueError if the scenario's vocabulary is not the model's."""
    target = _target(model.path, _stamp(model.path))
    if target.config.vocab != model.vocab:
        raise ValueError(f"model.vocab is {model.vocab}, allowed: {target.config.vocab}, that of {model.path}")
    return RealTarget(target, model, memo), RealHead(_head(target, model, head), (head, model), memo)


def _head(target: Dense | Hybrid, model: Checkpoint, head: CheckpointDraft) -> EagleHead | Mtp:
    if not head.built_in:
        return EagleHead.load(target, head.path) if head.path else EagleHead.random(target, head.seed)
    if not isinstance(target, Hybrid):
        allowed = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"head.built_in is true for a {target.config.architecture}; allowed for: {allowed}")
    return Mtp.load(target, model.path)


def _entries(kv: KV) -> np.ndarray:
    """A layer's (k, v) as one entry a row: [T, M*H + M*H], keys first."""
    return torch.cat([part.flatten(1) for part in kv], dim=1).numpy()


@lru_cache(maxsize=2)
def _target(path: str, stamp: tuple[tuple[str, int, int], ...]) -> Dense | Hybrid:
    return Hybrid.load(path) if isinstance(read_target_config(path), HybridConfig) else Dense.load(path)


def _stamp(path: str) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of the directory does, so that a model rewritten in place is read again."""
    directory = Path(path)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
