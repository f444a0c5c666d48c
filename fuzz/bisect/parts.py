"""The parts of an engine that a case can do without, and how each is turned off: by another scenario.

Off means the plainest form of the same thing: a launch at its own size in place of a padded one, one page a request in
place of many, a naive twin in place of a kernel (switches.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from draftproof.properties.features import FEATURES
from draftproof.properties.features.hybrid import without_hybrid
from draftproof.properties.features.sampling import with_greedy_drafts
from draftproof.properties.features.trees import without_tree
from draftproof.properties.lib.paths import put
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.chain_tree import as_tree
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.scenario import RoundPlan, Scenario, pages_needed

KERNEL = "kernel "
"""What the name of a kernel's part begins with."""


class Part(NamedTuple):
    """A part of the engine: `on` says what runs with it, `off` is the scenario without it."""

    name: str
    on: str
    off: Callable[[Scenario], Scenario]


def _eager(scenario: Scenario) -> Scenario:
    """Return the same shapes, run eagerly."""
    return put(scenario, "graphs.capture", False)


def _unpadded(scenario: Scenario) -> Scenario:
    """Return a captured size for every batch that fitted one."""
    sizes = scenario.graphs.sizes
    top = min(scenario.schedule.max_batch, max(sizes)) if sizes else 0
    return put(scenario, "graphs.sizes", tuple(range(1, top + 1)))


def _one_page(scenario: Scenario) -> Scenario:
    """Return a page that holds the longest request, the rows of a tree behind it included, and one for each of them."""
    forms = (scenario, as_tree(scenario)) if scenario.variant == "chain_as_tree" else (scenario,)
    longest = max(pages_needed(put(form, "memory.page_size", 1), one) for form in forms for one in form.requests)
    if scenario.memory.page_size >= longest:
        return scenario
    paged = put(scenario, "memory.page_size", max(scenario.memory.max_len, longest))
    return put(paged, "memory.pages", len(scenario.requests))


def _unchunked(scenario: Scenario) -> Scenario:
    longest = max(len(request.prompt) for request in scenario.requests)
    return put(scenario, "schedule.chunk", max(longest, scenario.schedule.chunk))


def _without_drafts(scenario: Scenario) -> Scenario:
    none = RoundPlan(num_drafts=0, num_correct=-1)
    requests = tuple(replace(request, rounds=(none,) * len(request.rounds)) for request in scenario.requests)
    return replace(scenario, requests=requests)


def _without_model(scenario: Scenario) -> Scenario:
    """Put an n-gram draft in place of the draft's layers, which keep entries even of rounds without drafts."""
    if isinstance(scenario.draft, Ngram):
        return scenario
    return put(with_greedy_drafts(without_tree(scenario)), "draft", Ngram(max_n=1))


def _only(scenario: Scenario, number: int) -> Scenario:
    if len(scenario.requests) == 1:
        return scenario
    return replace(scenario, requests=(replace(scenario.requests[number], arrival=0, rank=0, flaw="none"),))


def engine_parts(lone: int) -> tuple[Part, ...]:
    """Every part but the kernels. With a single request, that is number `lone`."""
    return (
        Part("graphs", "launches are replayed", _eager),
        Part("padding", "launches are padded to captured sizes", _unpadded),
        Part("requests", "several requests", lambda scenario: _only(scenario, lone)),
        Part("batching", "requests decode together", lambda scenario: put(scenario, "schedule.max_batch", 1)),
        Part("paging", "a request has several pages", _one_page),
        Part("chunks", "prompts are prefilled in chunks", _unchunked),
        Part("replay commit", "states are committed by replay", lambda s: put(s, "states.commit", "snapshot")),
        Part("checkpoints", "states are kept on the way", lambda scenario: put(scenario, "states.checkpoint", 0)),
        Part("hybrid", "a target with linear layers", without_hybrid),
        *(Part(one.name, one.what, one.without) for one in FEATURES if one.name != "hybrid"),
        Part("drafts", "rounds have drafts", _without_drafts),
        Part("draft model", "the draft has layers and entries of its own", _without_model),
        Part("variant", "the second run, of the variant", lambda scenario: put(scenario, "variant", "none")),
        Part("taps", "taps inside of launches", lambda scenario: put(scenario, "taps", False)),
    )


def lone_requests(scenario: Scenario) -> list[Scenario]:
    """Return the scenario with each of its requests alone."""
    return [_only(scenario, number) for number in range(len(scenario.requests))]


def present(scenario: Scenario, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts that are on in a scenario and can be turned off.

    By that it becomes another one, which is valid.
    """
    return tuple(part for part in parts if _switchable(scenario, part))


def _switchable(scenario: Scenario, part: Part) -> bool:
    if part.name == "graphs" and not scenario.graphs.sizes:
        return False
    off = part.off(scenario)
    return off != scenario and is_valid(off)


def with_parts(scenario: Scenario, parts: Sequence[Part], on: frozenset[str]) -> Scenario:
    """Return the scenario with all parts off but those named in `on`.

    What has turned out to be nothing by then stays as it is: with one request left there is nothing to batch.
    """
    for part in parts:
        if part.name not in on:
            scenario = part.off(scenario)
    return validate(scenario)
