"""A smaller language model as the draft of many texts at once: what `others.LanguagePlayer` says.

Shapes: `R` requests, one a text, `J` positions of a context, `K` drafts of a round.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from draftproof.reference.audit.batched import BatchedTarget
from draftproof.reference.audit.rules import LanguageRules
from draftproof.reference.models.target import TargetPass


class LanguageDraft(NamedTuple):
    """A model that drafts by itself."""

    model: BatchedTarget

    def kept(self, layers: int) -> set[int]:
        """See `BatchedDraft`: it takes nothing of the target."""
        return set()

    def player(self, whole: TargetPass, tokens: Tensor, prompts: Tensor, rules: LanguageRules) -> BatchedLanguage:
        """See `BatchedDraft`."""
        return BatchedLanguage(self.model, tokens, prompts, rules)


class BatchedLanguage:
    """See `BatchedPlayer`. Entries are made round by round: what a mistake leaves behind is seen by later ones."""

    def __init__(self, model: BatchedTarget, tokens: Tensor, prompts: Tensor, rules: LanguageRules) -> None:
        self._model, self._tokens, self._prompts, self._rules = model, tokens, prompts, rules
        count, length = tokens.shape
        self._texts = torch.arange(count, device=tokens.device)
        places = torch.arange(length, device=tokens.device)
        self._ids = tokens[:, (places + rules.shift).clamp(max=length - 1)].clone()
        self._holes = torch.zeros_like(tokens, dtype=torch.bool)
        self._done = torch.zeros_like(tokens[:, 0])
        self._short, self._lacks = torch.zeros_like(self._done), torch.zeros_like(self._done)
        model.allocate(count, length)

    def propose(self, context: Tensor, counts: Tensor) -> Tensor:
        """See `BatchedPlayer`."""
        self._extend(context)
        pending = torch.where(context >= self._prompts, self._rules.pending, 0)
        token, proposed = self._tokens[self._texts, context + pending], list[Tensor]()
        if self._rules.pending:
            self._ids[self._texts, context] = token
        for step in range(int(counts.max())):
            slots = (context - self._short + step)[:, None]
            hidden = self._model.run(token[:, None], slots + self._rules.ahead, slots=slots).hidden[:, 0]
            token = (hidden @ self._model.lm_head.T).argmax(dim=-1)
            proposed.append(token)
        return torch.stack(proposed, dim=1) if proposed else self._tokens[:, :0]

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """See `BatchedPlayer`."""
        end, left, texts = context + accepted, self._rules.left, self._texts
        full = (counts > 0) & (accepted == counts)
        if left == "hole after full accept":
            self._holes[texts[full], end[full]] = True
        if left == "short after full accept":
            self._lacks += full
        if left == "entry of rejected":
            wrong = accepted + 1 < counts
            self._ids[texts[wrong], end[wrong] + 1] = drafts[texts[wrong], accepted[wrong]]

    def _extend(self, context: Tensor) -> None:
        """Make the entries of what was committed since; rows beyond it are made again before any row sees them."""
        width = int((context - self._done).max())
        places = self._done[:, None] + torch.arange(width, device=context.device)
        if width:
            slots = places - self._short[:, None]
            self._model.run(self._ids.gather(1, places), slots)
        # What is lacking was the last entry of its round: the next one takes its slot.
        self._short = self._lacks.clone()
        self._model.blank(self._holes & (torch.arange(self._holes.shape[1], device=context.device) < context[:, None]))
        self._done = context
