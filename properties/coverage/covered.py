"""Which facts cannot be, and are not demanded: with a draft, a model, a subject, or the features of scenarios.

What a subject does not report, or cannot be given, is S-SUBJECT-3 in docs/semantics/subjects.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from draftproof.properties.coverage.fact import Fact, words
from draftproof.properties.coverage.facts import FACTS
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import Form
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.values.limits import NO_LIMITS, Limits

_SHOWN_BY = {"round": "accept.correct_len|round.drafts", "batch": "round.rows", "launch": "graph.replay"}
"""Where samples of a kind are read. What was accepted of drafts that are reported follows from them."""


class Ability(NamedTuple):
    """What a subject may be able to do, and what is said of one that cannot."""

    can: Callable[[Limits], bool]
    lacking: str


_ABILITIES: Mapping[str, Ability] = {
    "forced drafts": Ability(lambda limits: limits.steering == "drafts", "the script cannot force its drafts"),
    "draft counts": Ability(
        lambda limits: not limits.chooses_drafts, "the script cannot say how many drafts a round has"
    ),
    "arrivals": Ability(lambda limits: limits.arrivals == "by step", "requests cannot come at a chosen step"),
    "several rows": Ability(
        lambda limits: limits.arrivals != "serial" and limits.max_rows != 1, "requests are served one after another"
    ),
    "several drafts": Ability(lambda limits: limits.max_drafts != 1, "a round has one draft"),
    "unchained layers": Ability(lambda limits: limits.unchained, "layers of its MTP drafts are always chained"),
    "cut prompts": Ability(lambda limits: limits.chunks != "own", "it cuts prompts by a rule of its own"),
}
_VARIANT = "variant "

Level = Literal["text", "counters", "host", "tensors", "whole"]
"""How much of a run a subject shows: its tokens, how many drafts were right, what its host knows, tensors, all."""
_OF_LEVELS: tuple[tuple[Level, frozenset[str]], ...] = (
    ("whole", frozenset({"graph.replay", "pool.owners", "verify.hidden"})),
    ("tensors", frozenset({"verify.hidden", "commit.kv", "extend.kv", "extend.hidden_in", "draft.step.hidden_in"})),
    ("host", frozenset({"propose.tokens", "round.drafts", "round.rows", "round.table", "verify.slots"})),
    ("counters", frozenset({"accept.correct_len", "total.drafts", "total.accepted", "total.accepted_at"})),
)


class Uncovered(NamedTuple):
    """Facts that a subject cannot show, and why, in words."""

    because: str
    names: frozenset[str]


def uncovered(limits: Limits, channels: frozenset[str]) -> list[Uncovered]:
    """Return what a subject with these limits, which reports these channels, cannot show."""
    found: dict[str, set[str]] = {}
    for fact in FACTS:
        for because in (*_unreported(fact, channels), *_beyond(fact, limits)):
            found.setdefault(because, set()).add(fact.name)
    return [Uncovered(because, frozenset(names)) for because, names in found.items()]


def not_covered(limits: Limits, channels: frozenset[str]) -> frozenset[str]:
    """Return the names of the facts that a subject cannot show."""
    return frozenset().union(*(one.names for one in uncovered(limits, channels)))


def not_asked_with(features: Sequence[str]) -> frozenset[str]:
    """Return the names of the facts of variants, of all features but these, and those that these never reach.

    Scenarios that were selected by features are not asked for them.
    """
    never = frozenset(name for feature in features for name in FEATURES_BY_NAME[feature].lacks)
    limits = replace(NO_LIMITS, variants=(), features=tuple(features))
    return never | {fact.name for fact in FACTS if list(_beyond(fact, limits, by_model=True))}


def unreachable(evidence: Evidence) -> frozenset[str]:
    """Return the facts that no scenario of this model and this draft can reach.

    Probes are generated, so that each kind of them is there; real models are what they are.
    """
    names = unreachable_by_draft(evidence.form, real=not evidence.exact)
    if evidence.exact or evidence.hybrid:
        return names
    return names | {fact.name for fact in FACTS if ("hybrid",) in words(fact.takes)}


def unreachable_by_draft(form: Form, *, real: bool) -> frozenset[str]:
    """Return the facts that no scenario of a draft can reach."""
    return frozenset(fact.name for fact in FACTS if not _is_reached(fact, form, real=real))


def level_of(channels: frozenset[str], left_out: frozenset[str] = frozenset()) -> Level:
    """Return how much a subject with these channels shows: all, or something of the highest level.

    `left_out` are channels that it did not report in some scenario that has them.
    """
    (whole, needed), *others = _OF_LEVELS
    if needed <= channels and not left_out:
        return whole
    return next((level for level, some in others if some & channels), "text")


def _is_reached(fact: Fact, form: Form, *, real: bool) -> bool:
    if not fact.drafts(form.kind) or (real and not fact.is_real(form.kind)):
        return False
    if not real or form.proposes != "chain":
        return True
    return form.layers in fact.layers and (form.layers > 1 or ("several drafts",) not in words(fact.takes))


def _unreported(fact: Fact, channels: frozenset[str]) -> Iterable[str]:
    """Yield why a fact does not show in these channels."""
    of_samples = _SHOWN_BY.get(fact.of, "")
    for names in words(", ".join(filter(None, (of_samples, fact.channels)))):
        if not channels.intersection(names):
            yield f"{names[0]} is not reported"


def _beyond(fact: Fact, limits: Limits, *, by_model: bool = False) -> Iterable[str]:
    """Yield why a fact is beyond limits; `by_model`: these say which models there are, too."""
    for names in words(fact.takes):
        if not any(_can(name, limits, by_model=by_model) for name in names):
            yield _lacking(names[0])


def _can(name: str, limits: Limits, *, by_model: bool) -> bool:
    if name in _ABILITIES:
        return _ABILITIES[name].can(limits)
    if name.startswith(_VARIANT):
        return name.removeprefix(_VARIANT) in limits.variants
    return limits.takes(name) or (FEATURES_BY_NAME[name].of_model and not by_model)


def _lacking(name: str) -> str:
    if name in _ABILITIES:
        return _ABILITIES[name].lacking
    return f"it has no {name}" if name.startswith(_VARIANT) else f"its scenarios have no {name}"
