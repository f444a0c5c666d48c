"""Chained multi-token prediction over many texts at once, as `others.ChainPlayer` defines it.

Entries of committed tokens are made once, layer by layer. The entries of a round's last rows, which consume its own
drafts, are made in the round. Shapes: `R` requests, one a text, `J` positions of a context, `T` rows of a round, `K`
drafts of a round, `D` hidden size, `N` key-value heads, `H` head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from draftproof.reference.audit.batched import in_turns
from draftproof.reference.audit.batched_attention import attend
from draftproof.reference.audit.batched_heads import BatchedMtp
from draftproof.reference.audit.rules import ChainRules
from draftproof.reference.models.target import TargetPass


class ChainDraft(NamedTuple):
    """The layers of a target, chained or each on the target's states."""

    layers: tuple[BatchedMtp, ...]
    chain: bool

    def kept(self, layers: int) -> set[int]:
        """See `BatchedDraft`."""
        return self.layers[0].kept(layers)

    def player(self, whole: TargetPass, tokens: Tensor, prompts: Tensor, rules: ChainRules) -> BatchedChain:
        """See `BatchedDraft`."""
        return BatchedChain(self, whole, tokens, rules)


class _Known(NamedTuple):
    """Of a layer over committed tokens: the states [R, J, D] that it takes, and its entries [R, J, N, H]."""

    given: Tensor
    k: Tensor
    v: Tensor


class BatchedChain:
    """See `BatchedPlayer`."""

    def __init__(self, draft: ChainDraft, whole: TargetPass, tokens: Tensor, rules: ChainRules) -> None:
        self._draft, self._tokens, self._rules = draft, tokens, rules
        self._chain = draft.chain != rules.other_way
        length, device = tokens.shape[1], tokens.device
        self._texts = torch.arange(len(tokens), device=device)[:, None]
        self._places = torch.arange(length, device=device)
        self._states = draft.layers[0].given(whole, rules)
        self._known = list[_Known]()
        given = self._states[:, (self._places + rules.row).clamp(0, length - 1)]
        for number in range(len(draft.layers)):
            done = [self._over_text(number, tokens[here], given[here]) for here in in_turns(len(tokens), length)]
            k, v, handed = map(torch.cat, zip(*done, strict=True))
            self._known.append(_Known(given, k, v))
            given = handed if self._chain else given

    def propose(self, context: Tensor, counts: Tensor) -> Tensor:
        """See `BatchedPlayer`."""
        proposed, handed = list[Tensor](), self._states[:, :0]
        for number in range(min(int(counts.max()), len(self._draft.layers))):
            # The last of these rows is the context's last; those before it consume drafts, too.
            places = context[:, None] - 1 + torch.arange(-number, 1, device=context.device)
            given = self._given(number, places, context, handed)
            handed, choice = self._run(number, places, self._ids(places, context, proposed), given)
            proposed.append(choice)
        return torch.stack(proposed, dim=1) if proposed else self._tokens[:, :0]

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """See `BatchedPlayer`: nothing is left behind."""

    def _layer(self, number: int) -> BatchedMtp:
        return self._draft.layers[0 if self._rules.first_layer_only else number]

    def _over_text(self, number: int, tokens: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return entries of a layer over committed tokens, and what it hands on."""
        layer, places = self._layer(number), self._places
        ids = tokens[:, (places + 1 + (number if self._rules.by_layer else 0)).clamp(max=len(places) - 1)]
        at = places.expand(len(tokens), len(places))
        x, added = layer.inputs(ids, given, self._rules, at)
        q, k, v = layer.heads(x, at)
        visible = (places <= places[:, None]).expand(len(tokens), len(places), len(places))
        handed, _ = layer.states(x, added, attend(q, k, v, visible))
        return k, v, handed

    def _ids(self, places: Tensor, context: Tensor, proposed: list[Tensor]) -> Tensor:
        """Return what the rows of a layer consume [R, T]: the pending token, then the drafts of the layers before."""
        if not self._rules.by_layer:
            return self._tokens[self._texts, (places + 1).clamp(min=0)]
        pending = self._tokens[self._texts, context[:, None]]
        return torch.cat((pending, *(one[:, None] for one in proposed)), dim=1)

    def _given(self, number: int, places: Tensor, context: Tensor, handed: Tensor) -> Tensor:
        """Return the states [R, T, D] for the rows of a layer: all but one are `handed` on by the layer before."""
        if number and self._chain:
            before = self._known[number].given[self._texts, places[:, :1].clamp(min=0)]
            return torch.cat((before, handed), dim=1)
        rows = torch.minimum((places + self._rules.row).clamp(min=0), context[:, None] - 1)
        return self._states[self._texts, rows]

    def _run(self, number: int, places: Tensor, ids: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Run a layer at places [R, T]; return what it hands on and what it proposes."""
        layer, known = self._layer(number), self._known[number]
        x, added = layer.inputs(ids, given, self._rules, places)
        q, k, v = layer.heads(x, places)
        width, order = places.shape[1], torch.arange(places.shape[1], device=places.device)
        # A context shorter than the chain has no such rows; each sees itself, so that it stays finite.
        own = (order <= order[:, None]) & (places >= 0)[:, None] | (order == order[:, None])
        committed = (self._places < places[:, :1])[:, None].expand(-1, width, -1)
        k, v = torch.cat((known.k, k), dim=1), torch.cat((known.v, v), dim=1)
        handed, normed = layer.states(x, added, attend(q, k, v, torch.cat((committed, own), dim=2)))
        return handed, layer.logits(normed[:, -1]).argmax(dim=-1)
