"""The drafts of probe scenarios: the generated EAGLE draft exchanged for one of another algorithm.

A probe scenario is drawn with an EAGLE draft of pairwise distinct sizes; every other draft takes these over, and a
`turn` says the rest, so that a list in which drafts take turns meets each of them in every form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from draftproof.properties.strategies.grammars import without_grammars
from draftproof.properties.strategies.requests import endless
from draftproof.properties.strategies.sampling import with_greedy_drafts
from draftproof.properties.strategies.trees import with_nodes, without_tree
from draftproof.properties.values.drafts import BY_NAME, SPECS, Algorithm, DraftKind, Eagle, algorithm
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Adaptive, AdaptiveByBatch, ProbeModel, Request, RoundPlan, Scenario
from draftproof.properties.values.validate import validate

T = TypeVar("T")
Controller = Adaptive | AdaptiveByBatch
# Periods of what takes turns are 2, 3, 4, 5, 7: each meets each of the others.
_MORE_LAYERS = (0, 1, 0, 2, 0)
_LAYERS = (1, 2, 1, 3)
_LONGEST = (3, 2, 4, 1)
_SMALL_VOCABS = (5, 4, 6, 4, 7)
_PERIODS = (0, 3, 0, 2, 0, 4, 1)
# Every 7th scenario of a draft has one step, and a verify width of two, unless it is to be a wide one.
_ONE_STEP, _WIDE = 7, 7
_MOST_LAYERS, _LONG_CHUNK = 16, 33
# Every 4th scenario of a lookup has a request with a history of 20 tokens more.
_LONG, _MORE_TOKENS = 4, 20


def with_draft(scenario: Scenario, name: Algorithm, turn: int) -> Scenario:
    """Return the scenario with a draft of another algorithm in the place of its EAGLE draft; a pure function.

    A lookup brings a model of few tokens along, prompts that repeat themselves, and rounds that force nothing.
    Raises ValueError for an unknown algorithm, and for a scenario of another draft or of a real model.
    """
    if name not in BY_NAME:
        raise ValueError(f"invalid draft {name!r}: expected one of {', '.join(BY_NAME)}")
    draft, kind = scenario.draft, BY_NAME[name]
    if not isinstance(draft, Eagle) or not isinstance(scenario.model, ProbeModel):
        tag = draft.__struct_config__.tag
        raise ValueError(f"invalid draft.kind {tag!r}: expected eagle, that of a probe, to be exchanged for another")
    if name == algorithm(draft):
        return scenario
    scenario = without_tree(scenario)
    if not kind.draws:
        scenario = with_greedy_drafts(scenario)
    if kind.proposes == "lookup":
        # With other tokens a grammar's end is another one.
        scenario = _of_few_tokens(without_grammars(scenario), turn)
    elif turn % _ONE_STEP == 5 and scenario.steps < _WIDE:
        scenario = _lasting(with_steps(scenario, 1))
    if kind.proposes == "chain" and turn % 3 == 1 and scenario.schedule.chunk < _LONG_CHUNK:
        # Chunks shorter than what a chain of four layers and more makes again.
        scenario = put_in(scenario, "schedule", chunk=2)
    made = {field: _value(field, kind, scenario, turn) for field in SPECS[name].__struct_fields__}
    return validate(replace(scenario, draft=SPECS[name](**made)))


def _turn(options: Sequence[T], turn: int) -> T:
    return options[turn % len(options)]


def _value(field: str, kind: DraftKind, scenario: Scenario, turn: int) -> Any:
    """Return the value of a field of a draft's specification: the EAGLE draft's, unless a turn says it."""
    is_wide_head = kind.hidden == "layers" and kind.proposes == "steps"
    make = (_FIELDS | _OF_WIDE_HEADS if is_wide_head else _FIELDS).get(field)
    make = _layers_for_drafts if field == "layers" and kind.layer_a_draft else make
    return getattr(scenario.draft, field) if make is None else make(scenario, turn)


def _layers_for_drafts(scenario: Scenario, turn: int) -> int:
    """Return a layer a draft, sometimes with layers to spare. A single step mostly has a single layer."""
    more = _turn(_MORE_LAYERS, turn) if scenario.steps > 1 else _turn((0, 0, 0, 1), turn // _ONE_STEP)
    return min(scenario.steps + more, _MOST_LAYERS)


def _lanes(scenario: Scenario, turn: int) -> int:
    """Return the EAGLE draft's width, or at times that of the target or of the features: only there does it show what
    goes by width alone.
    """
    own, target = scenario.draft.lanes, scenario.model.lanes  # type: ignore[union-attr]  # a probe's
    return _turn((own, own, target, own, target * len(_features(scenario, turn))), turn)


def _head_vocab(scenario: Scenario, turn: int) -> int:
    """Return three quarters of the target's tokens, half of them, or 0 for all."""
    vocab = scenario.model.vocab
    return _turn((vocab * 3 // 4, 0, vocab // 2, vocab * 3 // 4), turn)


def _features(scenario: Scenario, turn: int) -> tuple[int, ...]:
    """Return one to three layers of the target, in any order."""
    count = scenario.model.layers  # type: ignore[union-attr]  # a probe's
    order = [(turn + layer) % count for layer in range(count)]
    if turn // 2 % 2:
        order.reverse()
    return tuple(order[: _turn((2, 1, 3), turn)])


def _longest(scenario: Scenario, turn: int) -> int:
    """Return one to four tokens, under a controller two and more."""
    return max(_turn(_LONGEST, turn), 2 if scenario.adaptive else 1)


def _shortest(scenario: Scenario, turn: int) -> int:
    """Return mostly one token, so that most rounds find something; under a controller as many as there may be, so that
    rows that find nothing run beside others.
    """
    longest = _longest(scenario, turn)
    if scenario.adaptive:
        return longest
    return 1 if turn % 3 else 1 + turn // 3 % longest


# How a turn makes the fields that an EAGLE draft has not. Three in four chain; a lookup mostly goes down to one token,
# so that most rounds find something.
_FIELDS: dict[str, Callable[[Scenario, int], Any]] = {
    "layers": lambda _, turn: _turn(_LAYERS, turn),
    "chain": lambda _, turn: turn % 4 != 3,
    "features": _features,
    "max_n": _longest,
    "match": lambda _, turn: "latest" if turn % 5 == 2 else "earliest",
    "min_n": _shortest,
}
# Those of a head on features that it has as an EAGLE draft does, and others.
_OF_WIDE_HEADS: dict[str, Callable[[Scenario, int], Any]] = {"lanes": _lanes, "head_vocab": _head_vocab}


def _of_few_tokens(scenario: Scenario, turn: int) -> Scenario:
    """Give the model few tokens, so that what came before comes again.

    In two of three the target follows no favourite and has ties everywhere, which go to low ids: then what followed
    once is likely to follow again, and matches are accepted. These have no stop tokens, which would come at once.
    """
    vocab = _turn(_SMALL_VOCABS, turn)
    model = replace(scenario.model, vocab=vocab)
    scenario = repeating(scenario, turn, vocab)
    if turn % _LONG == 1 and not scenario.dynamic:
        scenario = _with_a_long_history(scenario)
    if turn % 3 != 2:
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
    period = _turn(_PERIODS, turn) or len(request.prompt)
    prompt = tuple(request.prompt[place % period] % vocab for place in range(len(request.prompt)))
    stops, penalties = tuple(token % vocab for token in request.stops[:1]), request.penalties
    return replace(request, prompt=prompt, stops=stops, penalties=penalties and penalties.below(vocab))


def _unforced_at_times(request: Request, number: int, scenario: Scenario) -> Request:
    """Let about every other round verify what was found, as much as there is.

    Under a controller only the last of a cycle does, since the others are to move it, but for the second request, so
    that rows that found nothing run beside it.
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


def with_steps(scenario: Scenario, steps: int) -> Scenario:
    """Return the scenario with at most `steps` drafts a round: step counts to choose from and plans are cut to that.

    Raises ValueError for less than one.
    """
    if steps < 1:
        raise ValueError(f"invalid steps {steps}: expected 1 or more")
    requests = tuple(
        replace(request, rounds=tuple(_cut(plan, steps) for plan in request.rounds)) for request in scenario.requests
    )
    made = replace(
        scenario, steps=min(scenario.steps, steps), adaptive=_fewer(scenario.adaptive, steps), requests=requests
    )
    return made if made.tree is None else with_nodes(made, made.tree.nodes)


def _fewer(adaptive: Controller | None, steps: int) -> Controller | None:
    """Return a controller of at most `steps` steps; none if that leaves one list nothing to choose from."""
    if adaptive is None:
        return None
    initial = min(adaptive.initial, steps)
    if isinstance(adaptive, AdaptiveByBatch):
        slots = tuple(replace(slot, candidates=_at_most(slot.candidates, steps)) for slot in adaptive.slots)
        return replace(adaptive, initial=initial, slots=slots)
    if adaptive.initial < max(adaptive.steps) and initial == steps:
        # It could rise, and still should.
        initial = max(1, steps - 1)
    made = replace(adaptive, initial=initial, candidates=_at_most(adaptive.candidates, steps))
    return made if len(made.steps) > 1 else None


def _at_most(candidates: Sequence[int], steps: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(count, steps) for count in candidates))


def _lasting(scenario: Scenario) -> Scenario:
    """Return the scenario with a first request that no stop token ends: it lasts for some rounds."""
    first, *others = scenario.requests
    return replace(scenario, requests=(endless(first), *others))


def _cut(plan: RoundPlan, steps: int) -> RoundPlan:
    drafts = min(plan.num_drafts, steps)
    return replace(plan, num_drafts=drafts, num_correct=min(plan.num_correct, drafts))
