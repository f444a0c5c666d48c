"""The rules that a draft works by, as values: the defaults are its definition, one field changed is one mistake.

t_0 .. t_n with t_n pending; h_i the target's state at position i; a round proposes d_1 .. d_K.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

StateFrom = Literal["as defined", "other side of the norm", "layer before", "layer after"]
Left = Literal[
    "nothing",
    "hole after full accept",
    "short after full accept",
    "unwritten after full accept",
    "entry of rejected",
    "entries of steps",
]
Handed = Literal["step before", "first step", "target's", "after the norm"]
Last = Literal["bonus", "first emitted", "last draft after full accept"]
AcceptRule = Literal[
    "as defined", "first draft unchecked", "wrong first draft emitted", "last draft never accepted", "one too few"
]
"""How drafts are accepted (S-AUDIT-11)."""


class EntryRules(NamedTuple):
    """Of EAGLE, EAGLE-3 and an MTP layer that is run as an EAGLE head (S-AUDIT-5).

    Entry i consumes t_{i + `shift`} and h_{i + `row`} at position i, the last of a round the token that `last` names. A
    draft step is `ahead` positions and `slots_ahead` slots beyond its own; where they `stand` still, all steps are at
    the position of the last entry, and with "slots" all write to the one slot behind it. It consumes what was `handed`
    on. With `rejected_seen` steps see as many slots more as drafts were rejected. `left` is what a round leaves wrong
    behind it. `hidden_first`: fc takes its two inputs in the other order.
    """

    shift: int = 1
    last: Last = "bonus"
    row: int = 0
    state: StateFrom = "as defined"
    ahead: int = 0
    slots_ahead: int = 0
    stand: Literal["no", "positions", "slots"] = "no"
    handed: Handed = "step before"
    rejected_seen: bool = False
    left: Left = "nothing"
    hidden_first: bool = False
    mapped: bool = True

    @property
    def reads_beyond(self) -> bool:
        """Return whether steps read slots behind the context that no step of theirs wrote."""
        return self.rejected_seen or self.slots_ahead != 0 or self.stand == "slots"

    def position(self, context: int, step: int) -> int:
        """Return the position of draft step 1, 2, .. after a context."""
        return context + self.offset(step)

    def offset(self, step: int) -> int:
        """Return how far behind a context the position of draft step 1, 2, .. is."""
        return -1 if self.stand != "no" else step - 1 + self.ahead

    def slot(self, step: int) -> int:
        """Return how far behind the last entry a draft step writes."""
        return 1 if self.stand == "slots" else step + self.slots_ahead


class ChainRules(NamedTuple):
    """Of chained multi-token prediction: entry i of layer j consumes t_{i + 1 + j} at position i (S-AUDIT-6).

    With `by_layer` off every layer consumes the same tokens. `other_way`: chained if it is not, and not if it is.
    """

    by_layer: bool = True
    row: int = 0
    state: StateFrom = "as defined"
    other_way: bool = False
    first_layer_only: bool = False


class LanguageRules(NamedTuple):
    """Of a standalone draft: entry i is t_{i + `shift`} at position i (S-AUDIT-7).

    The first step takes t_{n + `pending`} in place of t_n, if that is no token of the prompt. Where a round leaves the
    cache short, all later entries move up to its end.
    """

    shift: int = 0
    ahead: int = 0
    pending: int = 0
    left: Left = "nothing"


class BlockRules(NamedTuple):
    """Of DFlash: row i + `row` of the block proposes d_i; blocks are `ahead` positions beyond their own (S-AUDIT-8)."""

    row: int = 0
    state: StateFrom = "as defined"
    ahead: int = 0
    reversed_layers: bool = False


class LookupRules(NamedTuple):
    """Of n-gram drafts: which match counts, what is searched, and where the proposal begins (S-AUDIT-9).

    The longest suffix that is searched is `longer` than it should be.
    """

    other_match: bool = False
    longer: int = 0
    shortest_first: bool = False
    rejected_enter: bool = False
    without_pending: bool = False
    skipped: int = 0


Rules = EntryRules | ChainRules | LanguageRules | BlockRules | LookupRules
