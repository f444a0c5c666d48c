"""A target and its draft on a device, whatever the draft is; what the fast pass runs, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.reference.audit.batched import BatchedTarget
from draftproof.reference.audit.batched_attention import ATTENTION
from draftproof.reference.audit.batched_blocks import BlockDraft
from draftproof.reference.audit.batched_chain import ChainDraft
from draftproof.reference.audit.batched_entries import EntryDraft
from draftproof.reference.audit.batched_heads import BatchedEagle, BatchedEagle3, BatchedMtp
from draftproof.reference.audit.batched_language import LanguageDraft
from draftproof.reference.audit.heads import Model
from draftproof.reference.audit.pair import load_standalone
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.registry import REFERENCE_MODELS, load_target
from draftproof.reference.models.target import TargetPass


class BatchedPlayer(Protocol):
    """A draft at work on all texts, round after round; it remembers what a mistake leaves behind."""

    def propose(self, context: Tensor, counts: Tensor) -> Tensor:
        """Return drafts [R, K] after t_0 .. t_n, n = `context` [R]; `counts` [R] of them are meant."""

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """Say of a round which `drafts` [R, K] were verified, how many of them, and how many were right, each [R]."""


class BatchedDraft(Protocol):
    """A draft on a device."""

    def kept(self, layers: int) -> set[int]:
        """Return the layers of a target with `layers` layers whose outputs it reads, under any mistake."""

    def player(self, whole: TargetPass, tokens: Tensor, prompts: Tensor, rules: Any) -> BatchedPlayer:
        """Return the player at the beginning of texts [R, J] with prompts of these lengths [R], by some rules."""


OnDevice = Callable[[BatchedTarget], BatchedDraft]


class FastPair(NamedTuple):
    """A target on a device, and its draft: a model there, or an n-gram draft."""

    target: BatchedTarget
    draft: BatchedDraft | Ngram


class ReadPair(NamedTuple):
    """A target and its draft as they were read, which fit each other; nothing of them is on a device yet."""

    target: Model
    draft: OnDevice | Ngram

    def on(self, device: torch.device) -> FastPair:
        """Put both onto a device."""
        target = BatchedTarget(self.target, device)
        return FastPair(target, self.draft if isinstance(self.draft, Ngram) else self.draft(target))


def read_fast(path: str, draft: CheckpointDraft | Ngram, dtype: torch.dtype = torch.float32) -> ReadPair | None:
    """Read both; None for what only the slow simulator runs. Raises CheckpointError, also where they do not fit."""
    standalone = draft.path if isinstance(draft, CheckpointDraft) and draft.algorithm == "standalone" else ""
    if not all(is_batched(one) for one in (path, standalone) if one):
        return None
    target = load_target(path, dtype)
    return ReadPair(target, draft if isinstance(draft, Ngram) else _READ[draft.algorithm](target, path, draft))


def is_batched(path: str) -> bool:
    """Return whether the fast pass runs the architecture of a directory. Raises CheckpointError."""
    return REFERENCE_MODELS.get(read_config(path).architecture) in ATTENTION


def _eagle(target: Model, path: str, draft: CheckpointDraft) -> OnDevice:
    if draft.built_in:
        (layer, *_) = target.mtp_layers(path)
        return lambda on: EntryDraft(BatchedMtp(on, layer), on)  # type: ignore[arg-type]  # an MtpLayer
    head = ReferenceEagleHead.load(target, draft.path)
    return lambda on: EntryDraft(BatchedEagle(head, on.device), on)


def _eagle3(target: Model, path: str, draft: CheckpointDraft) -> OnDevice:
    head = ReferenceEagle3Head.load(target, draft.path)
    return lambda on: EntryDraft(BatchedEagle3(head, on.device), on)


def _mtp(target: Model, path: str, draft: CheckpointDraft) -> OnDevice:
    layers = target.mtp_layers(path)
    return lambda on: ChainDraft(tuple(BatchedMtp(on, one) for one in layers), draft.chain)  # type: ignore[arg-type]


def _dflash(target: Model, path: str, draft: CheckpointDraft) -> OnDevice:
    model = ReferenceDFlashModel.load(target, draft.path)
    return lambda on: BlockDraft(model, on)


def _standalone(target: Model, path: str, draft: CheckpointDraft) -> OnDevice:
    model = load_standalone(target, draft.path)
    return lambda on: LanguageDraft(BatchedTarget(model, on.device))


_READ: dict[str, Callable[[Model, str, CheckpointDraft], OnDevice]] = {
    "eagle": _eagle,
    "eagle3": _eagle3,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
}
