"""What shrinking makes smaller: numbers in the order of what a reader would rather have less of."""

from __future__ import annotations

from draftproof.properties.features import features_of
from draftproof.properties.lib.paths import get
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.penalties import PENALTIES, Penalties
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, Scenario, round_plan

_TARGET = ("model.heads", "model.kv_heads", "model.key_dim", "model.value_dim", "model.lanes")
_DRAFT = ("draft.heads", "draft.kv_heads", "draft.key_dim", "draft.value_dim", "draft.lanes", "draft.max_n")
_LINEAR = ("key_heads", "value_heads", "key_dim", "value_dim", "conv", "start")
_OWN = ("own_embedding", "own_head", "head_vocab", "masks_first")
_SEEDS = ("model.seed", "draft.seed", "memory.page_seed", "schedule.row_seed", "memory.poison")


def rounds(request: Request, max_len: int) -> int:
    """Decode rounds that a request has if what is not forced is rejected, and nothing but its plan limits a round."""
    emitted, count = 1, 0
    last = min(request.budget, max_len - len(request.prompt))
    if request.stop_at >= 0:
        last = min(last, request.stop_at + 1)
    while emitted < last:
        count += 1
        emitted += 1 + max(0, round_plan(request, count).num_correct)
    return count


def tokens_of(request: Request, count: int) -> int:
    """Return the budget with which a request has exactly `count` rounds, as `rounds` counts them."""
    return 1 + sum(1 + max(0, round_plan(request, number).num_correct) for number in range(1, count + 1))


def size(scenario: Scenario) -> tuple[int, ...]:
    """Return what is compared from the left.

    Requests, rounds, prompt tokens, layers, K, graphs, machinery that is on, the draft, what the requests want, batches
    and pages, sizes of the models, memory, tokens and seeds.
    """
    return (*_work(scenario), *_machinery(scenario), *_wanted(scenario), *_layout(scenario), *_rest(scenario))


def _work(scenario: Scenario) -> tuple[int, ...]:
    requests = scenario.requests
    return (
        len(requests),
        sum(rounds(request, scenario.memory.max_len) for request in requests),
        sum(len(request.prompt) for request in requests),
        _number(scenario, "model.layers"),
        scenario.steps,
        len(scenario.graphs.sizes),
    )


def _machinery(scenario: Scenario) -> tuple[int, ...]:
    """One where something is on that need not be."""
    return (
        len(features_of(scenario)),
        scenario.ranks.size,
        int(scenario.variant != "none"),
        scenario.schedule.services,
        len(scenario.graphs.tokens) + int(scenario.graphs.at_start),
        len(scenario.schedule.overlap),
        scenario.memory.checkpoint_slots,
        _linear_layers(scenario),
        int(not scenario.taps),
        scenario.tree.nodes + scenario.tree.topk if scenario.tree else 0,
        int(scenario.states.commit == "replay"),
        int(scenario.states.checkpoint > 0),
        _number(scenario, "draft.layers") + len(get(scenario, "draft.features") or ()),
        sum(get(scenario, f"draft.{name}") == "before_norm" for name in ("takes", "handed")),
        sum(bool(get(scenario, f"draft.{name}")) for name in _OWN),
        sum(map(_windowed, (scenario.model, scenario.draft))),
        sum(getattr(one, "kv_bits", 64) < 64 for one in (scenario.model, scenario.draft)),
        int(getattr(scenario.model, "mrope", False)) + sum(len(request.images) for request in scenario.requests),
    )


def _windowed(spec: object) -> int:
    """Count the layers of a specification that have windows, and the positions of one."""
    types, window = getattr(spec, "layer_types", ()), getattr(spec, "window", 0)
    return window + types.count("sliding_attention")


def _wanted(scenario: Scenario) -> tuple[int, ...]:
    requests = scenario.requests
    plans = [plan for request in requests for plan in request.rounds]
    return (
        len(plans),
        sum(request.budget for request in requests),
        sum((request.stop_at >= 0) + len(request.stops) for request in requests),
        sum(plan.num_drafts for plan in plans),
        sum(plan.num_correct < 0 for plan in plans),
        sum(max(0, plan.num_correct) for plan in plans),
        sum(plan.wrong != "next" for plan in plans),
        sum(request.arrival for request in requests),
        sum(map(_drawn, requests)),
        sum(len(plan.shape.parents) for plan in plans if plan.shape),
        sum(map(_penalized, requests)),
        sum(len(one.grammar.pattern) for one in requests if one.grammar),
        sum(1 + one.logprobs for one in requests if one.logprobs is not None),
        sum(1 + one.abort_at for one in requests if one.abort_at is not None),
        len(scenario.eos) + sum(map(_ends, requests)),
        sum(1 + one.prompt_logprobs.top for one in requests if one.prompt_logprobs),
    )


def _ends(request: Request) -> int:
    """Count what ends a request besides stop ids of its own, with the tokens of its sequences."""
    spans = sum(2 + span.last - span.first + span.last for span in request.stop_sequences_at)
    return spans + sum(1 + len(one) for one in request.stop_sequences) + request.min_tokens + int(request.ignore_eos)


def _drawn(request: Request) -> int:
    """Count what a request draws its tokens by: that it does, filters, and values other than the plain ones."""
    if request.sampling is None:
        return 0
    plain = Sampling()
    names = ("temperature", "top_k", "top_p", "min_p", "seed", "draft")
    return 1 + sum(getattr(request.sampling, name) != getattr(plain, name) for name in names)


def _penalized(request: Request) -> int:
    """Count what changes a request's logits: that something does, kinds of penalties, and biases."""
    own, plain = request.penalties, Penalties()
    if own is None:
        return 0
    return 1 + len(own.bias) + sum(getattr(own, name) != getattr(plain, name) for name in PENALTIES)


def _layout(scenario: Scenario) -> tuple[int, ...]:
    schedule, adaptive = scenario.schedule, scenario.adaptive_steps
    chunks = sum(-(-len(request.prompt) // schedule.chunk) for request in scenario.requests)
    return (
        chunks - len(scenario.requests),
        scenario.memory.page_size,
        schedule.max_batch,
        sum(scenario.graphs.sizes),
        _choices(adaptive) + adaptive.interval + adaptive.warmup if adaptive else 0,
        scenario.states.checkpoint,
    )


def _choices(adaptive: Adaptive | AdaptiveByBatch) -> int:
    """Count what a controller may choose from."""
    if isinstance(adaptive, Adaptive):
        return len(adaptive.candidates)
    return len(adaptive.rounding) + sum(1 + len(slot.candidates) for slot in adaptive.slots)


def _rest(scenario: Scenario) -> tuple[int, ...]:
    linear = get(scenario, "model.linear")
    memory = scenario.memory
    return (
        sum(_number(scenario, path) for path in _TARGET),
        sum(_number(scenario, path) for path in _DRAFT),
        sum(_number(linear, path) for path in _LINEAR),
        memory.request_slots,
        memory.pages,
        memory.max_len,
        scenario.schedule.chunk,
        sum(token for request in scenario.requests for token in request.prompt),
        scenario.model.vocab,
        23 - (_number(scenario, "model.logit_bits") or 23),
        *(_number(scenario, path) for path in _SEEDS),
    )


def _linear_layers(scenario: Scenario) -> int:
    return sum(kind == "linear_attention" for kind in get(scenario, "model.layer_types") or ())


def _number(value: object, path: str) -> int:
    """Return a number of the scenario; 0 where there is none."""
    return int(get(value, path) or 0)
