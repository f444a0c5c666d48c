"""Two engines: one runs prompts and transfers requests to one that decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, field_is_not, field_put
from draftproof.properties.features.lasting import lasting
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.drafts import DraftKind
from draftproof.properties.values.scenario import Request, Scenario, pages_needed

_ROOMY = (True, False)
_ROUNDS = 2


def with_disaggregation(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw a decode batch that is full soon, so that some wait for a place in it, and requests that come together.

    All but the last have budgets for rounds, and no stop in front of them; half have rows for all of them at once.
    """
    batch, count = scenario.schedule.max_batch, len(scenario.requests)
    limit = scenario.schedule.draft_batch
    # Where a large batch gets no drafts there is to be one.
    most = max(1, choose.one_of((1, count - 2, batch, 1)), limit and limit + 1, 2 * scenario.schedule.preemption)
    slots = max(scenario.memory.request_slots, count if choose.one_of(_ROOMY) else 1, most)
    made = put_in(put_in(lasting(scenario, _ROUNDS), "memory", request_slots=slots), "schedule", disaggregation=True)
    if scenario.schedule.prefix_cache:
        # As many pages more than the longest request takes as there were: a cache with room for all evicts nothing.
        made = put_in(made, "memory", pages=scenario.memory.pages + _longest(made) - _longest(scenario))
    latest = choose.one_of((0, 0, 2, 1000)) if count <= slots else 1000
    requests = tuple(replace(one, arrival=min(one.arrival, latest)) for one in made.requests)
    requests = (*map(_decoded, requests[:-1]), requests[-1])
    return replace(made, requests=requests, schedule=replace(made.schedule, max_batch=most))


def _longest(scenario: Scenario) -> int:
    return max(pages_needed(scenario, request) for request in scenario.requests)


def _decoded(request: Request) -> Request:
    """Return the request with its stop token in the second half of its text, if it has one."""
    return replace(request, stop_at=max(request.stop_at, request.budget // 2)) if request.stop_at >= 0 else request


def _moved(holds: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Return a reader: a request was transferred, and `holds` is true of it."""
    return lambda one: one.is_transferred and bool(holds(one))


def _has_hidden_states(kind: DraftKind) -> bool:
    return kind.hidden != "none" and kind.proposes != "block"


_request = facts_of("request", channels="round.rows")
_FACTS = (
    _request("disaggregated_requests", lambda one: one.is_transferred, "PD disaggregation: of a prompt", effect=True),
    _request(
        "disaggregated_in_chunks",
        _moved(lambda one: len(one.request.prompt) > one.run.scenario.schedule.chunk),
        "PD disaggregation: in chunks",
    ),
    _request(
        "disaggregated_several_pages",
        _moved(lambda one: len(one.request.prompt) > one.run.page_size),
        "PD disaggregation: of several pages",
    ),
    _request(
        "disaggregated_partial_pages",
        _moved(lambda one: len(one.request.prompt) % one.run.page_size),
        "PD disaggregation: of a part of a page",
    ),
    _request("disaggregated_waiting", _moved(lambda one: one.waited_for_place), "PD disaggregation: after a wait"),
    _request(
        "disaggregated_states", _moved(lambda one: one.run.is_hybrid), "PD disaggregation: with states", takes="hybrid"
    ),
    _request(
        "disaggregated_hidden_states",
        _moved(lambda one: one.has_hidden_handed),
        "PD disaggregation: with hidden states",
        drafts=_has_hidden_states,
    ),
)

FEATURE = Feature(
    name="disaggregation",
    not_compared={"alone": "two engines serve no request alone"},
    what="one engine runs prompts and transfers requests to one that decodes",
    has=field_is_not("schedule.disaggregation", False),
    without=field_put("schedule.disaggregation", False),
    draw=with_disaggregation,
    rule="S-DISAGG-8",
    of_probes=True,
    refuses={
        "overlap": "S-OVERLAP-1 delays the results of one engine; a transfer needs the prompt's at once (S-DISAGG-1)",
    },
    facts=_FACTS,
    # A cache has prompts alone, and no launch has chunks beside rounds.
    lacks=("prefix_hits_of_emitted", "mixed_launches", "mixed_beside_no_drafts", "mixed_as_large_as_decode"),
)
