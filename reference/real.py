"""Real models as the target and the draft of a scenario: float64 passes, remembered only under exactly their inputs.

A row of a longer float pass can differ in its last bit from that of a shorter one, so no prefix is ever reused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path

import numpy as np

from draftproof.properties.values.drafts import CheckpointDraft, Draft, Ngram
from draftproof.properties.values.scenario import Checkpoint, LayerType
from draftproof.reference.config import CheckpointError
from draftproof.reference.dense import Dense
from draftproof.reference.dflash_head import DFlashHead
from draftproof.reference.drafts import dflash, eagle, mtp, ngram, standalone
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.eagle_head import EagleHead
from draftproof.reference.hybrid import Hybrid
from draftproof.reference.hybrid_checkpoint import read_target_config
from draftproof.reference.hybrid_config import ARCHITECTURES as HYBRIDS
from draftproof.reference.hybrid_config import FULL, HybridConfig
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.mtp import Mtp
from draftproof.reference.real_drafts import Model, Named, RealBlock, RealChain, RealHead, RealModel, packed
from draftproof.reference.sparse import Sparse
from draftproof.reference.sparse_config import ARCHITECTURES as SPARSE
from draftproof.reference.sparse_config import SparseConfig
from draftproof.reference.sparse_mtp import SparseMtp

# States and outputs of every token of every pass: what a target may add to a memo before it computes again instead.
_REMEMBERED_BYTES = 1 << 29


class RealTarget:
    """A checkpoint of a language model; `hidden` is the state after the final norm, `kept` the layers whose outputs are
    asked for.

    Passes are remembered until their states and outputs take up `_REMEMBERED_BYTES`; further ones are computed whenever
    asked for.
    """

    def __init__(self, model: RealModel, name: Hashable, memo: Memo, kept: tuple[int, ...] = ()) -> None:
        self._model, self._known, self._room = model, memo.of((name, kept)), _REMEMBERED_BYTES
        self._kept = kept

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
        nothing = np.empty((len(tokens), 0))
        whole = Pass(
            hidden=done.hidden.numpy(),
            logits=done.logits.numpy(),
            kv=tuple(map(packed, done.kv)),
            states=tuple(layer.numpy() for layer in done.states),
            layers=tuple(x.numpy() if i in self._kept else nothing for i, x in enumerate(done.layers)),
        )
        self._room -= sum(layer.nbytes for layer in (*whole.states, *whole.layers))
        if self._room >= 0:
            self._known.keep_exact(tokens, whole)
        return whole


def load(model: Checkpoint, draft: Draft, memo: Memo) -> tuple[RealTarget, ReferenceDraft]:
    """Read both. Raises CheckpointError, and ValueError if the scenario's vocabulary is not the model's."""
    target = _target(model.path, _stamp(model.path))
    if target.config.vocab != model.vocab:
        raise ValueError(f"model.vocab is {model.vocab}, allowed: {target.config.vocab}, that of {model.path}")
    if isinstance(draft, Ngram):
        return RealTarget(target, model, memo), ngram.probe(draft, model, memo)
    if not isinstance(draft, CheckpointDraft):
        kind = draft.__struct_config__.tag
        raise ValueError(f"draft.kind is {kind}, allowed: checkpoint or ngram, for a checkpoint")
    made, kept = _BUILD[draft.algorithm](target, model, draft, memo)
    return RealTarget(target, model, memo, kept), made


# A draft, and the layers of the target whose outputs it is fed with.
_Made = tuple[ReferenceDraft, tuple[int, ...]]


def _eagle(target: RealModel, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    head: Model
    if draft.built_in:
        _no_path(draft)
        head = _mtp_layers(target, model)[0]
    else:
        head = EagleHead.load(target, draft.path) if draft.path else EagleHead.random(target, draft.seed)
    return eagle.ReferenceEagle(RealHead(head, target.config.hidden, Named(draft, model), memo)), ()


def _mtp(target: RealModel, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    _no_path(draft)
    chain = RealChain(_mtp_layers(target, model), target.config.hidden, Named(draft, model), memo)
    return mtp.ReferenceMtp(chain), ()


def _dflash(target: RealModel, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    block = RealBlock(DFlashHead.load(target, _directory(draft)), Named(draft, model), memo)
    return dflash.ReferenceDFlash(block), block.features


def _standalone(target: RealModel, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    path = _directory(draft)
    config = read_target_config(path)
    if isinstance(config, HybridConfig):
        raise CheckpointError(
            f"{path}: architectures is [{config.architecture!r}]; allowed for a standalone draft: one without layers of"
            " linear attention"
        )
    if config.vocab != target.config.vocab:
        wanted = target.config.vocab
        raise CheckpointError(f"{path}: vocab_size is {config.vocab}; allowed: {wanted}, that of the target")
    return standalone.ReferenceStandalone(RealTarget(_target(path, _stamp(path)), Named(draft, model), memo)), ()


_BUILD: dict[str, Callable[[RealModel, Checkpoint, CheckpointDraft, Memo], _Made]] = {
    "eagle": _eagle,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
}


def _mtp_layers(target: RealModel, model: Checkpoint) -> tuple[Model, ...]:
    if isinstance(target, Sparse):
        return SparseMtp.load(target, model.path)
    if isinstance(target, Hybrid):
        return (Mtp.load(target, model.path),)
    raise CheckpointError(
        f"{model.path}: architectures is [{target.config.architecture!r}]; allowed for a draft of its own layers: "
        + ", ".join((*HYBRIDS, *SPARSE))
    )


def _no_path(draft: CheckpointDraft) -> None:
    if draft.path:
        raise CheckpointError(f"draft.path is {draft.path!r}; allowed: '', MTP layers are in the target's directory")


def _directory(draft: CheckpointDraft) -> str:
    if draft.built_in:
        raise CheckpointError(f"draft.built_in is true; allowed for {draft.algorithm}: false")
    if not draft.path:
        raise CheckpointError(f"draft.path is ''; allowed for {draft.algorithm}: a checkpoint directory")
    return draft.path


@lru_cache(maxsize=2)
def _target(path: str, stamp: tuple[tuple[str, int, int], ...]) -> RealModel:
    config = read_target_config(path)
    if isinstance(config, SparseConfig):
        return Sparse.load(path)
    return Hybrid.load(path) if isinstance(config, HybridConfig) else Dense.load(path)


def _stamp(path: str) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of the directory does, so that a model rewritten in place is read again."""
    directory = Path(path)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
