"""Drafts without EAGLE's entries, by the rules of S-AUDIT-6 .. S-AUDIT-9: chains, smaller models, blocks, look-up."""

from __future__ import annotations

import torch

from draftproof.properties.values.drafts import Ngram
from draftproof.reference.audit.heads import Model, features, last_states
from draftproof.reference.audit.play import Text
from draftproof.reference.audit.rules import BlockRules, ChainRules, LanguageRules, LookupRules
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.layers import Places
from draftproof.reference.models.target import DraftLayer


class ChainPlayer:
    """Chained multi-token prediction; entries are made anew in every round, so nothing is left behind."""

    def __init__(self, layers: tuple[DraftLayer, ...], chain: bool, text: Text, rules: ChainRules) -> None:
        self._layers, self._text, self._rules = layers, text, rules
        self._chain = chain != rules.other_way
        self._states = last_states(text.whole, layers[0].takes, rules.state)

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        rules, n = self._rules, context
        rows = torch.arange(n) + rules.row
        hidden = self._states[rows.clamp(0, n - 1)]
        ids, proposed = list(self._text.tokens[1 : n + 1]), list[int]()
        for number in range(min(count, len(self._layers))):
            done = self._layers[0 if rules.first_layer_only else number].forward(ids, hidden)
            proposed.append(int(done.logits[-1].argmax()))
            ids = [*ids[1:], proposed[-1]] if rules.by_layer else ids
            hidden = done.g if self._chain else hidden
        return tuple(proposed)

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`."""


class LanguagePlayer:
    """A standalone draft; a wrong cache has another sequence's rows, or rows that were never written, or lacks rows."""

    def __init__(self, model: Model, text: Text, rules: LanguageRules) -> None:
        self._model, self._text, self._rules = model, text, rules
        self._other: dict[int, int] = {}
        self._holes: set[int] = set()
        self._lacks: set[int] = set()
        self._context = text.context

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        shift, ahead = self._rules.shift, self._rules.ahead
        self._context = context
        last = self._text.tokens[context]
        if context >= self._text.prompt and self._rules.pending:
            last = self._other[context] = self._text.tokens[context + self._rules.pending]
        held = [i for i in range(context) if i not in self._lacks]
        before = [self._other.get(i, self._text.tokens[i + shift]) for i in held]
        ids, positions = [*before, last], [*range(len(held)), len(held) + ahead]
        for step in range(count):
            blank = torch.tensor([i in self._holes for i in range(len(ids))])
            done = self._model.forward(ids, Places(torch.tensor(positions), blank))
            ids.append(int(done.logits[-1].argmax()))
            positions.append(len(held) + step + 1 + ahead)
        return tuple(ids[len(held) + 1 :])

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`. The steps ran t_n, d_1 .. d_{K-1}: the last draft has no entry yet."""
        end, left = self._context + accepted, self._rules.left
        if drafts and accepted == len(drafts):
            self._holes |= {end} if left == "hole after full accept" else set()
            self._lacks |= {end} if left == "short after full accept" else set()
        if left == "entry of rejected" and accepted + 1 < len(drafts):
            self._other[end + 1] = drafts[accepted]


class BlockPlayer:
    """DFlash: a block of masked tokens after the features of the context."""

    def __init__(self, model: ReferenceDFlashModel, text: Text, rules: BlockRules) -> None:
        self._model, self._text, self._rules = model, text, rules
        layers = model.config.target_layer_ids
        self._features = features(text.whole, layers[::-1] if rules.reversed_layers else layers, rules.state)

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        if not count:
            return ()
        ids = [self._text.tokens[context], *[self._model.config.mask_token_id] * count]
        done = self._model.forward(ids, self._features[:context], self._rules.ahead)
        first = 1 + self._rules.row
        return tuple(done.logits[first : first + count].argmax(dim=1).tolist())

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`."""


class LookupPlayer:
    """N-gram drafts: what followed a suffix of the history where it occurred before."""

    def __init__(self, spec: Ngram, text: Text, rules: LookupRules) -> None:
        self._spec, self._text, self._rules = spec, text, rules
        self._history, self._known = text.tokens[: text.context], text.context

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        tokens = (*self._history, self._text.tokens[context])
        if self._rules.without_pending:
            tokens = tokens[:-1]
        place = self._place(tokens)
        begin = place + self._rules.skipped
        return tokens[begin : begin + count] if place >= 0 else ()

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`."""
        n = self._known
        committed = self._text.tokens[n : n + accepted + 1]
        self._known += accepted + 1
        self._history += committed[:1] + drafts if self._rules.rejected_enter else committed

    def _place(self, tokens: tuple[int, ...]) -> int:
        """Return the place behind the match that counts, -1 if there is none."""
        spec, longest = self._spec, max(self._spec.min_n, self._spec.max_n + self._rules.longer)
        lengths = range(longest, spec.min_n - 1, -1)
        latest = (spec.match == "latest") != self._rules.other_match
        for length in reversed(lengths) if self._rules.shortest_first else lengths:
            suffix, ends = tokens[-length:], range(length, len(tokens))
            for end in reversed(ends) if latest else ends:
                if tokens[end - length : end] == suffix:
                    return end
        return -1
