"""A divergence in words."""

from __future__ import annotations

import re

from draftproof.properties.values.verdict import Divergence

_NOUNS = {
    "positions": "position ",
    "ids": "token ",
    "slots": "slot ",
    "bonus": "token ",
    "correct_len": "",
    "length": "length ",
    "proposal": "token ",
    "choice": "token ",
    "visible": "positions up to ",
}
# What layers of a chain are given: those of any other draft have layer 0 only.
_CHAINED = {"extend.hidden_in": "hidden input", "extend.ids": "token"}
_POINTS = ("as handed in", "after the target was built", "after the draft was built", "at the end of the run")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def describe(found: Divergence) -> str:
    """One divergence as a sentence: where, expected, got, how they are related, where else."""
    margin = f", margin {found.margin:g}" if found.margin is not None else ""
    relation = f" ({_relation(found.relation)}{margin})" if found.relation else ""
    extent = f", {found.extent}" if found.extent else ""
    fed = _fed(found)
    said = f" {fed} ({_values(found)})" if fed else f": {_values(found)}{relation}"
    return f"{where(found)}{said}{extent}; first seen in {found.channel}"


def _values(found: Divergence) -> str:
    """What was expected, and what was got."""
    noun = _NOUNS.get(found.channel.split(".")[-1], "")
    lane = f" in lane {found.index}" if found.index >= 0 and found.expected.startswith(("0x", "-", "0.", "nan")) else ""
    return f"expected {noun}{found.expected}, got {found.got}{lane}"


def _fed(found: Divergence) -> str:
    """What a layer of a chain was given instead of what the layer before it has; "" if the relation does not say."""
    given, before = re.fullmatch(r"value of layer (\d+)", found.relation), found.layer - 1
    source = int(given[1]) if given and found.channel in _CHAINED else -1
    if found.layer < 1 or source not in (0, before):
        return ""
    if found.channel == "extend.ids":
        return f"is layer {source}'s instead of the next one"
    got = f"layer {source - 1}'s output" if source else "the target's"
    return f"is {got} instead of layer {before}'s output"


def where(found: Divergence) -> str:
    """The place of a divergence, its most telling part first."""
    if found.phase == "kernel":
        return f"kernel {found.contract.removeprefix('kernel.')}"
    if found.channel == "config.seen":
        return f"the configuration {_POINTS[min(max(found.step, 0), 3)]}"
    if found.channel == "config.draft":
        return "what the draft is made for"
    if found.channel == "config.routing":
        return f"the kind of layer {found.layer}"
    if found.request < 0:
        return f"engine step {found.round}" + (f", launch {found.step}" if found.step >= 0 else "")
    place = f"request {found.request}, round {found.round}"
    layer = f", layer {found.layer}" if found.layer >= 0 and found.phase == "commit" else ""
    if found.channel == "commit.intermediate":
        return f"state after verify row {found.row}{layer}, {place}"
    if found.phase == "commit" and found.row < 0:
        return f"commit{layer}, {place}"
    if found.phase == "draft":
        return f"block row {found.row}, {place}" if found.step < 0 else f"draft step {found.step}, {place}"
    if found.phase == "propose":
        return f"{'n-gram match' if found.channel == 'propose.match' else 'proposals'}, {place}"
    if found.phase == "extend" and found.layer > 0:
        return _of_layer(found, place)
    if found.phase == "verify":
        return f"verify row {found.row}, {place}"
    if found.channel == "round.table":
        return f"page column {found.row}, {place}"
    if found.row >= 0:
        return f"{found.phase} at position {found.row}{layer}, {place}"
    return f"{found.phase}, {place}"


def _of_layer(found: Divergence, place: str) -> str:
    """A place in a layer of the draft: only a chain has tokens, hidden inputs and proposals above layer 0."""
    if found.channel in _CHAINED:
        return f"mtp layer {found.layer}, {place}: {_CHAINED[found.channel]} of position {found.row}"
    if found.channel == "extend.proposal":
        return f"mtp layer {found.layer}, {place}"
    return f"extend of layer {found.layer} at position {found.row}, {place}"


def sentence(found: Divergence, output_changed: bool) -> str:
    """A divergence, and whether it shows in the text; a kernel on its own has none."""
    told = f"{describe(found)}."
    return told if found.phase == "kernel" else f"{told} {output(output_changed)}"


def output(changed: bool) -> str:
    """Whether the bug shows in the text."""
    return "The output tokens changed." if changed else "The output tokens did not change."


def _relation(relation: str) -> str:
    """ "1 ahead" reads "one ahead"."""
    count, _, rest = relation.partition(" ")
    if count.isdigit() and int(count) < len(_NUMBERS) and rest in ("ahead", "behind"):
        return f"{_NUMBERS[int(count)]} {rest}"
    return relation
