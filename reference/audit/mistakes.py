"""The known mistakes of each draft, in one place: a name, and the rule that it changes.

A new one is a line here; if no field says it yet, a field in `rules.py` and where the draft's module reads it.
"""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.drafts import Algorithm
from draftproof.reference.audit.rules import (
    AcceptRule,
    BlockRules,
    ChainRules,
    EntryRules,
    LanguageRules,
    LookupRules,
    Rules,
)

AS_DEFINED = "as defined"
"""What a draft without a mistake is called."""


class Mistake(NamedTuple):
    """A mistake, in words, and the rules under which a draft makes it.

    With `idle` above 0 every round of that number, counted from 1, is left without drafts; `fewer` drafts are verified
    than there could be; with `late` the drafts proposed for the round before are verified; `accepts` is how drafts are
    accepted.
    """

    name: str
    rules: Rules
    idle: int = 0
    fewer: int = 0
    late: bool = False
    accepts: AcceptRule = "as defined"


_ENTRIES = {
    "draft positions one ahead": EntryRules(ahead=1),
    "draft positions one behind": EntryRules(ahead=-1),
    "draft positions and their slots one ahead": EntryRules(ahead=1, slots_ahead=1),
    "draft positions and their slots one behind": EntryRules(ahead=-1, slots_ahead=-1),
    "slots of draft steps one ahead, or all positions": EntryRules(slots_ahead=1),
    "slots of draft steps one behind": EntryRules(slots_ahead=-1),
    "draft positions stand still": EntryRules(stand="positions"),
    "draft positions and their slots stand still": EntryRules(stand="slots"),
    "ids not shifted": EntryRules(shift=0),
    "first emitted token in place of the bonus": EntryRules(last="first emitted"),
    "last draft in place of the bonus after a full accept": EntryRules(last="last draft after full accept"),
    "hidden state of the row before": EntryRules(row=-1),
    "hidden state of the row after": EntryRules(row=1),
    "every step fed what the first handed on": EntryRules(handed="first step"),
    "every step fed the target's state": EntryRules(handed="target's"),
    "entry missing after a full accept": EntryRules(left="hole after full accept"),
    "entry never written at a full accept": EntryRules(left="unwritten after full accept"),
    "entry of a rejected token kept": EntryRules(left="entry of rejected"),
    "entries of draft steps kept": EntryRules(left="entries of steps"),
    "entries of rejected tokens seen by draft steps": EntryRules(rejected_seen=True),
}
_LAST_STATE = {
    "hidden state on the other side of the norm": EntryRules(state="other side of the norm"),
    "hidden state of the layer before": EntryRules(state="layer before"),
}
_OF_FC = {"hidden state before embedding in fc": EntryRules(hidden_first=True)}
_FEATURES = {
    "features a layer early": EntryRules(state="layer before"),
    "features a layer late": EntryRules(state="layer after"),
    "handed on after the norm": EntryRules(handed="after the norm"),
    "map of the vocabulary ignored": EntryRules(mapped=False),
}
_CHAIN = {
    "ids shifted alike in every layer": ChainRules(by_layer=False),
    "hidden state of the row before": ChainRules(row=-1),
    "hidden state of the row after": ChainRules(row=1),
    "hidden state on the other side of the norm": ChainRules(state="other side of the norm"),
    "hidden state of the layer before": ChainRules(state="layer before"),
    "every layer fed the target's state": ChainRules(other_way=True),
    "first layer run for all": ChainRules(first_layer_only=True),
}
_LANGUAGE = {
    "draft positions one ahead": LanguageRules(ahead=1),
    "draft positions one behind": LanguageRules(ahead=-1),
    "ids shifted as an EAGLE head's": LanguageRules(shift=1),
    "fed the token before the last": LanguageRules(pending=-1),
    "cache a token short after a full accept, all later positions one behind": LanguageRules(
        left="short after full accept"
    ),
    "entry missing after a full accept": LanguageRules(left="hole after full accept"),
    "entry of a rejected token kept": LanguageRules(left="entry of rejected"),
}
_BLOCK = {
    "proposals read a row early": BlockRules(row=-1),
    "features a layer early": BlockRules(state="layer before"),
    "features a layer late": BlockRules(state="layer after"),
    "features joined in the other order": BlockRules(reversed_layers=True),
    "block one position ahead": BlockRules(ahead=1),
    "block one position behind": BlockRules(ahead=-1),
}
_LOOKUP = {
    "the other match of several": LookupRules(other_match=True),
    "another --max-n: the longest suffix has a token less": LookupRules(longer=-1),
    "another --max-n: the longest suffix has two tokens less": LookupRules(longer=-2),
    "another --max-n: the longest suffix has a token more": LookupRules(longer=1),
    "shortest suffix first": LookupRules(shortest_first=True),
    "rejected tokens enter the history": LookupRules(rejected_enter=True),
    "pending token not in the history": LookupRules(without_pending=True),
    "proposal begins a token late": LookupRules(skipped=1),
}
_ACCEPTS: dict[str, AcceptRule] = {
    "first draft accepted unchecked": "first draft unchecked",
    "first draft emitted though wrong": "wrong first draft emitted",
    "last draft never accepted": "last draft never accepted",
    "one draft too few accepted": "one too few",
}
_RULES: dict[Algorithm, tuple[Rules, dict[str, Rules]]] = {
    "eagle": (EntryRules(), {**_ENTRIES, **_LAST_STATE, **_OF_FC}),
    "eagle3": (EntryRules(), {**_ENTRIES, **_FEATURES}),
    "mtp": (ChainRules(), dict(_CHAIN)),
    "standalone": (LanguageRules(), dict(_LANGUAGE)),
    "dflash": (BlockRules(), dict(_BLOCK)),
    "ngram": (LookupRules(), dict(_LOOKUP)),
}


def definition(algorithm: Algorithm) -> Mistake:
    """Return the draft without any mistake."""
    return Mistake(AS_DEFINED, _RULES[algorithm][0])


def mistakes(algorithm: Algorithm) -> tuple[Mistake, ...]:
    """Return the known mistakes of a draft."""
    right, rules = _RULES[algorithm]
    found = [Mistake(name, wrong) for name, wrong in rules.items()]
    found.append(Mistake("no drafts in every second round", right, idle=2))
    found.append(Mistake("a draft fewer than asked for", right, fewer=1))
    found.append(Mistake("drafts of the round before", right, late=True))
    found += [Mistake(name, right, accepts=rule) for name, rule in _ACCEPTS.items()]
    return tuple(found)
