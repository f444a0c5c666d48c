"""Chat turns: prompts that go on from an earlier prompt and its answer, for who keeps a cache (S-SUBJECT-2)."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.validate import is_valid
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Checkpoint, Request, Scenario, pages_needed
from draftproof.reference.solve import solve

_TURNS = 2
"""How many requests behind the first go on from the one before."""


def with_turns(scenario: Scenario, limits: Limits) -> Scenario:
    """Return every other scenario as a chat, where the subject serves prefixes: of the rest prompts begin alike.

    The first prompts go on from the one before them and its answer, as far as there is room. What is a chat stays one.
    """
    if not limits.own_prefix_cache or scenario.schedule.prefix_cache or not scenario.memory.page_seed % 2:
        return scenario
    for number in range(1, min(1 + _TURNS, len(scenario.requests))):
        if not _is_plain(scenario.requests[number - 1]):
            break
        made = _continued(scenario, number, limits)
        if not (_has_room(made) and is_valid(made)):
            break
        scenario = made
    return scenario


def _continued(scenario: Scenario, number: int, limits: Limits) -> Scenario:
    """Return the scenario with request `number` going on from the one before."""
    before, own = scenario.requests[number - 1 : number + 1]
    if own.prompt[: len(before.prompt)] == before.prompt:
        return scenario
    known = before.prompt + solve(replace(scenario, requests=(before,))).requests[0].tokens
    turn = replace(own, prompt=known + own.prompt, arrival=max(before.arrival, own.arrival))
    memory = scenario.memory
    longest = len(turn.prompt) + turn.budget + scenario.steps
    pages = limits.pages or memory.pages - (-len(known) // memory.page_size)
    memory = replace(memory, max_len=max(memory.max_len, longest), pages=pages)
    requests = (*scenario.requests[:number], turn, *scenario.requests[number + 1 :])
    return replace(scenario, requests=requests, memory=memory)


def _is_plain(request: Request) -> bool:
    """Return whether plain greedy decoding gives its answer, in any batch."""
    others = (request.sampling, request.penalties, request.grammar, request.abort_at)
    return all(one is None for one in others) and not request.images and request.flaw == "none"


def _has_room(scenario: Scenario) -> bool:
    model, memory = scenario.model, scenario.memory
    most = read_config(model.path).max_position_embeddings if isinstance(model, Checkpoint) else None
    return (most is None or memory.max_len <= most) and all(
        pages_needed(scenario, one) <= memory.pages for one in scenario.requests
    )
