"""Smaller scenarios to try in place of one: every pass yields its boldest first, and only what is valid and smaller.

A pass changes one thing, and beside it only what that leaves without a meaning: memory grows where it must, tokens are
brought below a smaller vocabulary, features of layers that are gone are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from draftproof.fuzz.shrinking import of_engine, of_requests
from draftproof.fuzz.shrinking.size import size
from draftproof.properties.fit import within
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import is_valid
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario, pages_needed

Pass = Callable[[Scenario], Iterable[Scenario]]


def of_pass(one: Pass, scenario: Scenario, limits: Limits = NO_LIMITS) -> Iterator[Scenario]:
    """Return what a pass yields, changed to what the subject can run, as far as it is valid and still smaller."""
    limit = size(scenario)
    for made in one(scenario):
        fitted = _fitted(made)
        if size(fitted) < limit and is_valid(fitted):
            runnable = within(fitted, limits)
            if runnable is not None and size(runnable) < limit:
                yield runnable


def _fitted(scenario: Scenario) -> Scenario:
    """As many rows and pages as the requests need at least."""
    memory = scenario.memory
    at_once = max(Counter(request.arrival for request in scenario.requests).values())
    rows = max(memory.request_slots, scenario.schedule.max_batch, at_once)
    pages = max(memory.pages, *(pages_needed(scenario, request) for request in scenario.requests))
    return put_in(scenario, "memory", request_slots=rows, pages=pages)


PASSES: tuple[Pass, ...] = (
    of_requests.fewer_requests,
    of_engine.everything_off,
    of_requests.fewer_rounds,
    of_engine.without_features,
    of_engine.settings(of_engine.OFF),
    of_engine.fewer_layers,
    of_engine.smaller_windows,
    of_requests.shorter_prompts,
    of_engine.fewer_steps,
    of_engine.smaller_trees,
    of_engine.fewer_choices,
    of_engine.fewer_graphs,
    of_engine.smaller_draft,
    of_requests.each_request(of_requests.fewer_plans),
    of_requests.each_request(of_requests.no_stops),
    of_requests.fewer_eos,
    of_requests.each_request(of_requests.fewer_ends),
    of_requests.each_request(of_requests.plainer_sampling),
    of_requests.each_request(of_requests.fewer_penalties),
    of_requests.each_request(of_requests.plainer_grammar),
    of_requests.each_request(of_requests.fewer_logprobs),
    of_requests.each_request(of_requests.fewer_aborts),
    of_engine.smaller_batches,
    of_requests.each_request(of_requests.simpler_plans),
    of_requests.each_request(of_requests.sooner),
    of_engine.smaller_pages,
    of_engine.smaller_sizes,
    of_engine.less_memory,
    of_engine.settings(of_engine.PLAIN),
    of_requests.plainer_tokens,
)
