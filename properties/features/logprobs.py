"""Requests that ask for logprobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, requests_put
from draftproof.properties.features.some_requests import with_some
from draftproof.properties.values.scenario import PromptLogprobs, Request, Scenario

_TOP = (2, 0, 1, 5, 3)


def with_logprobs(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs, and for how many of the likeliest tokens; the first does.

    With preemption all of them ask: what a resumed request returns would seldom be looked at otherwise.
    """
    if scenario.schedule.preemption:
        requests = tuple(replace(one, logprobs=choose.one_of(_TOP)) for one in scenario.requests)
        return replace(scenario, requests=requests)
    return with_some(choose, scenario, lambda request: replace(request, logprobs=choose.one_of(_TOP)))


def with_prompt_logprobs(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs of their prompts, and from where on: at the end of a page, or near it."""
    return with_some(choose, scenario, lambda request: asking(choose, request, scenario))


def asking(choose: Choose, request: Request, scenario: Scenario, shared: int = 1) -> Request:
    """Draw from where on a request asks: of a page that others share the last token, mostly."""
    size, last = scenario.memory.page_size, len(request.prompt) - 1
    end = choose.one_of((shared, 1, shared, 2, shared, 1 + last // size)) * size
    start = choose.one_of((end - 1, end, end - 1, 0, end - 1, end + 1, end - 1, last - 1, end - 1))
    return replace(request, prompt_logprobs=PromptLogprobs(top=choose.one_of(_TOP), start=max(0, start)))


def _told(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a reader: the round's request asks for logprobs, and `holds` is true of the round."""
    return lambda one: one.request.request.logprobs is not None and holds(one)


_round, _request = facts_of("round", real=False), facts_of("request", real=False)
_FACTS = (
    facts_of("round")("logprobs_given", _told(lambda one: True), effect=True),
    _round("logprobs_of_several", _told(lambda one: one.correct_len > 0), "logprobs: of several tokens"),
    facts_of("round")(
        "logprobs_behind_rejection", _told(lambda one: one.correct_len < one.drafts), "logprobs: behind a rejection"
    ),
    _round("logprobs_of_sampled", _told(lambda one: one.is_sampled), "logprobs: of a draw", takes="sampling"),
)
_OF_PROMPTS = (
    _request("prompt_logprobs_told", shown="logprobs of prompts: told", effect=True),
    _request("prompt_logprobs_in_chunks", shown="logprobs of prompts: in chunks", channels="round.rows"),
)

LOGPROBS = Feature(
    name="logprobs",
    what="a request asks for logprobs",
    has=lambda one: one.most_logprobs is not None,
    without=requests_put(logprobs=None),
    draw=with_logprobs,
    rule="S-SAMPLE-12",
    facts=_FACTS,
)
PROMPT_LOGPROBS = Feature(
    name="prompt-logprobs",
    what="a request asks for logprobs of its prompt",
    has=lambda one: one.most_prompt_logprobs is not None,
    without=requests_put(prompt_logprobs=None),
    draw=with_prompt_logprobs,
    rule="S-SAMPLE-16",
    of_probes=True,
    facts=_OF_PROMPTS,
)
