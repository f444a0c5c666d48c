"""What shrinking tries with the requests of a scenario: fewer, shorter, and wanting less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from draftproof.fuzz.shrinking.size import rounds, tokens_of
from draftproof.properties.features.data_parallel import first_ranks
from draftproof.properties.features.some_requests import without_stops
from draftproof.properties.lib.paths import get, lower, put, without
from draftproof.properties.values.grammar import Grammar, end_token
from draftproof.properties.values.penalties import PENALTIES, Penalties
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, TokenSpan
from draftproof.properties.values.tree import TreeShape

T = TypeVar("T", bound=Struct)
_PLAIN_PATTERNS = ("a*", "[ab]*", "(ab)*", "ab")


def fewer(value: T, path: str) -> Iterator[T]:
    """Yield the value with fewer items in the tuple at a path, if there is one."""
    items = get(value, path) or ()
    for places in without(len(items)):
        yield put(value, path, tuple(items[place] for place in places))


def lowered(value: T, path: str, least: int) -> Iterator[T]:
    """Yield the value with a lower number at a path, if there is one."""
    number = get(value, path)
    for smaller in lower(number, least) if number is not None else ():
        yield put(value, path, smaller)


def fewer_requests(scenario: Scenario) -> Iterator[Scenario]:
    """Return scenarios with fewer requests; the first of them arrives at once."""
    return map(at_once, map(first_ranks, fewer(scenario, "requests")))


def at_once(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests as much earlier as the first of them can be."""
    first = min(request.arrival for request in scenario.requests)
    return all_requests(scenario, partial(_earlier, steps=first))


def _earlier(request: Request, steps: int) -> Request:
    abort = None if request.abort_at is None else request.abort_at - steps
    return replace(request, arrival=request.arrival - steps, abort_at=abort)


def all_requests(scenario: Scenario, change: Callable[[Request], Request]) -> Scenario:
    """Return the scenario with every request changed."""
    return replace(scenario, requests=tuple(map(change, scenario.requests)))


def one_request(scenario: Scenario, place: int, request: Request) -> Scenario:
    requests = scenario.requests
    return replace(scenario, requests=(*requests[:place], request, *requests[place + 1 :]))


def each_request(change: Callable[[Request], Iterable[Request]]) -> Callable[[Scenario], Iterator[Scenario]]:
    """Return the pass that changes one request after the other."""

    def each(scenario: Scenario) -> Iterator[Scenario]:
        for place, request in enumerate(scenario.requests):
            for changed in change(request):
                yield one_request(scenario, place, changed)

    return each


def fewer_rounds(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer rounds: of all requests, of each, and each with a budget that is one less."""
    max_len = scenario.memory.max_len
    for count in lower(max(rounds(request, max_len) for request in scenario.requests), 0):
        yield all_requests(scenario, partial(_at_most, count=count, max_len=max_len))
    for place, request in enumerate(scenario.requests):
        for count in lower(rounds(request, max_len), 0):
            yield one_request(scenario, place, _at_most(request, count, max_len))
        for budget in lower(request.budget, 1):
            yield one_request(scenario, place, _with_budget(request, budget))


def _at_most(request: Request, count: int, max_len: int) -> Request:
    """Return the request with `count` rounds, if it has more."""
    return _with_budget(request, tokens_of(request, count)) if rounds(request, max_len) > count else request


def _with_budget(request: Request, budget: int) -> Request:
    """Return the request with a budget, and a minimum that is no more."""
    return replace(request, budget=budget, min_tokens=min(budget, request.min_tokens))


def fewer_eos(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer ids of the model."""
    return fewer(scenario, "eos")


def fewer_plans(request: Request) -> Iterator[Request]:
    """Fewer plans, and the later ones sooner."""
    return fewer(request, "rounds")


def simpler_plans(request: Request) -> Iterator[Request]:
    """Fewer drafts, forced ones, none right; with as many rounds as before, or with the same budget."""
    count = rounds(request, 1 << 20)
    for place, plan in enumerate(request.rounds):
        for simpler in _simpler(plan):
            changed = replace(request, rounds=(*request.rounds[:place], simpler, *request.rounds[place + 1 :]))
            yield _with_budget(changed, max(1, min(request.budget, tokens_of(changed, count))))
            yield changed


def _simpler(plan: RoundPlan) -> Iterator[RoundPlan]:
    if plan.shape is not None:
        yield from _simpler_shapes(plan, plan.shape)
        return
    for drafts in lower(plan.num_drafts, 0):
        yield replace(plan, num_drafts=drafts, num_correct=min(plan.num_correct, drafts))
    if plan.num_correct:
        yield replace(plan, num_correct=0)
    yield from lowered(plan, "num_correct", 1)
    if plan.num_correct < 0:
        yield replace(plan, num_correct=plan.num_drafts)
    if plan.wrong != "next":
        yield replace(plan, wrong="next")


def _simpler_shapes(plan: RoundPlan, shape: TreeShape) -> Iterator[RoundPlan]:
    """Fewer levels and rows of a tree, a shorter path."""
    for drafts in lower(plan.num_drafts, 1):
        cut = shape.cut(drafts, len(shape.parents))
        yield replace(plan, num_drafts=drafts, num_correct=len(cut.path), shape=cut)
    for rows in lower(len(shape.parents), 1):
        cut = shape.cut(plan.num_drafts, rows)
        yield replace(plan, num_correct=len(cut.path), shape=cut)
    for row in range(len(shape.parents), 0, -1):
        if row not in (*shape.parents, *shape.path) and len(shape.parents) > 1:
            yield replace(plan, shape=shape.without(row))
    for right in lower(len(shape.path), 0):
        yield replace(plan, num_correct=right, shape=replace(shape, path=shape.path[:right]))
    if plan.wrong != "next":
        yield replace(plan, wrong="next")


def shorter_prompts(scenario: Scenario) -> Iterator[Scenario]:
    """Shorter prompts: of all requests, of each, its beginning and its end, and without one token."""
    for length in lower(max(len(request.prompt) for request in scenario.requests), 1):
        yield all_requests(scenario, partial(_cut, length=length))
    for place, request in enumerate(scenario.requests):
        for length in lower(len(request.prompt), 1):
            yield one_request(scenario, place, _cut(request, length))
            yield one_request(scenario, place, replace(request, prompt=request.prompt[-length:], images=()))


def _cut(request: Request, length: int) -> Request:
    images = tuple(image for image in request.images if image.end <= length)
    return replace(request, prompt=request.prompt[:length], images=images)


def sooner(request: Request) -> Iterator[Request]:
    """Earlier arrivals."""
    return lowered(request, "arrival", 0)


def no_stops(request: Request) -> Iterator[Request]:
    """No stop token; a budget that ends the request where it did, or the one it has; fewer further ids."""
    if request.stop_at >= 0:
        yield _with_budget(replace(request, stop_at=-1), min(request.budget, request.stop_at + 1))
        yield replace(request, stop_at=-1)
    if request.stops:
        yield replace(request, stops=())
    yield from fewer(request, "stops")


def fewer_ends(request: Request) -> Iterator[Request]:
    """Yield a request that ends at stop ids of its own and at limits; ones with less that ends it besides."""
    if not request.has_ends:
        return
    yield without_stops(request)
    if request.ignore_eos:
        yield replace(request, ignore_eos=False)
    for smaller in lower(request.min_tokens, 0):
        yield replace(request, min_tokens=smaller)
    for name in ("stop_sequences", "stop_sequences_at"):
        yield from fewer(request, name)
    for place, span in enumerate(request.stop_sequences_at):
        before, behind = request.stop_sequences_at[:place], request.stop_sequences_at[place + 1 :]
        for shorter in (*lowered(span, "last", max(span.first, 0)), *_later(span)):
            yield replace(request, stop_sequences_at=(*before, shorter, *behind))


def _later(span: TokenSpan) -> Iterator[TokenSpan]:
    """Yield spans of fewer tokens that end where this one does."""
    for length in lower(span.last - span.first + 1, 1):
        yield replace(span, first=span.last - length + 1)


def plainer_sampling(request: Request) -> Iterator[Request]:
    """Yield a greedy request; one without filters; ones of the plainest temperature and seed."""
    if request.sampling is None:
        return
    yield replace(request, sampling=None)
    for changes in (
        {"top_k": None, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.0},
        {"seed": 0},
        {"draft": "greedy"},
    ):
        plainer = replace(request.sampling, **changes)
        if plainer != request.sampling:
            yield replace(request, sampling=plainer)


def fewer_penalties(request: Request) -> Iterator[Request]:
    """Yield a request without penalties; ones without one of them, and with fewer biases."""
    own = request.penalties
    if own is None:
        return
    yield replace(request, penalties=None)
    plain = Penalties()
    for name in PENALTIES:
        if getattr(own, name) != getattr(plain, name):
            yield replace(request, penalties=replace(own, **{name: getattr(plain, name)}))
    for place in range(len(own.bias) if len(own.bias) > 1 else 0):
        yield replace(request, penalties=replace(own, bias=own.bias[:place] + own.bias[place + 1 :]))


def plainer_grammar(request: Request) -> Iterator[Request]:
    """Yield a request without a grammar; ones with a short pattern."""
    own = request.grammar
    if own is None:
        return
    yield replace(request, grammar=None)
    for pattern in _PLAIN_PATTERNS:
        if len(pattern) < len(own.pattern):
            yield replace(request, grammar=Grammar(pattern=pattern))


def fewer_logprobs(request: Request) -> Iterator[Request]:
    """Yield a request that asks for no logprobs; ones that ask for fewer tokens."""
    if request.logprobs is not None:
        yield replace(request, logprobs=None)
        for fewer_tokens in lower(request.logprobs, 0):
            yield replace(request, logprobs=fewer_tokens)
    asked = request.prompt_logprobs
    if asked is not None:
        yield replace(request, prompt_logprobs=None)
        for fewer_tokens in lower(asked.top, 0):
            yield replace(request, prompt_logprobs=replace(asked, top=fewer_tokens))


def fewer_aborts(request: Request) -> Iterator[Request]:
    """Yield a request that is served to its end; ones that are aborted sooner."""
    if request.abort_at is not None:
        yield replace(request, abort_at=None)
        for sooner_step in lower(request.abort_at, request.arrival):
            yield replace(request, abort_at=sooner_step)


def plainer_tokens(scenario: Scenario) -> Iterator[Scenario]:
    """Token 0 throughout, counted up, or in one place; a smaller vocabulary."""
    yield all_requests(scenario, lambda request: replace(request, prompt=(0,) * len(request.prompt)))
    yield all_requests(scenario, lambda request: replace(request, prompt=tuple(range(len(request.prompt)))))
    for place, request in enumerate(scenario.requests):
        for at, token in enumerate(request.prompt):
            for smaller in lower(token, 0):
                prompt = (*request.prompt[:at], smaller, *request.prompt[at + 1 :])
                yield one_request(scenario, place, replace(request, prompt=prompt))
    for fewer_tokens in lowered(scenario, "model.vocab", 4) if get(scenario, "model.lanes") else ():
        vocab = fewer_tokens.model.vocab
        eos = tuple(dict.fromkeys(token % vocab for token in fewer_tokens.eos))
        yield all_requests(replace(fewer_tokens, eos=eos), partial(_below, vocab=vocab))


def _below(request: Request, vocab: int) -> Request:
    prompt, stops = (tuple(token % vocab for token in tokens) for tokens in (request.prompt, request.stops))
    sequences = tuple(tuple(token % vocab for token in tokens) for tokens in request.stop_sequences)
    penalties = request.penalties and request.penalties.below(vocab)
    if request.grammar:
        stops = tuple(dict.fromkeys((*stops, end_token(vocab))))
    return replace(request, prompt=prompt, stops=stops, penalties=penalties, stop_sequences=sequences)
