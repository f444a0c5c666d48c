"""How other features are drawn where requests may begin on pages of others, which are kept for them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.aborts import aborted
from draftproof.properties.features.feature import Draw
from draftproof.properties.features.logprobs import asking, with_prompt_logprobs
from draftproof.properties.features.mixed import for_two, with_mixed_steps
from draftproof.properties.features.mrope import with_mrope
from draftproof.properties.features.some_requests import slots_for, sooner, with_some
from draftproof.properties.features.windows import with_windows_of
from draftproof.properties.lib.sequences import common_length
from draftproof.properties.values.scenario import Request, Scenario

# Those that were served most of their prompt are soon at their end.
_SOON = (2, 3, 1, 2, 4)
_SOME = (True, False)
# Without preemption half of them come so soon after each other that some wait.
_CROWDED = (True, False)
# Of those with grammars.
_AT_PAGES = (True, True, True, False)
_ALONE = 40
_MORE_PAGES = 2
_MOST_SLOTS = 256
_IMAGES = ("same", "turned", "same", "own")
# Nothing goes back behind a window.
_WINDOWS = ("some", "draft", "some")


def _with_prompt_logprobs(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs of their prompts; of several, the first does not."""
    first, *others = scenario.requests
    if not others:
        return with_prompt_logprobs(choose, scenario)
    later = with_some(
        choose,
        replace(scenario, requests=tuple(others)),
        lambda request: asking(choose, request, scenario, _shared_pages(request, scenario)),
    )
    return replace(scenario, requests=(first, *later.requests))


def _shared_pages(request: Request, scenario: Scenario) -> int:
    """Return how many pages of a prompt begin another request's, and leave it a token to run; at least one."""
    most = max(common_length(one.prompt, request.prompt[:-1]) for one in scenario.requests if one is not request)
    return max(1, most // scenario.memory.page_size)


def _with_aborts(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests but the first are aborted, so that others begin on their pages.

    Where all pages are to be kept and requests are not preempted, most requests with grammars are aborted.
    """
    if not scenario.schedule.preemption:
        if scenario.is_constrained and choose.one_of(_AT_PAGES):
            return _at_pages(choose, scenario)
        if choose.one_of(_CROWDED):
            return _in_line(choose, scenario)
    return aborted(choose, scenario, _SOON, depends=True)


def _in_line(choose: Choose, scenario: Scenario) -> Scenario:
    """Return requests that arrive while the first one runs, so that they wait in a queue.

    Each of them but the last may be aborted while others wait behind it.
    """
    first, *others = scenario.requests
    requests = [first]
    for place, one in enumerate(others, start=1):
        arrival = first.arrival + choose.one_of((1, 2, 3)) + place // 2
        is_aborted = place == 1 or (place < len(others) and choose.one_of(_SOME))
        abort_at = arrival + choose.one_of((2, 3, 1, 4)) if is_aborted else None
        requests.append(replace(one, arrival=arrival, abort_at=abort_at))
    memory = replace(scenario.memory, request_slots=slots_for(scenario, requests))
    return replace(scenario, requests=tuple(requests), memory=memory)


def _at_pages(choose: Choose, scenario: Scenario) -> Scenario:
    """Return requests with a page in each chunk, all but the first of which may be aborted after their first chunk.

    When such a request is aborted, the cache keeps every page that it has. The last request is not aborted, has a
    grammar, and arrives when no other request is there.

    When it is served again, it finds the page of its first chunk with its state, and runs the next chunk: this shows
    whether anything of the grammar was left behind.
    """
    memory, vocab = scenario.memory, scenario.model.vocab
    first, *others = scenario.requests
    requests = [first]
    requests += [
        _cut_off(one, one.arrival, memory.page_size, vocab) if choose.one_of(_SOME) else one for one in others[:-1]
    ]
    grammar, stops = next((one.grammar, one.stops) for one in reversed(scenario.requests) if one.grammar)
    last = replace(others[-1], grammar=grammar, stops=stops, prompt_logprobs=None)
    requests.append(_cut_off(last, requests[-1].arrival + _ALONE, memory.page_size, vocab))
    more = 1 + _MORE_PAGES
    memory = replace(memory, pages=memory.pages + more, max_len=memory.max_len + more * memory.page_size)
    states = scenario.states
    if memory.checkpoint_slots:
        memory = replace(memory, checkpoint_slots=min(memory.pages, _MOST_SLOTS))
        states = replace(states, checkpoint=memory.page_size)
    return replace(
        scenario,
        requests=tuple(requests),
        memory=memory,
        states=states,
        schedule=replace(scenario.schedule, chunk=memory.page_size, services=2),
    )


def _cut_off(request: Request, arrival: int, size: int, vocab: int) -> Request:
    """Return the request with a prompt of pages more, and whole ones, aborted a step after it came."""
    missing = -len(request.prompt) % size + _MORE_PAGES * size
    more = tuple((request.prompt[-1] + place) % vocab for place in range(1, missing + 1))
    return replace(request, arrival=arrival, abort_at=arrival + 1, prompt=request.prompt + more)


def _with_mixed(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw requests that come sooner, half of them with pages for two, so that chunks of some meet rounds of others."""
    if not scenario.has_aborts:
        scenario = replace(scenario, requests=sooner(scenario.requests))
    if not scenario.schedule.preemption and choose.boolean():
        scenario = for_two(scenario)
    return with_mixed_steps(choose, scenario)


def _with_mrope(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw images of the first prompt, which others mostly have where theirs begin as it does; some are turned."""
    made = with_mrope(choose, scenario)
    first, *others = made.requests
    requests = [first]
    for one in others:
        common, same = common_length(first.prompt, one.prompt), choose.one_of(_IMAGES)
        images = [image for image in first.images if image.end <= common]
        if same == "turned" and images:
            last = images[-1]
            images[-1] = replace(last, height=last.width, width=last.height)
        requests.append(one if same == "own" or not images else replace(one, images=tuple(images)))
    return replace(made, requests=tuple(requests))


BESIDE: Mapping[str, Draw] = {
    "prompt-logprobs": _with_prompt_logprobs,
    "aborts": _with_aborts,
    "windows": lambda choose, scenario: with_windows_of(choose, scenario, _WINDOWS),
    "mixed": _with_mixed,
    "mrope": _with_mrope,
}
"""How these features are drawn, by name."""
