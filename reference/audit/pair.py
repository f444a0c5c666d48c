"""A target with a draft, read for an audit, and the texts that it decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.base import invalid
from draftproof.properties.formats.round_log import LoggedText
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.reference.audit.entries import EntryPlayer
from draftproof.reference.audit.heads import Model, PlayedEagle, PlayedEagle3
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.audit.others import BlockPlayer, ChainPlayer, LanguagePlayer, LookupPlayer
from draftproof.reference.audit.play import Player, Text
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.registry import load_target

MakePlayer = Callable[[Text, Any], Player]


_NEAR = 1e-3
"""A token of a log is the target's own if its logit is as near to the best, as a share of the largest."""


def own_choices(prompt: int, tokens: tuple[int, ...], logits: Tensor) -> tuple[int, ...]:
    """Return a text as the target chooses each token behind the prompt: the text's own where it is as good."""
    rows = logits[prompt - 1 : len(tokens) - 1]
    chosen = rows.gather(1, torch.tensor(tokens[prompt:], device=logits.device)[:, None])[:, 0]
    is_own = rows.max(dim=1).values - chosen <= _NEAR * rows.abs().max(dim=1).values
    best = zip(tokens[prompt:], is_own.tolist(), rows.argmax(dim=1).tolist(), strict=True)
    return (*tokens[:prompt], *(token if own else other for token, own, other in best))


def count_mismatches(tokens: tuple[int, ...], own: tuple[int, ...]) -> int:
    """Return how many tokens of a text are not what the target chooses there."""
    return sum(a != b for a, b in zip(tokens, own, strict=True))


class AuditedPair(NamedTuple):
    """A target, and what makes its draft a player of a text by some rules."""

    target: Model
    make: MakePlayer

    def player(self, text: Text, mistake: Mistake) -> Player:
        """Return the draft at the beginning of a text, with a mistake."""
        return self.make(text, mistake.rules)

    def decode(self, prompt: tuple[int, ...], count: int) -> Text:
        """Return the text of plain greedy decoding, one pass from token zero a token."""
        tokens = prompt
        for _ in range(count):
            tokens = (*tokens, int(self.target.forward(tokens).logits[-1].argmax()))
        return Text(len(prompt), len(prompt), tokens, self.target.forward(tokens), tokens)

    def read(self, logged: LoggedText) -> Text:
        """Return a text that another engine decoded."""
        whole = self.target.forward(logged.tokens)
        prompt, tokens = len(logged.prompt), logged.tokens
        return Text(prompt, logged.context, tokens, whole, own_choices(prompt, tokens, whole.logits))


def load_pair(path: str, draft: CheckpointDraft | Ngram) -> AuditedPair:
    """Read target and draft in float64. Raises CheckpointError, also where they do not fit."""
    target = load_target(path)
    if isinstance(draft, Ngram):
        return AuditedPair(target, lambda text, rules: LookupPlayer(draft, text, rules))
    return AuditedPair(target, _MAKE[algorithm(draft)](target, path, draft))


def _eagle(target: Model, path: str, draft: CheckpointDraft) -> MakePlayer:
    head = target.mtp_layers(path)[0] if draft.built_in else ReferenceEagleHead.load(target, draft.path)
    model = PlayedEagle(target, head)  # type: ignore[arg-type]  # a layer of MTP is an MtpLayer
    return lambda text, rules: EntryPlayer(model, text, rules)


def _eagle3(target: Model, path: str, draft: CheckpointDraft) -> MakePlayer:
    model = PlayedEagle3(target, ReferenceEagle3Head.load(target, draft.path))
    return lambda text, rules: EntryPlayer(model, text, rules)


def _mtp(target: Model, path: str, draft: CheckpointDraft) -> MakePlayer:
    layers = target.mtp_layers(path)
    return lambda text, rules: ChainPlayer(layers, draft.chain, text, rules)


def _dflash(target: Model, path: str, draft: CheckpointDraft) -> MakePlayer:
    model = ReferenceDFlashModel.load(target, draft.path)
    return lambda text, rules: BlockPlayer(model, text, rules)


def load_standalone(target: Model, path: str) -> Model:
    """Read a smaller language model that drafts for a target. Raises CheckpointError, also where it does not fit."""
    config = read_config(path)
    if config.has_states:
        expected = "a standalone draft without linear attention"
        raise invalid(path, "architectures", list(config.architectures), expected)
    if config.vocab_size != target.config.vocab_size:
        raise invalid(path, "vocab_size", config.vocab_size, f"{target.config.vocab_size}, as in the target")
    return load_target(path, target.dtype)


def _standalone(target: Model, path: str, draft: CheckpointDraft) -> MakePlayer:
    model = load_standalone(target, draft.path)
    return lambda text, rules: LanguagePlayer(model, text, rules)


_MAKE: dict[str, Callable[[Model, str, CheckpointDraft], MakePlayer]] = {
    "eagle": _eagle,
    "eagle3": _eagle3,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
}
