"""Requests that begin as others did: a prefix cache, prompts with pages in common, and too few pages to keep all.

Of a model with linear layers states are kept at ends of pages, or of some of them, and there are few slots for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice, permutations
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, field_is_not
from draftproof.properties.features.shared_pages import BESIDE
from draftproof.properties.features.some_requests import endless, slots_for, sooner
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Request, Scenario, pages_needed

_CERTAIN = 1 << 24
"""A bias that no logit of a probe reaches: what is emitted is known before it runs."""
_LATER = (8, 4, 12, 0, 6)
_ORDERS = tuple(permutations(("turn", "same", "parted", "longer")))
_ORDERS_SAME = (*_ORDERS, *2 * tuple(order for order in _ORDERS if order[0] == "same"))
_ORDERS_TURN = tuple(order for order in _ORDERS if order[0] == "turn")
"""Orders of the ways in which prompts begin: often the second is the same as the first, while its pages are cached.

Where two states are kept, the second prompt goes on from the text of the first, mostly at the older state.
"""
_SOON = (3, 1, 3)
_AT_ONCE = (False, False, False, True)
"""Whether a later request ends with its first token, before its draft has seen what it looks ahead at."""
_SLOTS = (6, 2, 3, 2, 6, 1)
_FEW_SLOTS = 2
_FULL_SLOTS = (_FEW_SLOTS, 6)
_SLOTS_TIGHT = (6, 1, 6)
"""How many slots there are for states.

_FEW_SLOTS are so few that a request begins at the older of two states; with _FULL_SLOTS a state is kept at the end of
every page; _SLOTS_TIGHT are for pages of one token.
"""
_PAGES = (1, 2, 0, 4)
_PAGES_PREEMPTED = (0, 1, 0, 2)
"""How many pages there are more than the longest request can come to own."""


def with_prefix_cache(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw how each prompt begins as an earlier one, and how many pages there are.

    The first request emits one token again and again, so that another can go on from its text. Those that are missing
    to one of each kind end soon.
    """
    first, *others = scenario.requests
    scenario = _with_states(choose, scenario)
    size, at_older = scenario.memory.page_size, scenario.memory.checkpoint_slots == _FEW_SLOTS
    token = choose.integer(0, scenario.model.vocab - 1)
    certain = Penalties(bias=(TokenBias(token=token, amount=_CERTAIN),))
    length = max(-(-len(first.prompt) // size), 2) * size + choose.one_of((0, 0, 1))
    prompt = tuple(islice(cycle(first.prompt), length))
    requests = [replace(endless(first), prompt=prompt, penalties=certain, sampling=None)]
    kinds = choose.one_of(_ORDERS_TURN if at_older else _ORDERS_SAME)
    others += [replace(first, budget=choose.one_of(_SOON), stop_at=-1) for _ in range(len(kinds) - len(others))]
    for one, kind in zip(others, cycle(kinds), strict=False):
        changed = replace(one, prompt=_prompt(choose, scenario, requests, kind, token))
        changed = replace(changed, budget=1, stop_at=-1) if choose.one_of(_AT_ONCE) else changed
        if not scenario.schedule.preemption:
            changed = replace(changed, arrival=requests[-1].arrival + choose.one_of(_LATER))
        requests.append(changed)
    return _fitted(choose, replace(scenario, requests=tuple(requests)))


def _prompt(choose: Choose, scenario: Scenario, before: Sequence[Request], kind: str, token: int) -> tuple[int, ...]:
    """Draw a prompt that equals an earlier one, extends it or a text, or differs from it from a page's end on."""
    first, source = before[0], choose.one_of(before)
    size, vocab = scenario.memory.page_size, scenario.model.vocab
    if kind == "same":
        return first.prompt
    if kind == "turn":
        less = (size + 1, 1, size + 1, 0) if scenario.memory.checkpoint_slots == _FEW_SLOTS else (1, 0, 3)
        known = first.prompt + (token,) * max(1, first.budget - choose.one_of(less))
    elif kind == "longer":
        known = source.prompt
    else:
        end = len(source.prompt) // size * size
        known = source.prompt[: max(1, end + choose.one_of((0, -1, 1, -size)))]
    after = source.prompt[len(known)] if len(known) < len(source.prompt) else token
    start = (after + 1) % vocab
    return known + tuple((start + place) % vocab for place in range(choose.integer(1, 2 * size + 1)))


def _fitted(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw pages for the longest request, or for a few pages more; positions for all that is wanted.

    Of trees, which differ from row to row, there are pages for two in half of the scenarios, and they come sooner. So
    they do where large batches get no drafts: two rows are such a batch there.
    """
    limit = min(1, scenario.schedule.draft_batch)
    at_once = 2 if limit or (scenario.tree and choose.boolean()) else 1
    requests = scenario.requests if at_once == 1 or scenario.schedule.preemption else sooner(scenario.requests)
    memory = scenario.memory
    longest = max(len(one.prompt) + one.budget for one in requests)
    memory = replace(
        memory,
        max_len=max(memory.max_len, longest + scenario.steps),
        request_slots=slots_for(scenario, requests),
    )
    scenario = replace(scenario, requests=requests, memory=memory)
    needs = sorted(pages_needed(scenario, one) for one in requests)
    pages = sum(needs[-at_once:]) + choose.one_of(_PAGES_PREEMPTED if scenario.schedule.preemption else _PAGES)
    schedule = replace(scenario.schedule, prefix_cache=True, draft_batch=limit)
    return replace(scenario, memory=replace(scenario.memory, pages=pages), schedule=schedule)


def _with_states(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw after how many tokens a state is kept, and where there are states in how many slots."""
    if "linear_attention" not in getattr(scenario.model, "layer_types", ()):
        return scenario
    size = scenario.memory.page_size
    slots = _SLOTS_TIGHT if size == 1 else _SLOTS
    kept = choose.one_of(slots)
    interval = size if kept in _FULL_SLOTS else choose.one_of((size, size, 2 * size, 1, size, size + 1))
    states = replace(scenario.states, checkpoint=interval)
    return replace(scenario, states=states, memory=replace(scenario.memory, checkpoint_slots=kept))


def without_prefix_cache(scenario: Scenario) -> Scenario:
    """Return the scenario without a prefix cache, so that nothing of a request is kept for others."""
    if not scenario.schedule.prefix_cache:
        return scenario
    memory, schedule = replace(scenario.memory, checkpoint_slots=0), replace(scenario.schedule, prefix_cache=False)
    return replace(scenario, memory=memory, schedule=schedule)


def _hits_where(holds: Callable[[Scenario], object]) -> Callable[[Any], int]:
    """Return a reader of runs: how many requests the cache served, in scenarios for which `holds` is true."""
    return lambda run: bool(holds(run.scenario)) * run.notes.get("prefix_hits", 0)


_SERVED = "round.rows, round.table"
_run, _real = facts_of("run", channels=_SERVED, real=False), facts_of("run", channels=_SERVED)
_states = facts_of("run", channels=_SERVED, takes="hybrid", real=False)
_FACTS = (
    _real("prefix_hits", shown="prefix cache: hit", effect=True),
    _run("prefix_hits_in_part", shown="prefix cache: in part"),
    _run("prefix_hits_of_whole", shown="prefix cache: of the whole"),
    _run("prefix_hits_of_emitted", shown="prefix cache: of emitted tokens"),
    _run("prefix_hits_after_preemption", shown="prefix cache: after preemption", takes="preemption"),
    _run("prefix_hits_of_images", shown="prefix cache: of images", takes="mrope"),
    facts_of("run", channels="round.rows")("prefix_misses", shown="prefix cache: miss"),
    _run("prefix_shared", shown="prefix cache: shared"),
    _real("prefix_copies", shown="prefix cache: duplicates"),
    _run("prefix_evictions", shown="prefix cache: evicted"),
    _run("prefix_hits_on_running", shown="prefix cache: of one that runs"),
    _run("prefix_hits_cut_by_logprobs", shown="prefix cache: cut by logprobs of prompts", takes="prompt-logprobs"),
    _run(
        "prefix_hits_of_trees",
        _hits_where(lambda one: one.tree),
        "prefix cache: beside trees",
        takes="trees",
        drafts=lambda kind: kind.trees,
    ),
    _run(
        "prefix_hits_with_adaptive_steps",
        _hits_where(lambda one: one.adaptive_steps),
        "prefix cache: with adaptive steps",
        takes="adaptive-steps",
    ),
    _run(
        "prefix_hits_by_batch_size",
        _hits_where(lambda one: one.schedule.draft_batch),
        "prefix cache: by batch size",
        takes="draft-batch",
    ),
    facts_of(
        "request", channels=_SERVED, real=False, layers=range(2, 17), drafts=lambda kind: kind.proposes == "chain"
    )(
        "served_for_one_token",
        lambda one: one.is_served and not one.rounds and one.run.form.lookahead > 1,
        "prefix cache: hit of several layers for one token",
    ),
    _states("prefix_hits_of_hybrids", shown="kept states: hit"),
    _states("prefix_hits_cut_to_checkpoint", shown="kept states: pages without one"),
    _states("prefix_hits_without_checkpoint", shown="kept states: none"),
    _states("checkpoints_copied_again", shown="kept states: used again"),
    facts_of("run", channels=_SERVED, takes="hybrid")("checkpoints_cached", shown="kept states: kept"),
    _states("checkpoints_evicted", shown="kept states: evicted for another"),
    _states("checkpoints_evicted_with_pages", shown="kept states: evicted with pages"),
    facts_of("request", real=False, takes="prompt-logprobs")(
        "prompt_logprobs_behind_prefix", shown="logprobs of prompts: behind what was served"
    ),
    facts_of("request", channels=_SERVED, real=False, takes="aborts")(
        "aborted_on_served_pages", lambda one: one.is_aborted_on_served_pages, "aborted: on served pages"
    ),
    facts_of("request", channels=_SERVED, takes="variant alone", real=False)(
        "variant_alone_of_served",
        lambda one: one.run.changed == "alone" and one.is_served,
        "variant: alone, of a served one",
    ),
)

FEATURE = Feature(
    name="prefix-cache",
    not_compared={
        "chain_as_tree": "trees leave a cache fewer pages",
        "unoverlapped": "what a cache serves goes by when the host knows results",
    },
    weight=0.4,
    what="pages are kept for requests that begin with the same tokens",
    has=field_is_not("schedule.prefix_cache", False),
    without=without_prefix_cache,
    draw=with_prefix_cache,
    beside=BESIDE,
    rule="S-CACHE-1",
    facts=_FACTS,
)
