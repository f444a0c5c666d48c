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
    """What one entry is made of; a `blank` one was never written, an `unseen` one no row looks at."""

    token: int
    state: Tensor
    position: int
    blank: bool = False
    unseen: bool = False


class EntryPlayer:
    """See `Player`. What it remembers are slots: one is one entry, of a position below the context or behind it."""

    def __init__(self, head: EntryHead, text: Text, rules: EntryRules) -> None:
        self._head, self._text, self._rules = head, text, rules
        self._states = head.given(text.whole, rules)
        self._wrong: dict[int, Entry] = {}
        self._beyond: dict[int, Entry] = {}
        self._context, self._steps = text.context, list[Entry]()
        self._last: Entry | None = None
        self._rejected = 0

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """See `Player`."""
        self._context, self._steps = context, []
        if self._last is not None:
            self._wrong[context - 1] = self._last
        last = self._last or self._right(context - 1)
        before = [self._wrong.get(i) or self._right(i) for i in range(context - 1)]
        done = self._pass([*before, last])
        slots = self._beyond | dict(enumerate([*before, self._wrong.get(context - 1, last)]))
        states = {"first step": done.g[-1], "target's": last.state}
        proposed = [self._token(done)]
        for step in range(1, count):
            state = states.get(self._rules.handed, done.g[-1])
            entry = Entry(proposed[-1], state, self._rules.position(context, step))
            done = self._pass(self._seen(slots, entry, step))
            self._steps.append(entry)
            proposed.append(self._token(done))
        return tuple(proposed[:count])

    def _seen(self, slots: dict[int, Entry], entry: Entry, step: int) -> list[Entry]:
        """Write a step's entry to its slot, and return what the step sees, itself at the end."""
        own = self._context - 1 + self._rules.slot(step)
        slots[own] = entry
        if self._rules.reads_beyond:
            (self._wrong if own < self._context else self._beyond)[own] = entry
        length = self._context + step + (self._rejected if self._rules.rejected_seen else 0)
        never = Entry(0, torch.zeros_like(entry.state), 0, blank=True)
        others = [slots.get(slot, never) for slot in range(length) if slot != own]
        return [*others, entry._replace(unseen=own >= length)]

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """See `Player`."""
        end, left = self._context + accepted, self._rules.left
        all_right = bool(drafts) and accepted == len(drafts)
        # Draft step k left an entry at n + k - 1; what is true there consumes t_{n+k}.
        steps = [entry._replace(token=token) for entry, token in zip(self._steps, drafts, strict=False)]
        if left == "hole after full accept" and all_right:
            self._wrong[end] = self._right(end)._replace(blank=True)
        if left == "entry of rejected" and accepted < len(steps):
            self._wrong[end] = steps[accepted]
        if left == "entries of steps":
            self._wrong |= {self._context + place: entry for place, entry in enumerate(steps[:accepted])}
        self._last = self._last_of(end, drafts, accepted)
        self._rejected = len(drafts) - accepted
        if self._rules.reads_beyond and drafts:
            self._extend_rejected(drafts, accepted)

    def _last_of(self, end: int, drafts: tuple[int, ...], accepted: int) -> Entry | None:
        """Return the last entry of a round where it is another than the right one."""
        right, rules, tokens = self._right(end), self._rules, self._text.tokens
        all_right = bool(drafts) and accepted == len(drafts)
        if rules.row > 0:
            return right._replace(state=self._state_after(end, drafts, accepted))
        if rules.last == "first emitted":
            return right._replace(token=tokens[self._context + 1])
        if rules.last == "last draft after full accept" and all_right:
            return right._replace(token=tokens[end])
        return right._replace(blank=True) if rules.left == "unwritten after full accept" and all_right else None

    def _extend_rejected(self, drafts: tuple[int, ...], accepted: int) -> None:
        """Write the entries of rejected rows, as an engine does that extends all rows of a verify."""
        n = self._context
        states = self._head.given(self._head.again((*self._text.tokens[: n + 1], *drafts)), self._rules)
        for row in range(accepted + 1, len(drafts) + 1):
            # What the last row consumes is its neighbour's in the batch; it is taken to be the last draft.
            self._beyond[n + row] = Entry(drafts[min(row, len(drafts) - 1)], states[n + row], n + row)

    def _right(self, i: int) -> Entry:
        rules = self._rules
        row = min(max(i + rules.row, 0), len(self._states) - 1)
        if i + 1 == self._text.context and rules.row > 0:
            row = i  # no row follows the last one of a prompt
        return Entry(self._text.tokens[i + rules.shift], self._states[row], i)

    def _state_after(self, end: int, drafts: tuple[int, ...], accepted: int) -> Tensor:
        """Return the state in the row behind the last accepted one: the rejected draft's state, if there is one."""
        if accepted >= len(drafts):
            return self._states[end]
        whole = self._head.again((*self._text.tokens[: end + 1], drafts[accepted]))
        return self._head.given(whole, self._rules)[-1]

    def _pass(self, entries: list[Entry]) -> HeadPass:
        tokens, states, positions, blank, unseen = zip(*entries, strict=True)
        places = Places(torch.tensor(positions), torch.tensor(blank), torch.tensor(unseen))
        return self._head.forward(list(tokens), torch.stack(states), places, self._rules)

    def _token(self, done: HeadPass) -> int:
        place = int(done.logits[-1].argmax())
        ids = self._head.ids if self._rules.mapped else None
        return place if ids is None else ids[place]
