"""Real models as the target and head of a scenario: float64 passes, remembered only under exactly their inputs.

A row of a longer float pass can differ in its last bit from that of a shorter one, so no prefix is ever reused.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from draftproof.properties.values.scenario import Checkpoint, CheckpointHead
from draftproof.reference.dense import Dense
from draftproof.reference.dense_layer import KV
from draftproof.reference.eagle_head import EagleHead
from draftproof.reference.memo import Memo, Pass


class RealTarget:
    """A Llama or Qwen3 checkpoint; `hidden` is the state after the final norm."""

    def __init__(self, dense: Dense, name: Checkpoint, memo: Memo) -> None:
        self._dense, self._known = dense, memo.of(name)

    def forward(self, tokens: tuple[int, ...]) -> Pass:
        """The causal pass over tokens at positions 0, 1, .."""
        if (known := self._known.exact(tokens)) is not None:
            return known
        done = self._dense.forward(tokens)
        whole = Pass(done.hidden.numpy(), done.logits.numpy(), tuple(map(_entries, done.kv)))
        self._known.keep_exact(tokens, whole)
        return whole


class RealEagleHead:
    """An EAGLE-1 head on a checkpoint."""

    def __init__(self, head: EagleHead, name: tuple[CheckpointHead, Checkpoint], memo: Memo) -> None:
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


def load(model: Checkpoint, head: CheckpointHead, memo: Memo) -> tuple[RealTarget, RealEagleHead]:
    """Read both. Raises CheckpointError, and ValueError if the scenario's vocabulary is not the model's."""
    dense = _dense(model.path, _stamp(model.path))
    if dense.config.vocab != model.vocab:
        raise ValueError(f"model.vocab is {model.vocab}, allowed: {dense.config.vocab}, that of {model.path}")
    eagle = EagleHead.load(dense, head.path) if head.path else EagleHead.random(dense, head.seed)
    return RealTarget(dense, model, memo), RealEagleHead(eagle, (head, model), memo)


def _entries(kv: KV) -> np.ndarray:
    """A layer's (k, v) as one entry a row: [T, M*H + M*H], keys first."""
    return torch.cat([part.flatten(1) for part in kv], dim=1).numpy()


@lru_cache(maxsize=2)
def _dense(path: str, stamp: tuple[tuple[str, int, int], ...]) -> Dense:
    return Dense.load(path)


def _stamp(path: str) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of the directory does, so that a model rewritten in place is read again."""
    directory = Path(path)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
