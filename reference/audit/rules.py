"""How a draft goes about its work, as values: the defaults are its definition, one field changed is one mistake.

t_0 .. t_n, of which t_n is pending; h_i the target's state at position i; a round proposes d_1 .. d_K.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

StateFrom = Literal["as defined", "other side of the norm", "layer before", "layer after"]
Left = Literal["nothing", "hole after full accept", "entry of rejected", "entries of steps"]


class EntryRules(NamedTuple):
    """Of EAGLE, EAGLE-3 and an MTP layer that is run as an EAGLE head (S-AUDIT-5).

    Entry i consumes t_{i + `shift`} and h_{i + `row`} at position i; a draft step is `ahead` positions beyond its own
    and consumes what the step before `handed` on, or the first one; `slots` of steps may follow wrong positions. `left`
    is what a round leaves wrong behind it. `hidden_first`: fc takes its two inputs in the other order.
    """

    shift: int = 1
    row: int = 0
    state: StateFrom = "as defined"
    ahead: int = 0
    slots: Literal["own", "by position"] = "own"
    handed: Literal["step before", "first step"] = "step before"
    left: Left = "nothing"
    hidden_first: bool = False
    mapped: bool = True


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
    """Of a standalone draft: entry i is t_{i + `shift`} at position i (S-AUDIT-7)."""

    shift: int = 0
    ahead: int = 0
    left: Left = "nothing"


class BlockRules(NamedTuple):
    """Of DFlash: row i + `row` of the block proposes d_i; blocks are `ahead` positions beyond their own (S-AUDIT-8)."""

    row: int = 0
    state: StateFrom = "as defined"
    ahead: int = 0
    reversed_layers: bool = False


class LookupRules(NamedTuple):
    """Of n-gram drafts: which match counts, what is searched, and where the proposal begins (S-AUDIT-9)."""

    other_match: bool = False
    shortest_first: bool = False
    rejected_enter: bool = False
    without_pending: bool = False
    skipped: int = 0


Rules = EntryRules | ChainRules | LanguageRules | BlockRules | LookupRules
