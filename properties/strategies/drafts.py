"""The drafts of probe scenarios: the generated EAGLE draft exchanged for one of another algorithm.

A probe scenario is drawn with an EAGLE draft of pairwise distinct sizes; every other draft takes these over, and a
forms say the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.some_requests import endless
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.drafts import (
    DRAFT_KINDS_BY_NAME,
    SPECS,
    Algorithm,
    DFlash,
    DraftKind,
    Eagle,
    Eagle3,
    Mtp,
    Ngram,
    Standalone,
    algorithm,
)
from draftproof.properties.values.scenario import ProbeModel, Request, RoundPlan, Scenario

FormName = Literal[
    "takes",
    "handed",
    "embedding",
    "head",
    "vocabulary",
    "first",
    "chain",
    "spare",
    "features",
    "width",
    "match",
    "span",
]
Forms = Mapping[FormName, str]
"""What of a draft is one way or another (docs/semantics/heads.md, S-HEAD-6), by name."""
_OF_ENTRIES, _LAYERED, _WIDE = (Eagle, Mtp), (DFlash, Standalone), (DFlash, Eagle3)
FORMS: Mapping[FormName, tuple[tuple[type, ...], tuple[str, ...]]] = {
    "takes": (_OF_ENTRIES, ("after_norm", "before_norm")),
    "handed": (_OF_ENTRIES, ("after_norm", "before_norm")),
    "embedding": ((*_OF_ENTRIES, Eagle3), ("target's", "own")),
    "head": (_OF_ENTRIES, ("target's", "own")),
    "vocabulary": ((*_OF_ENTRIES, Eagle3), ("target's", "reduced", "other order")),
    "first": (_OF_ENTRIES, ("seen", "masked")),
    "chain": ((Mtp,), ("chained", "unchained")),
    "spare": ((Mtp, *_LAYERED), ("no layer", "layers")),
    "features": (_WIDE, ("one", "two", "three")),
    "width": ((Eagle3,), ("other", "alike")),
    "match": ((Ngram,), ("earliest", "latest")),
    "span": ((Ngram,), ("down to one", "as long as there may be")),
}
"""Forms by name: the drafts that have them, and their values, the plainest first."""
_SMALL_VOCABS = (5, 4, 6, 4, 7)
_PERIODS = (0, 3, 0, 2, 0, 4, 1)
_MOST_LAYERS, _LONG_CHUNK = 16, 33
_MORE_TOKENS = 20
"""Every fourth scenario of a lookup has a request with a history of this many additional tokens."""


def forms_of(name: Algorithm) -> dict[FormName, tuple[str, ...]]:
    """Return the forms that a draft has, with their values."""
    return {form: values for form, (kinds, values) in FORMS.items() if SPECS[name] in kinds}


def read_forms(scenario: Scenario) -> dict[FormName, str]:
    """Return the forms of a probe scenario's draft, as FORMS names them."""
    draft, target = scenario.draft, scenario.model
    own = forms_of(algorithm(draft))
    features, vocab = getattr(draft, "features", ()), getattr(draft, "head_vocab", 0)
    layers, most = getattr(draft, "layers", 0), scenario.steps if isinstance(draft, Mtp) else 1
    widths = {getattr(target, "lanes", 0) * count for count in (1, len(features))}
    read: dict[FormName, str] = {
        "takes": getattr(draft, "takes", ""),
        "handed": getattr(draft, "handed", ""),
        "embedding": "own" if getattr(draft, "own_embedding", False) else "target's",
        "head": "own" if getattr(draft, "own_head", False) else "target's",
        "vocabulary": "target's" if not vocab else "other order" if vocab == target.vocab else "reduced",
        "first": "masked" if getattr(draft, "masks_first", False) else "seen",
        "chain": "chained" if getattr(draft, "chain", True) else "unchained",
        "spare": "layers" if layers > most else "no layer",
        "features": ("", "one", "two", "three")[min(3, len(features))],
        "width": "alike" if getattr(draft, "lanes", 0) in widths else "other",
        "match": getattr(draft, "match", ""),
        "span": "as long as there may be" if _span(draft) == 1 else "down to one",
    }
    return {name: read[name] for name in own}


def _span(draft: object) -> int:
    """Return of how many lengths a lookup's suffixes are."""
    return getattr(draft, "max_n", 1) - getattr(draft, "min_n", 1) + 1


def with_draft(choose: Choose, scenario: Scenario, name: Algorithm, forms: Forms) -> Scenario:
    """Return the scenario with a draft of another algorithm in the place of its EAGLE draft, in these forms.

    A lookup brings a model of few tokens along, prompts that repeat themselves, and rounds that force nothing.
    Raises ValueError for an unknown algorithm.
    """
    if name not in DRAFT_KINDS_BY_NAME:
        raise ValueError(f"invalid draft {name!r}: expected one of {', '.join(DRAFT_KINDS_BY_NAME)}")
    kind = DRAFT_KINDS_BY_NAME[name]
    if kind.proposes == "lookup":
        scenario = _of_few_tokens(choose, scenario)
    if kind.proposes == "chain" and scenario.schedule.chunk < _LONG_CHUNK and choose.one_of((True, False, False)):
        # Chunks shorter than what a chain of four layers and more makes again.
        scenario = put_in(scenario, "schedule", chunk=2)
    draft = SPECS[name](
        **{field: _value(choose, field, kind, scenario, forms) for field in SPECS[name].__struct_fields__}
    )
    if isinstance(draft, Ngram) and forms.get("span") == "as long as there may be":
        draft = replace(draft, min_n=draft.max_n)
    return replace(scenario, draft=draft)


def _value(choose: Choose, field: str, kind: DraftKind, scenario: Scenario, forms: Forms) -> Any:
    """Return the value of a field of a draft's specification: the EAGLE draft's, unless a form says otherwise."""
    own, target = scenario.draft, scenario.model
    assert isinstance(own, Eagle)
    assert isinstance(target, ProbeModel)
    match field:
        case "takes" | "handed":
            return forms.get(field, "after_norm")
        case "own_embedding" | "own_head":
            return forms.get("embedding" if field == "own_embedding" else "head") == "own"
        case "masks_first":
            return forms.get("first") == "masked"
        case "head_vocab":
            return _head_vocab(choose, target.vocab, forms.get("vocabulary", "target's"))
        case "layers":
            return _layers(choose, kind, scenario, forms.get("spare", "no layer"))
        case "chain":
            return forms.get("chain", "chained") == "chained"
        case "features":
            return _features(choose, target.layers, forms.get("features", "one"))
        case "lanes" if kind.hidden == "layers" and kind.proposes == "steps":
            features = len(_FEATURES[forms.get("features", "one")])
            alike = choose.one_of((target.lanes, min(64, target.lanes * min(features, target.layers))))
            return alike if forms.get("width") == "alike" else own.lanes
        case "max_n":
            return choose.one_of((3, 2, 4) if forms.get("span") != "as long as there may be" else (3, 2, 4, 1))
        case "min_n":
            return 1
        case "match":
            return forms.get("match", "earliest")
    return getattr(own, field)


_FEATURES = {"one": (0,), "two": (0, 1), "three": (0, 1, 2)}


def _features(choose: Choose, layers: int, how_many: str) -> tuple[int, ...]:
    """Return layers of the target, as many as there are of those asked for, in any order."""
    first, back = choose.integer(0, layers - 1), choose.boolean()
    order = [(first + layer) % layers for layer in range(layers)]
    return tuple((order[::-1] if back else order)[: len(_FEATURES[how_many])])


def _head_vocab(choose: Choose, vocab: int, which: str) -> int:
    """Return all tokens in their own order (0) or in another, or some: without favourites of a part of contexts."""
    if which == "reduced":
        return max(2, choose.one_of((vocab - vocab // 8, vocab * 3 // 4, vocab // 2)))
    return vocab if which == "other order" else 0


def _layers(choose: Choose, kind: DraftKind, scenario: Scenario, spare: str) -> int:
    """Return a layer a draft, with layers to spare if that is the form; of other drafts one, or some."""
    some = (1, 2) if scenario.steps > 1 else (1, 2, 0, 0)
    more = choose.one_of(some) if spare == "layers" else 0
    return min(scenario.steps + more, _MOST_LAYERS) if kind.layer_a_draft else 1 + more


def _of_few_tokens(choose: Choose, scenario: Scenario) -> Scenario:
    """Give the model few tokens, so that what came before comes again.

    In two of three the target follows no favourite and has ties everywhere, which go to low ids: then what followed
    once is likely to follow again, and matches are accepted. These have no stop tokens, which would come at once.
    """
    vocab = choose.one_of(_SMALL_VOCABS)
    model = replace(scenario.model, vocab=vocab)
    scenario = repeating(scenario, choose.integer(0, len(_PERIODS) - 1), vocab)
    if choose.one_of((True, False, False, False)) and not scenario.dynamic:
        scenario = _with_a_long_history(scenario)
    if choose.one_of((True, False, True)):
        model = replace(model, logit_bits=1, agreement=0)
        scenario = replace(scenario, requests=tuple(map(endless, scenario.requests)))
    return replace(scenario, model=model)


def _with_a_long_history(scenario: Scenario) -> Scenario:
    """Let the first request go on for longer, with pages for it."""
    first, memory = scenario.requests[0], scenario.memory
    first = replace(endless(first), budget=first.budget + _MORE_TOKENS)
    more = -(-_MORE_TOKENS // memory.page_size) + 1
    scenario = replace(scenario, requests=(first, *scenario.requests[1:]))
    return put_in(scenario, "memory", max_len=memory.max_len + _MORE_TOKENS, pages=memory.pages + more)


def repeating(scenario: Scenario, turn: int, vocab: int) -> Scenario:
    """Narrow prompts to tokens below `vocab`, at times with a period; more rounds verify what the draft proposes."""
    requests = tuple(
        _unforced_at_times(_narrowed(request, vocab, turn + number), number, scenario)
        for number, request in enumerate(scenario.requests)
    )
    return replace(scenario, requests=requests)


def _narrowed(request: Request, vocab: int, turn: int) -> Request:
    period = _PERIODS[turn % len(_PERIODS)] or len(request.prompt)
    prompt = tuple(request.prompt[place % period] % vocab for place in range(len(request.prompt)))
    stops, penalties = tuple(token % vocab for token in request.stops[:1]), request.penalties
    return replace(request, prompt=prompt, stops=stops, penalties=penalties and penalties.below(vocab))


def _unforced_at_times(request: Request, number: int, scenario: Scenario) -> Request:
    """Let about every other round verify what was found, as much as there is.

    Under a controller only the last round of a cycle does, because the others are to move it; the second request does
    in every other round, so that rows that found nothing run beside it.
    """
    rounds = request.rounds if len(request.rounds) > 1 else request.rounds * 2
    last = len(rounds) - 1
    often = not scenario.dynamic or number == 1
    chosen = {place for place in range(len(rounds)) if (place + number) % 2} if often else {last}
    plans = tuple(
        RoundPlan(num_drafts=scenario.steps if plan.num_drafts else 0, num_correct=-1) if place in chosen else plan
        for place, plan in enumerate(rounds)
    )
    return replace(request, rounds=plans)
