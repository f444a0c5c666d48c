"""EAGLE, EAGLE-3 and MTP layers run as EAGLE heads, by the rules of S-AUDIT-5: a list of entries, and one pass over it.

A head has one layer, so an entry is a function of its own token, state and position: whatever goes wrong with a cache
is another list of entries.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftproof.reference.audit.play import Text
from draftproof.reference.audit.rules import EntryRules
from draftproof.reference.models.layers import Places
from draftproof.reference.models.target import HeadPass, TargetPass


class EntryHead(Protocol):
    """What proposes: `given` are the states [n, D] that its entries consume, of a pass of the target over n tokens."""

    ids: tuple[int, ...] | None

    def given(self, whole: TargetPass, rules: EntryRules) -> Tensor: ...

    def forward(self, tokens: list[int], states: Tensor, places: Places, rules: EntryRules) -> HeadPass: ...

    def again(self, tokens: tuple[int, ...]) -> TargetPass:
        """Return the target's pass over other tokens than the text's."""


class Entry(NamedTuple):
    """What one entry is made of; a `blank` one was never written."""

    token: int
    state: Tensor
    position: int
    blank: bool = False


class EntryPlayer:
    """See `Player`."""

    def __init__(self, head: EntryHead, text: Text, rules: EntryRules) -> None:
        self._head, self._text, self._rules = head, text, rules
        self._states = head.given(text.whole, rules)
        self._wrong: dict[int, Entry] = {}
        self._context, self._steps = text.prompt, list[Entry]()
        self._row_after: Tensor | None = None

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        self._context, self._steps = context, []
        before = [self._wrong.get(i) or self._right(i) for i in range(context - 1)]
        last = self._right(context - 1)
        if self._row_after is not None and self._rules.row > 0:
            last = last._replace(state=self._row_after)
            self._wrong[context - 1] = last
        done = self._pass([*before, last])
        first = done.g[-1]
        entries = [*before, self._wrong.get(context - 1, last)]
        proposed, by_position = [self._token(done)], self._rules.slots == "by position" and count > 1
        if by_position and self._rules.ahead < 0:
            entries.pop()
        if by_position and self._rules.ahead > 0:
            entries.append(Entry(0, torch.zeros_like(first), context, blank=True))
        for step in range(1, count):
            state = first if self._rules.handed == "first step" else done.g[-1]
            self._steps.append(Entry(proposed[-1], state, context + step - 1 + self._rules.ahead))
            done = self._pass([*entries, *self._steps])
            proposed.append(self._token(done))
        if by_position and self._rules.ahead < 0:
            self._wrong[context - 1] = self._steps[0]
        return tuple(proposed[:count])

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`."""
        end, left = self._context + accepted, self._rules.left
        # Draft step k left an entry at n + k - 1; what is true there consumes t_{n+k}.
        steps = [entry._replace(token=token) for entry, token in zip(self._steps, drafts, strict=False)]
        if left == "hole after full accept" and drafts and accepted == len(drafts):
            self._wrong[end] = self._right(end)._replace(blank=True)
        if left == "entry of rejected" and accepted < len(steps):
            self._wrong[end] = steps[accepted]
        if left == "entries of steps":
            self._wrong |= {self._context + place: entry for place, entry in enumerate(steps[:accepted])}
        if self._rules.row > 0:
            self._row_after = self._state_after(end, drafts, accepted)

    def _right(self, i: int) -> Entry:
        rules = self._rules
        row = min(max(i + rules.row, 0), len(self._states) - 1)
        if i + 1 == self._text.prompt and rules.row > 0:
            row = i  # no row follows the last one of a prompt
        return Entry(self._text.tokens[i + rules.shift], self._states[row], i)

    def _state_after(self, end: int, drafts: tuple[int, ...], accepted: int) -> Tensor:
        """Return the state in the row behind the last accepted one: that of the rejected draft, if there is one."""
        if accepted >= len(drafts):
            return self._states[end]
        whole = self._head.again((*self._text.tokens[: end + 1], drafts[accepted]))
        return self._head.given(whole, self._rules)[-1]

    def _pass(self, entries: list[Entry]) -> HeadPass:
        tokens, states, positions, blank = zip(*entries, strict=True)
        places = Places(torch.tensor(positions), torch.tensor(blank))
        return self._head.forward(list(tokens), torch.stack(states), places, self._rules)

    def _token(self, done: HeadPass) -> int:
        place = int(done.logits[-1].argmax())
        ids = self._head.ids if self._rules.mapped else None
        return place if ids is None else ids[place]
