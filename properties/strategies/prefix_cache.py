"""Requests that begin as others did: a prefix cache, prompts with pages in common, and too few pages to keep all.

Of a model with linear layers states are kept at ends of pages, or of some of them, and there are few slots for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice, permutations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.requests import endless
from draftproof.properties.strategies.some_requests import slots_for, sooner
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Request, Scenario, pages_needed

_CERTAIN = 1 << 24
"""A bias that no logit of a probe reaches: what is emitted is known before it runs."""
_LATER = (8, 4, 12, 0, 6)
_ORDERS = tuple(permutations(("turn", "same", "parted", "longer")))
_ORDERS_SAME = (*_ORDERS, *2 * tuple(order for order in _ORDERS if order[0] == "same"))
_ORDERS_TURN = tuple(order for order in _ORDERS if order[0] == "turn")
"""How prompts begin, in their order: often soon as the first did, whose pages are there yet.

Where two states are kept the next one goes on from the text of the first, mostly at the older of them.
"""
_SOON = (3, 1, 3)
_SLOTS = (6, 2, 3, 2, 6, 1)
_FEW_SLOTS = 2
_FULL_SLOTS = (_FEW_SLOTS, 6)
_SLOTS_TIGHT = (6, 1, 6)
"""How many slots there are for states; so few that a request begins at the older of two; with which numbers a state is
kept at the end of every page; and how many there are where each token fills a page.
"""
_PAGES = (1, 2, 0, 4)
_PAGES_PREEMPTED = (0, 1, 0, 2)
"""How many pages there are more than the longest request can come to own."""


def with_prefix_cache(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw how each prompt begins as an earlier one, and how many pages there are.

    The first request emits one token again and again, so that another can go on from its text. Those that are missing
    to one of each kind end soon.
    """
    first, *others = scenario.requests
    scenario = _with_states(draw, scenario)
    size, at_older = scenario.memory.page_size, scenario.memory.checkpoint_slots == _FEW_SLOTS
    token = draw(integers(0, scenario.model.vocab - 1))
    certain = Penalties(bias=(TokenBias(token=token, amount=_CERTAIN),))
    length = max(-(-len(first.prompt) // size), 2) * size + draw(sampled((0, 0, 1)))
    prompt = tuple(islice(cycle(first.prompt), length))
    requests = [replace(endless(first), prompt=prompt, penalties=certain, sampling=None)]
    kinds = draw(sampled(_ORDERS_TURN if at_older else _ORDERS_SAME))
    others += [replace(first, budget=draw(sampled(_SOON)), stop_at=-1) for _ in range(len(kinds) - len(others))]
    for one, kind in zip(others, cycle(kinds), strict=False):
        changed = replace(one, prompt=_prompt(draw, scenario, requests, kind, token))
        if not scenario.schedule.preemption:
            changed = replace(changed, arrival=requests[-1].arrival + draw(sampled(_LATER)))
        requests.append(changed)
    return _fitted(draw, replace(scenario, requests=tuple(requests)))


def _prompt(draw: st.DrawFn, scenario: Scenario, before: Sequence[Request], kind: str, token: int) -> tuple[int, ...]:
    """Draw a prompt that is that of one before it, goes on from it or from a text, or parts from it at a page's end."""
    first, source = before[0], draw(sampled(before))
    size, vocab = scenario.memory.page_size, scenario.model.vocab
    if kind == "same":
        return first.prompt
    if kind == "turn":
        less = (size + 1, 1, size + 1, 0) if scenario.memory.checkpoint_slots == _FEW_SLOTS else (1, 0, 3)
        known = first.prompt + (token,) * max(1, first.budget - draw(sampled(less)))
    elif kind == "longer":
        known = source.prompt
    else:
        end = len(source.prompt) // size * size
        known = source.prompt[: max(1, end + draw(sampled((0, -1, 1, -size))))]
    after = source.prompt[len(known)] if len(known) < len(source.prompt) else token
    start = (after + 1) % vocab
    return known + tuple((start + place) % vocab for place in range(draw(integers(1, 2 * size + 1))))


def _fitted(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw pages for the longest request, or for a few pages more; positions for all that is wanted.

    Of trees, which differ from row to row, there are pages for two in half of the scenarios, and they come sooner. So
    they do where large batches get no drafts: two rows are such a batch there.
    """
    limit = min(1, scenario.schedule.draft_batch)
    at_once = 2 if limit or (scenario.tree and draw(st.booleans())) else 1
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
    pages = sum(needs[-at_once:]) + draw(sampled(_PAGES_PREEMPTED if scenario.schedule.preemption else _PAGES))
    schedule = replace(scenario.schedule, prefix_cache=True, draft_batch=limit)
    return replace(scenario, memory=replace(scenario.memory, pages=pages), schedule=schedule)


def _with_states(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw after how many tokens a state is kept, and where there are states in how many slots."""
    if "linear_attention" not in getattr(scenario.model, "layer_types", ()):
        return scenario
    size = scenario.memory.page_size
    slots = _SLOTS_TIGHT if size == 1 else _SLOTS
    kept = draw(sampled(slots))
    interval = size if kept in _FULL_SLOTS else draw(sampled((size, size, 2 * size, 1, size, size + 1)))
    states = replace(scenario.states, checkpoint=interval)
    return replace(scenario, states=states, memory=replace(scenario.memory, checkpoint_slots=kept))


def without_prefix_cache(scenario: Scenario) -> Scenario:
    """Return the scenario with requests of which nothing is kept for others."""
    if not scenario.schedule.prefix_cache:
        return scenario
    memory, schedule = replace(scenario.memory, checkpoint_slots=0), replace(scenario.schedule, prefix_cache=False)
    return replace(scenario, memory=memory, schedule=schedule)
