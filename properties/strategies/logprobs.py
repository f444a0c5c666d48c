"""Requests that ask for logprobs."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.strategies.some_requests import with_some
from draftproof.properties.values.scenario import PromptLogprobs, Request, Scenario

_TOP = (2, 0, 1, 5, 3)


def with_logprobs(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs, and for how many of the likeliest tokens; the first does."""
    return with_some(draw, scenario, lambda request: replace(request, logprobs=draw(sampled(_TOP))))


def with_prompt_logprobs(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs of their prompts, and from where on: at the end of a page, or near it.

    Where prompts share pages the first request has nobody before it.
    """
    size = scenario.memory.page_size

    def asking(request: Request) -> Request:
        last = len(request.prompt) - 1
        end = draw(sampled((1, 2, 1, 1 + last // size))) * size
        start = draw(sampled((end - 1, end, end - 1, 0, end - 1, end + 1, last - 1)))
        asked = PromptLogprobs(top=draw(sampled(_TOP)), start=max(0, start))
        return replace(request, prompt_logprobs=asked)

    first, *others = scenario.requests
    if not (scenario.schedule.prefix_cache and others):
        return with_some(draw, scenario, asking)
    later = with_some(draw, replace(scenario, requests=tuple(others)), asking)
    return replace(scenario, requests=(first, *later.requests))


def without_logprobs(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that ask for none."""
    if scenario.most_logprobs is None and scenario.most_prompt_logprobs is None:
        return scenario
    silent = (replace(request, logprobs=None, prompt_logprobs=None) for request in scenario.requests)
    return replace(scenario, requests=tuple(silent))


def without_prompt_logprobs(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that ask for none of their prompts."""
    if scenario.most_prompt_logprobs is None:
        return scenario
    return replace(scenario, requests=tuple(replace(one, prompt_logprobs=None) for one in scenario.requests))
