"""Quantities of a scenario, how large each may be, and how one is put on a boundary.

Bugs sit where a number equals another one, is one more or one less or a multiple of it, or passes a power of two that a
kernel, a table or a counter is blocked by. A boundary is made by changing one quantity of a scenario that was drawn;
the rest gets the room that it needs then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from math import lcm
from typing import Literal, NamedTuple

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.token_budget import whole_step
from draftproof.properties.lib.paths import get, put, put_in
from draftproof.properties.validate import is_valid
from draftproof.properties.values.drafts import Mtp
from draftproof.properties.values.grammar import end_token
from draftproof.properties.values.scenario import ProbeModel, Request, RoundPlan, Scenario, TokenSpan, pages_needed
from draftproof.properties.values.tree import Tree

Relation = Literal["equal", "one more", "one less", "multiple", "power of two", "below a power", "above a power"]
RELATIONS: tuple[Relation, ...] = Relation.__args__  # type: ignore[attr-defined]
_TRIES = 6
_FEW_TOKENS, _SHORT_PROMPT, _LASTING = 4, 24, 2
_MOST_BEAMS = 8  # with as many, two steps have candidates for 65 nodes
_WINDOWS = ("model.window", "draft.window")
MOST_WORK = 320.0
"""What a scenario may take (`work_of`). Large values are cheap in one dimension at a time, and dear in two."""
_OFF: Mapping[Relation, int] = {"one more": 1, "one less": -1, "below a power": -1, "above a power": 1}


class Quantity(NamedTuple):
    """A number that a scenario has.

    `values` returns what it is in a scenario, of each request if these differ; `put` gives it another value, which may
    leave the rest without room. It is from `least` to `most`, for the reason `because`. Without `feature` it is not
    there, nor beside the values `without` of other dimensions of a row (rows.py). From `inert` on it changes nothing
    (None: it always does), so that a boundary is put below that.
    """

    values: Callable[[Scenario], tuple[int, ...]]
    put: Callable[[Scenario, int], Scenario]
    least: int
    most: int
    because: str
    feature: str = ""
    without: tuple[str, ...] = ()
    inert: Callable[[Scenario], int] | None = None


def _of(*paths: str) -> Callable[[Scenario], tuple[int, ...]]:
    return lambda scenario: tuple(int(value) for path in paths if (value := get(scenario, path)))


def _at(path: str) -> tuple[Callable[[Scenario], tuple[int, ...]], Callable[[Scenario, int], Scenario]]:
    """Return what a field is, and what gives it another value and changes nothing else; one that is off stays off."""
    return _of(path), lambda scenario, value: _put_on(scenario, path, value)


def _put_on(scenario: Scenario, path: str, value: object) -> Scenario:
    """Return the scenario with another value of a field that is on."""
    return put(scenario, path, value) if get(scenario, path) else scenario


def _each(value: Callable[[Request], int | None]) -> Callable[[Scenario], tuple[int, ...]]:
    """Return what a number is of each request that has one."""
    return lambda scenario: tuple(filter(None, map(value, scenario.requests)))


def _largest(path: str) -> tuple[Callable[[Scenario], tuple[int, ...]], Callable[[Scenario, int], Scenario]]:
    """Return what the largest of some captured sizes is, and what gives them another largest one."""

    def put_largest(scenario: Scenario, size: int) -> Scenario:
        return _put_on(scenario, path, (*(one for one in get(scenario, path)[:-1] if one < size), size))

    return lambda scenario: tuple(get(scenario, path)[-1:]), put_largest


def _first(scenario: Scenario, **fields: object) -> Scenario:
    """Return the scenario with fields of its first request replaced."""
    first, *others = scenario.requests
    return replace(scenario, requests=(replace(first, **fields), *others))


def _put_requests(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with `count` requests: the first ones, or all of them again a step later."""
    kept = scenario.requests[:count]
    more = (
        _shorter(replace(one, arrival=one.arrival + 1 + place // len(scenario.requests), abort_at=None))
        for place, one in enumerate(islice(cycle(scenario.requests), max(0, count - len(kept))))
    )
    ranks = {one.rank for one in kept}
    requests = (*kept, *(one if one.rank in ranks else replace(one, rank=0) for one in more))
    return replace(scenario, requests=requests)


def _shorter(request: Request) -> Request:
    """Return the request with a prompt and a budget that cost little: many of them are there for their number."""
    made = replace(
        request, budget=min(request.budget, _FEW_TOKENS), images=(), prompt_logprobs=None, stop_sequences_at=()
    )
    stop_at = request.stop_at if request.stop_at < _FEW_TOKENS else -1
    minimum = min(request.min_tokens, made.budget)
    return replace(made, prompt=request.prompt[:_SHORT_PROMPT], stop_at=stop_at, min_tokens=minimum)


def _put_batch(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with a decode batch of `count` rows, and requests for it that arrive at once."""
    made = _put_requests(scenario, max(count, len(scenario.requests)))
    requests = tuple(
        replace(one, arrival=min(one.arrival, 1), abort_at=None if one.arrival > 1 else one.abort_at)
        for one in made.requests
    )
    return put_in(replace(made, requests=requests), "schedule", max_batch=count)


def _put_steps(scenario: Scenario, steps: int) -> Scenario:
    """Return the scenario with `steps` drafts a round, which the first plan of every request wants."""
    if scenario.adaptive_steps is not None or scenario.tree is not None:
        return scenario

    def cut(plan: RoundPlan, place: int) -> RoundPlan:
        drafts = steps if place == 0 and plan.num_drafts else min(plan.num_drafts, steps)
        return replace(plan, num_drafts=drafts, num_correct=min(plan.num_correct, drafts))

    # The first two last for a round of all drafts.
    requests = tuple(
        replace(
            one,
            rounds=tuple(cut(plan, place) for place, plan in enumerate(one.rounds)),
            budget=one.budget + (steps if number < _LASTING else 0),
        )
        for number, one in enumerate(scenario.requests)
    )
    draft = scenario.draft
    if isinstance(draft, Mtp) and draft.layers < steps:
        draft = replace(draft, layers=steps)
    return replace(scenario, steps=steps, requests=requests, draft=draft)


def _put_prompt(scenario: Scenario, length: int) -> Scenario:
    """Return the scenario with a first prompt of `length` tokens; images that no longer fit are dropped."""
    first = scenario.requests[0]
    prompt = tuple(islice(cycle(first.prompt), length))
    asked = first.prompt_logprobs
    if asked and asked.start >= length:
        asked = replace(asked, start=max(0, length - 2))
    spans = tuple(replace(one, first=max(one.first, -length)) for one in first.stop_sequences_at)
    images = tuple(one for one in first.images if one.end <= length)
    return _first(scenario, prompt=prompt, prompt_logprobs=asked, stop_sequences_at=spans, images=images)


def _put_repeats(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with a first prompt that ends with `count` copies of its last token."""
    *before, last = scenario.requests[0].prompt
    while before and before[-1] == last:
        before.pop()
    return _put_prompt(_first(scenario, prompt=(*before, *(last,) * count)), len(before) + count)


def _put_budget(scenario: Scenario, budget: int) -> Scenario:
    """Return the scenario with a budget of `budget` tokens for the first request."""
    first = scenario.requests[0]
    spans = tuple(one for one in first.stop_sequences_at if one.last < budget)
    stop_at = first.stop_at if first.stop_at < budget else -1
    return _first(
        scenario, budget=budget, min_tokens=min(first.min_tokens, budget), stop_sequences_at=spans, stop_at=stop_at
    )


def _put_page_size(scenario: Scenario, size: int) -> Scenario:
    pages = -(-scenario.memory.pages * scenario.memory.page_size // size)
    return put_in(scenario, "memory", page_size=size, pages=max(1, pages))


def _put_window(scenario: Scenario, window: int) -> Scenario:
    for path in _WINDOWS:
        scenario = _put_on(scenario, path, window)
    return scenario


def _put_vocab(scenario: Scenario, vocab: int) -> Scenario:
    """Return the scenario with a larger vocabulary; a smaller one would lack tokens."""
    if vocab < scenario.model.vocab or not isinstance(scenario.model, ProbeModel):
        return scenario
    requests = tuple(
        replace(one, stops=tuple(dict.fromkeys((*one.stops, end_token(vocab))))) if one.grammar else one
        for one in scenario.requests
    )
    made = put(replace(scenario, requests=requests), "model.vocab", vocab)
    return put(made, "draft.head_vocab", vocab) if get(made, "draft.head_vocab") == scenario.model.vocab else made


def _put_top_k(scenario: Scenario, top_k: int) -> Scenario:
    requests = tuple(
        replace(one, sampling=replace(one.sampling, top_k=top_k)) if one.sampling else one for one in scenario.requests
    )
    return replace(scenario, requests=requests)


def _put_logprobs(scenario: Scenario, top: int) -> Scenario:
    requests = tuple(one if one.logprobs is None else replace(one, logprobs=top) for one in scenario.requests)
    return replace(scenario, requests=requests)


def _put_image(scenario: Scenario, tokens: int) -> Scenario:
    """Return the scenario with a first image that is `tokens` tokens wide, in a prompt that has images."""
    for place, request in enumerate(scenario.requests):
        if request.images:
            image = replace(request.images[0], frames=1, height=1, width=tokens)
            longer = tuple(islice(cycle(request.prompt), max(len(request.prompt), image.end)))
            changed = replace(request, images=(image,), prompt=longer)
            return replace(scenario, requests=(*scenario.requests[:place], changed, *scenario.requests[place + 1 :]))
    return scenario


def _put_sequence(scenario: Scenario, length: int) -> Scenario:
    """Return the scenario with a stop sequence of `length` tokens, some of which may be in the prompt."""
    for place, request in enumerate(scenario.requests):
        if request.stop_sequences_at and length <= request.budget + len(request.prompt):
            last = min(request.budget - 1, max(request.stop_sequences_at[0].last, length - len(request.prompt) - 1))
            span = TokenSpan(first=last - length + 1, last=last)
            changed = replace(request, stop_sequences_at=(span,))
            return replace(scenario, requests=(*scenario.requests[:place], changed, *scenario.requests[place + 1 :]))
    return scenario


def _put_nodes(scenario: Scenario, nodes: int) -> Scenario:
    """Return the scenario with a larger tree, of more beams if need be, which rounds of its first request fill."""
    tree, steps = scenario.tree, scenario.steps
    if tree is None or nodes <= tree.nodes:
        return scenario
    larger = (Tree(topk=topk, nodes=nodes) for topk in range(tree.topk, _MOST_BEAMS + 1))
    tree = next((one for one in larger if one.candidates(steps) >= nodes), tree)
    rounds = (
        replace(one, shape=one.shape and one.shape.filled(tree.topk, one.num_drafts, tree.nodes))
        for one in scenario.requests[0].rounds
    )
    return _first(replace(scenario, tree=tree), rounds=tuple(rounds))


def _put_checkpoint(scenario: Scenario, interval: int) -> Scenario:
    """Return the scenario with states that are kept after so many tokens; a prefix cache keeps two at least."""
    keeps, between = scenario.schedule.prefix_cache, lcm(interval, scenario.memory.page_size)
    if not scenario.states.checkpoint or (keeps and 2 * between > _longest(scenario)):
        return scenario
    return put(scenario, "states.checkpoint", interval)


def _totals(scenario: Scenario) -> tuple[int, ...]:
    return tuple(len(one.prompt) + one.budget for one in scenario.requests)


def _longest(scenario: Scenario) -> int:
    return max(_totals(scenario))


def _rows(scenario: Scenario) -> int:
    return min(scenario.schedule.max_batch, len(scenario.requests))


QUANTITIES: Mapping[str, Quantity] = {
    "requests": Quantity(lambda s: (len(s.requests),), _put_requests, 1, 40, "each takes a run of its own"),
    "batch": Quantity(_of("schedule.max_batch"), _put_batch, 1, 64, "what a scenario can say; 64 rows are dear"),
    "steps": Quantity(
        _of("steps"), _put_steps, 1, 16, "layers of a chain, of which there are 16", without=("adaptive-steps", "trees")
    ),
    "prompt": Quantity(_each(lambda one: len(one.prompt)), _put_prompt, 1, 1040, "above 1024"),
    "chunk": Quantity(*_at("schedule.chunk"), 1, 1040, "above 1024"),
    "budget": Quantity(_each(lambda one: one.budget), _put_budget, 1, 72, "a round each"),
    "page size": Quantity(_of("memory.page_size"), _put_page_size, 1, 256, "what a scenario can say", inert=_longest),
    "pages": Quantity(*_at("memory.pages"), 1, 4100, "above 4096", without=("preemption",)),
    "max_len": Quantity(*_at("memory.max_len"), 4, 4100, "above 4096"),
    "request slots": Quantity(*_at("memory.request_slots"), 1, 256, "what a scenario can say"),
    "bucket": Quantity(*_largest("graphs.sizes"), 1, 64, "what a scenario can say", without=("eager",)),
    "vocabulary": Quantity(lambda s: (s.model.vocab,), _put_vocab, 4, 2050, "above 2048; each token is a column"),
    "repeats": Quantity(lambda s: (), _put_repeats, 1, 72, "above 64", "penalties"),
    "token bucket": Quantity(
        *_largest("graphs.tokens"), 1, 1100, "above 1024", "mixed", ("eager", "snapshot", "replay")
    ),
    "token budget": Quantity(*_at("schedule.token_budget"), 1, 1040, "above 1024", "token-budget", inert=whole_step),
    "window": Quantity(_of(*_WINDOWS), _put_window, 1, 1024, "what a scenario can say", "windows", inert=_longest),
    "top_k": Quantity(
        _each(lambda one: one.sampling.top_k if one.sampling else None), _put_top_k, 1, 1040, "above 1024", "sampling"
    ),
    "logprobs": Quantity(_each(lambda one: one.logprobs), _put_logprobs, 1, 20, "what servers allow", "logprobs"),
    "image": Quantity(
        lambda s: tuple(image.end - image.start for one in s.requests for image in one.images),
        _put_image,
        1,
        64,
        "what a scenario can say of a side",
        "mrope",
    ),
    "sequence": Quantity(lambda s: (), _put_sequence, 1, 64, "what a scenario can say", "stop-sequences"),
    "nodes": Quantity(lambda s: (s.tree.nodes,) if s.tree else (), _put_nodes, 1, 64, "rows of one request", "trees"),
    "checkpoint": Quantity(
        _of("states.checkpoint"), _put_checkpoint, 1, 1040, "above 1024", without=("dense",), inert=_longest
    ),
    "checkpoint slots": Quantity(
        *_at("memory.checkpoint_slots"), 1, 64, "more than a few keep everything", "prefix-cache", ("dense",)
    ),
    "draft batch": Quantity(*_at("schedule.draft_batch"), 1, 64, "rows", "draft-batch", inert=_rows),
}
"""Quantities by name."""


def boundary(choose: Choose, scenario: Scenario, name: str, relation: Relation) -> Scenario:
    """Return the scenario with a quantity that stands in a relation to another one, or to a power of two.

    If no such value in the quantity's range makes a scenario that can be run, a power of two is taken; if there is none
    either, the scenario is returned as it was.
    """
    quantity = QUANTITIES[name]
    now = quantity.values(scenario)
    asked: tuple[Relation, ...] = (relation, "power of two")
    for each in asked:
        targets = dict.fromkeys(_targets(scenario, name, each))
        most = min(quantity.most, quantity.inert(scenario) - 1) if quantity.inert else quantity.most
        options = [one for one in targets if quantity.least <= one <= most and now != (one,)]
        for _ in range(min(_TRIES, len(options))):
            value = options.pop(choose.integer(0, len(options) - 1))
            made = with_room(quantity.put(scenario, value))
            if made != scenario and _stands(made, name, value, each) and is_valid(made):
                return made
    return scenario


def _stands(made: Scenario, name: str, value: int, relation: Relation) -> bool:
    """Return whether a value is what was asked for, and in that relation, although others made room for it."""
    values = QUANTITIES[name].values(made) or (value,)
    return work_of(made) <= MOST_WORK and value in values and value in _targets(made, name, relation)


def _targets(scenario: Scenario, name: str, relation: Relation) -> Iterator[int]:
    """Yield the values by which a quantity would stand in a relation."""
    off = _OFF.get(relation, 0)
    if "power" in relation:
        yield from (2**power + off for power in range(4, 13))
        return
    for value in others_of(scenario, name):
        if relation == "multiple":
            yield from (2 * value, 3 * value)
        else:
            yield value + off


def others_of(scenario: Scenario, name: str) -> tuple[int, ...]:
    """Return the values of all other quantities, and of sums and products that engines compute from them.

    Of a quantity that each request has, such as its prompt, the others' are among them.
    """
    own = {value for other, one in QUANTITIES.items() for value in one.values(scenario)[other == name :]}
    batch, width = scenario.schedule.max_batch, scenario.width
    chunk = min(scenario.schedule.chunk, max(len(one.prompt) for one in scenario.requests))
    made = {width, batch * width, chunk + width, chunk + batch * width, len(scenario.requests) * width}
    made |= set(_totals(scenario)) | {total + scenario.steps for total in _totals(scenario)}
    return tuple(sorted(value for value in own | made if value > 0))


def work_of(scenario: Scenario) -> float:
    """Return about how many rounds of a small model a run takes: tokens of prompts are cheap, columns are not.

    Layers of a draft run for all of them, and so do columns of a vocabulary. Slots are compared, ranks wait.
    """
    slots = scenario.memory.pages * scenario.memory.page_size
    columns, layers = scenario.model.vocab / 1000, getattr(scenario.draft, "layers", 1)
    rounds = sum(one.budget for one in scenario.requests) * (1 + columns) * (1 + layers / 8)
    tokens = sum(len(one.prompt) for one in scenario.requests) / 8 * (1 + 2 * columns) * (1 + layers / 3)
    return (rounds + tokens + slots / 300 + _reported(scenario)) * (2 + scenario.ranks.size) / 3


def _reported(scenario: Scenario) -> float:
    """Return what it takes to say in each step which pages a prefix cache has: each is known by all tokens up to it."""
    if not scenario.schedule.prefix_cache:
        return 0.0
    steps = sum(-(-len(one.prompt) // scenario.schedule.chunk) for one in scenario.requests)
    longest = max(len(one.prompt) + one.budget for one in scenario.requests)
    return steps * longest * longest / scenario.memory.page_size / 30_000


def with_room(scenario: Scenario) -> Scenario:
    """Return the scenario with the memory that its requests need at least: rows, positions and pages."""
    arrivals = Counter((one.arrival, one.rank) for one in scenario.requests if one.flaw == "none")
    slots = max(scenario.memory.request_slots, scenario.schedule.max_batch, *arrivals.values())
    longest = max(len(one.prompt) for one in scenario.requests)
    max_len = max(scenario.memory.max_len, longest + 1)
    made = put_in(scenario, "memory", request_slots=slots, max_len=max_len)
    needs = max(pages_needed(made, one) for one in made.requests)
    return put_in(made, "memory", pages=max(made.memory.pages, needs))
