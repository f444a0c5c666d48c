"""Checkpoints as target and draft of a scenario; a pass is remembered only under exactly its inputs.

Passes are in float64; passes in float32 only tell how far rounding carries (reference/rounding.py).

A row of a longer float pass can differ in its last bit from the same row of a shorter one, so no prefix is ever reused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.base import invalid
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft, Draft, KvCacheDtype, Ngram
from draftproof.properties.values.fp8 import FP8, check_architecture
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.checkpoint_drafts import (
    CheckpointBlock,
    CheckpointChain,
    CheckpointHead,
    CheckpointWideHead,
    Named,
    packed_entries,
    stored_by,
)
from draftproof.reference.drafts import dflash, eagle, eagle3, mtp, ngram, standalone
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.memo import ALL_SURE, Memo, Pass
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.fp8 import Fp8, scales_of
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import DraftLayer, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import tensor_names

Model = ReferenceCheckpointTarget[Any]

# States and outputs of every token of every pass: what a target may add to a memo before it computes again instead.
_REMEMBERED_BYTES = 1 << 29


class RememberingTarget:
    """A checkpoint of a language model that remembers its passes.

    `hidden` of a pass is the state after the final norm; `kept` names the layers whose outputs it has. Passes are
    remembered until their states and outputs take up `_REMEMBERED_BYTES`; further ones are computed whenever they are
    asked for.
    """

    def __init__(
        self, model: Model, name: Hashable, memo: Memo, kept: tuple[int, ...] = (), fp8: Fp8 | None = None
    ) -> None:
        self._fp8 = fp8
        self._model, self._memo, self._known, self._room = model, memo, memo.of((name, kept)), _REMEMBERED_BYTES
        self._kept, self.layer_types, self.widened = kept, model.layer_types, 1.0

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Return the causal pass over tokens at positions 0, 1, .."""
        model, store = stored_by(self._fp8, self._model, tokens, self._memo)
        inputs: tuple[Hashable, ...] = (tokens, store.name) if store else tokens
        if (known := self._known.exact(inputs)) is not None:
            return self._memo.note(known)
        done = model.forward(tokens)
        nothing = np.empty((len(tokens), 0))
        whole = Pass(
            hidden=done.hidden.numpy(),
            logits=done.logits.numpy(),
            kv=tuple(map(packed_entries, done.kv)),
            states=tuple(layer.numpy() for layer in done.states),
            layers=tuple(x.numpy() if i in self._kept else nothing for i, x in enumerate(done.layers)),
            before_norm=done.layers[-1].numpy(),
            gap=done.gap,
            unsure=store.unsure if store else ALL_SURE,
        )
        self._room -= sum(layer.nbytes for layer in (*whole.states, *whole.layers))
        if self._room >= 0:
            self._known.keep_exact(inputs, whole)
        return self._memo.note(whole)


def load(
    model: Checkpoint, draft: Draft, memo: Memo, dtype: torch.dtype = torch.float64, nudge: int = 0
) -> tuple[RememberingTarget, ReferenceDraft]:
    """Read both, to compute in `dtype`; with a `nudge`, from 1 up, the target rounds otherwise for each.

    Raises CheckpointError, and ValueError if the scenario's vocabulary is not the model's.
    """
    target = _target(model.path, _stamp(model.path), dtype)
    if target.config.vocab_size != model.vocab:
        raise ValueError(
            f"invalid model.vocab {model.vocab}: expected {target.config.vocab_size}, that of {model.path}"
        )
    fp8 = _fp8(model.kv_cache_dtype, "model.kv_cache_dtype", target, model.path, "target")
    if isinstance(draft, Ngram):
        return RememberingTarget(_nudged(target, nudge), model, memo, fp8=fp8), ngram.probe(draft, model, memo)
    if not isinstance(draft, CheckpointDraft):
        kind = draft.__struct_config__.tag
        raise ValueError(f"invalid draft.kind {kind!r}: expected checkpoint or ngram, since the model is a checkpoint")
    made, kept = _BUILD[draft.algorithm](target, model, draft, memo)
    return RememberingTarget(_nudged(target, nudge), model, memo, kept, fp8), made


def _fp8(dtype: KvCacheDtype, field: str, model: Model, path: str, name: str) -> Fp8 | None:
    """Return how a language model keeps its entries. Raises CheckpointError."""
    if dtype != FP8:
        return None
    check_architecture(field, model.config.architecture, path)
    prefixes = [f"model.layers.{i}.self_attn" for i in range(model.config.num_hidden_layers)]
    return Fp8(scales_of(path, prefixes), name, 0)


def _fp8_of_head(draft: CheckpointDraft) -> Fp8 | None:
    """Return how a head of one layer keeps its entries; its entry 0 has token 1. Raises CheckpointError."""
    if draft.kv_cache_dtype != FP8:
        return None
    names = tensor_names(draft.path) if draft.path else frozenset()
    middle = any(name.startswith("midlayer.") for name in names)
    return Fp8(scales_of(draft.path, ["midlayer.self_attn" if middle else "layers.0.self_attn"]), "draft", 1)


def _nudged(target: Model, seed: int) -> Model:
    """Return the target with each element of its embedding changed by up to one rounding."""
    if not seed:
        return target
    made, table = copy(target), target.embedding
    noise = 2 * torch.rand(table.shape, generator=torch.Generator().manual_seed(seed), dtype=table.dtype) - 1
    made.embedding = table * (1 + torch.finfo(table.dtype).eps * noise)
    return made


# A draft, and the layers of the target whose outputs it is fed with.
_Made = tuple[ReferenceDraft, tuple[int, ...]]


def _eagle(target: Model, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    head: DraftLayer
    if draft.built_in:
        _no_path(draft)
        head = target.mtp_layers(model.path)[0]
    elif draft.path:
        head = ReferenceEagleHead.load(target, draft.path)
    else:
        head = ReferenceEagleHead.random(target, draft.seed)
    name, width = Named(draft, model), target.config.hidden_size
    return eagle.ReferenceEagle(CheckpointHead(head, width, name, memo, head.takes, _fp8_of_head(draft))), ()


def _mtp(target: Model, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    _no_path(draft)
    layers, name = target.mtp_layers(model.path), Named(draft, model)
    chain = CheckpointChain(layers, target.config.hidden_size, name, memo, chain=draft.chain)
    return mtp.ReferenceMtp(chain), ()


def _dflash(target: Model, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    block = CheckpointBlock(ReferenceDFlashModel.load(target, _directory(draft)), Named(draft, model), memo)
    return dflash.ReferenceDFlash(block), block.features


def _eagle3(target: Model, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    made = ReferenceEagle3Head.load(target, _directory(draft))
    head = CheckpointWideHead(made, Named(draft, model), memo, _fp8_of_head(draft))
    return eagle3.ReferenceEagle3(head), head.features


def _standalone(target: Model, model: Checkpoint, draft: CheckpointDraft, memo: Memo) -> _Made:
    path = _directory(draft)
    config = read_config(path)
    if config.has_states:
        raise invalid(path, "architectures", list(config.architectures), "a standalone draft without linear attention")
    if config.vocab_size != target.config.vocab_size:
        raise invalid(path, "vocab_size", config.vocab_size, f"{target.config.vocab_size}, as in the target")
    own = _target(path, _stamp(path), target.dtype)
    fp8 = _fp8(draft.kv_cache_dtype, "draft.kv_cache_dtype", own, path, "draft")
    return standalone.ReferenceStandalone(RememberingTarget(own, Named(draft, model), memo, fp8=fp8)), ()


_BUILD: dict[str, Callable[[Model, Checkpoint, CheckpointDraft, Memo], _Made]] = {
    "eagle": _eagle,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
    "eagle3": _eagle3,
}


def _no_path(draft: CheckpointDraft) -> None:
    if draft.path:
        raise CheckpointError(
            f"invalid draft.path {draft.path!r}: expected '', MTP layers are in the target's directory"
        )


def _directory(draft: CheckpointDraft) -> str:
    if draft.built_in:
        raise CheckpointError(f"invalid draft.built_in True: expected False for {draft.algorithm}")
    if not draft.path:
        raise CheckpointError(f"invalid draft.path '': expected a checkpoint directory for {draft.algorithm}")
    return draft.path


@lru_cache(maxsize=4)
def _target(path: str, stamp: tuple[tuple[str, int, int], ...], dtype: torch.dtype) -> Model:
    return load_target(path, dtype)


def _stamp(path: str) -> tuple[tuple[str, int, int], ...]:
    """Return a value that changes with the directory's files, so that a model rewritten in place is read again."""
    directory = Path(path)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
