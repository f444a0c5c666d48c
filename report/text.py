"""Words for a reader: a divergence as a block of lines, as one line, as a sentence; a scenario in one line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.observed import Vector
from draftproof.properties.values.relations import InMemory, KernelRelation, OtherLayer, Stride, WrongFeature
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence
from draftproof.report.channels import NOUN, WHAT
from draftproof.report.numbers import plural
from draftproof.report.relations import phrase

_WIDTH, _INDENT = 110, 13
# Inputs of the layers of a chain: any other draft has layer 0 only.
_CHAINED = {"extend.hidden_in": "hidden input", "extend.ids": "token"}
_POINTS = ("as handed in", "after the target was built", "after the draft was built", "at the end of the run")
_COUNTED = re.compile(r"\d+ [a-z]+s\b")
_ONE = re.compile(r"\b1 (draft|page|row|state|token)s\b")
_ACCEPTANCE = "; at worst drafts are rejected and acceptance falls"


def block(found: Divergence, *, of: str = "", replay: str = "") -> str:
    """Return one failure on several lines; `of` names what failed, `replay` is the command that repeats it."""
    extent = _extent(found)
    rows = {
        "what": f"{what(found)} ({found.channel})",
        "where": f"{where(found)} ({extent})" if extent else where(found),
        "expected": _value(found, found.expected),
        "got": _got(found),
        "impact": impact(found),
        "cause": cause(found),
    }
    lines = [f"FAIL {found.contract}{f'  {of}' if of else ''}"]
    lines += [row(name, text) for name, text in rows.items() if text]
    return "\n".join([*lines, f"  {'replay':<{_INDENT - 2}}{replay}"] if replay else lines)


def show_versions(found: Mapping[str, str]) -> str:
    """Return versions of packages in words, without those that are not installed."""
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def line(found: Divergence) -> str:
    """Return one failure as one line: where, expected, got, relation, extent, cause."""
    extent, because = _extent(found), cause(found)
    values = f"expected {_value(found, found.expected)}, got {_got(found)}"
    told = f"{where(found)}: {values}{f', {extent}' if extent else ''}"
    return f"{told}; first seen in {found.channel}{f'; {because}' if because else ''}"


def sentence(found: Divergence) -> str:
    """Return the line, and whether the bug shows in the text; a kernel on its own has none."""
    text = impact(found)
    return f"{line(found)}. {text[0].upper()}{text[1:]}." if text else f"{line(found)}."


def what(found: Divergence) -> str:
    """Return what is wrong."""
    if found.channel == "kernel.scratch":
        return "memory that the kernel allocates for itself"
    if found.phase == "kernel":
        return f"argument {found.channel.removeprefix('kernel.')} of the kernel"
    return WHAT.get(found.channel, "")


def impact(found: Divergence) -> str:
    """Return whether the bug shows in the text; "" of a kernel on its own."""
    if found.output_changed is None:
        return ""
    if found.output_changed:
        return "the output tokens changed"
    return f"the output tokens did not change{_ACCEPTANCE if found.phase in ('draft', 'propose', 'extend') else ''}"


def cause(found: Divergence) -> str:
    """Return what explains the wrong value; "" if the relation says no more than how far it is off."""
    relation = found.relation
    if isinstance(relation, OtherLayer):
        return _fed(found, relation.layer)
    explains = isinstance(relation, Stride | WrongFeature | KernelRelation) and not isinstance(relation, InMemory)
    return phrase(relation) if explains else ""


def where(found: Divergence) -> str:
    """Return the place of a divergence, its most telling part first."""
    return _where(found) + (f", on rank {found.rank}" if found.rank >= 0 else "")


def _where(found: Divergence) -> str:
    if found.channel == "rank.collectives":
        captured = " of captures" if found.layer else ""
        return f"engine step {found.round}, collective {found.step}{captured}"
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


def row(name: str, text: str) -> str:
    """Return a named line of a block, broken where it is long."""
    first, *rest = textwrap.wrap(text, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False)
    return "\n".join((f"  {name:<{_INDENT - 2}}{first}", *(f"{'':<{_INDENT}}{more}" for more in rest)))


def _value(found: Divergence, text: str) -> str:
    """Return a value with its noun; a vector's with its lane."""
    noun = NOUN.get(found.channel.split(".")[-1], "") if text[:1].isdigit() and not _COUNTED.match(text) else ""
    vector = found.channel in CHANNELS and CHANNELS[found.channel].value == Vector and found.index >= 0
    lane = f" in lane {found.index}" if vector and text == found.expected else ""
    return noun + _ONE.sub(r"1 \1", text) + lane


def _got(found: Divergence) -> str:
    """Return the value that was got, and how it relates to the right one."""
    notes = [] if cause(found) else [phrase(found.relation)]
    if found.phase == "kernel" and found.margin is not None:
        notes.append(f"over the bound by {found.margin:.3g}")
    told = ", ".join(note for note in notes if note)
    return f"{_value(found, found.got)}{f' ({told})' if told else ''}"


def _extent(found: Divergence) -> str:
    """Return where else it is wrong."""
    if found.phase == "kernel":
        return f"{found.count} elements differ"
    if not found.total:
        return ""
    keys = CHANNELS[found.channel].keys if found.channel in CHANNELS else ()
    if found.count == found.total:
        return "at every step" if "step" in keys else "in every row" if "row" in keys else "in every round"
    return f"in {found.count} of {found.total} places"


def _of_layer(found: Divergence, place: str) -> str:
    """Return a place in a layer of the draft: only a chain has tokens, hidden inputs and proposals above layer 0."""
    if found.channel in _CHAINED:
        return f"MTP layer {found.layer}, {place}, {_CHAINED[found.channel]} of position {found.row}"
    if found.channel == "extend.proposal":
        return f"MTP layer {found.layer}, {place}"
    return f"extend of layer {found.layer} at position {found.row}, {place}"


def _fed(found: Divergence, source: int) -> str:
    """Return what a layer of a chain was given instead of the output of the layer before it; "" of anything else."""
    before = found.layer - 1
    if found.channel not in _CHAINED or found.layer < 1 or source not in (0, before):
        return ""
    if found.channel == "extend.ids":
        return f"the layer was given the token of layer {source} instead of the next one"
    got = f"layer {source - 1}'s output" if source else "the target's hidden state"
    return f"the layer was given {got} instead of layer {before}'s output"


def describe_scenario(scenario: Scenario) -> str:
    """Return what a scenario contains, in one line."""
    requests, graphs = scenario.requests, scenario.graphs
    tokens = sum(len(request.prompt) for request in requests)
    parts = [
        plural(len(requests), "request"),
        plural(tokens, "prompt token"),
        f"{algorithm(scenario.draft)} with at most {plural(scenario.steps, 'draft')} a round",
        f"batches of at most {plural(scenario.schedule.max_batch, 'row')}",
        f"page size {scenario.memory.page_size}",
        f"graphs of {'/'.join(map(str, graphs.sizes))}" if graphs.sizes and graphs.capture else "no graphs",
    ]
    if layers := getattr(scenario.model, "layers", None):
        parts.append(plural(layers, "layer"))
    parts += ["adaptive steps"] if scenario.adaptive_steps else []
    parts += [f"variant {scenario.variant}"] if scenario.variant != "none" else []
    return ", ".join(parts)
