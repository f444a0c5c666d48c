"""Fit a generated scenario to what a subject can run (docs/semantics/subjects.md, S-SUBJECT-2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.features.trees import beside_tree, without_tree
from draftproof.properties.features.windows import large_enough
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.lib.errors import DraftproofError, require_input
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.lib.paths import brief, first_difference
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.drafts import CheckpointDraft, Mtp, Ngram, algorithm
from draftproof.properties.values.fp8 import FP8, keeps_entries
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import (
    Checkpoint,
    Graphs,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    pages_needed,
)
from draftproof.properties.variants import needed_by_variant


class UnfitError(DraftproofError, ValueError):
    """A scenario that no change makes runnable for a subject; the message says why."""


def require_limits(limits: Limits) -> None:
    """Raise UnfitError for a field with a value that it cannot have, and for a name that there is not."""
    try:
        decode(encode(limits), Limits, name="limits")
    except InvalidScenarioError as error:
        raise UnfitError(str(error)) from None
    for name in limits.features if limits.features != "all" else ():
        if name not in FEATURES_BY_NAME:
            hint = did_you_mean(name, FEATURES_BY_NAME)
            raise UnfitError(f"invalid limits.features {name!r}: expected some of {', '.join(FEATURES_BY_NAME)}{hint}")


def fit(scenario: Scenario, limits: Limits) -> Scenario:
    """Return the scenario changed to what a subject can run, and no further: one that it can run is returned as it is.

    Raises UnfitError for a model or a draft that it does not take, which are chosen and never exchanged, and for limits
    that there are not.
    """
    require_input(isinstance(scenario, Scenario), "scenario", scenario, "a draftproof.subject.Scenario")
    require_input(isinstance(limits, Limits), "limits", limits, "a draftproof.subject.Limits")
    require_limits(limits)
    _require_model(scenario, limits)
    for change in _CHANGES:
        scenario = change(scenario, limits)
    return validate(scenario)


def require_fit(scenario: Scenario, limits: Limits, name: str) -> None:
    """Raise UnfitError unless the scenario that is called `name` can run as it is.

    The message has the feature or the field, its value, and what the subject has in its place.
    """
    try:
        made = scenario if limits == NO_LIMITS else fit(scenario, limits)
    except (UnfitError, InvalidScenarioError) as error:
        raise UnfitError(f"{name}: {error}") from None
    lost = [one for one in features_of(scenario) if not (limits.takes(one) or one in features_of(made))]
    if lost:
        taken = ", ".join(limits.features) or "none"
        raise UnfitError(f"{name}: invalid feature {lost[0]!r}: expected some of those of this subject, {taken}")
    if made != scenario:
        field, value, allowed = first_difference(msgspec.to_builtins(scenario), msgspec.to_builtins(made))
        raise UnfitError(f"{name}: invalid {field} {brief(value)}: expected {brief(allowed)}, for this subject")


def within(scenario: Scenario, limits: Limits) -> Scenario | None:
    """Return a valid scenario, fitted; None if no change makes it runnable."""
    try:
        return scenario if limits == NO_LIMITS else fit(scenario, limits)
    except (UnfitError, InvalidScenarioError):
        return None


def fit_generated(scenario: Scenario, limits: Limits) -> Scenario:
    """Return a generated scenario fitted; for a subject with `own_prefix_cache` every other one has common prefixes.

    Fitting it again changes nothing. Raises UnfitError.
    """
    return validate(_shared(fit(scenario, limits), limits))


def fitted(scenarios: Iterable[Scenario], limits: Limits) -> list[Scenario]:
    """Return every generated scenario, fitted. Raises UnfitError."""
    return [fit_generated(scenario, limits) for scenario in scenarios]


def _require_model(scenario: Scenario, limits: Limits) -> None:
    model, draft = scenario.model, algorithm(scenario.draft)
    kind = "checkpoint" if isinstance(model, Checkpoint) else "probe"
    if kind not in limits.models:
        raise UnfitError(f"invalid model {kind!r}: expected {' or '.join(limits.models)}, for this subject")
    if isinstance(model, Checkpoint) and limits.architectures:
        architecture = read_config(model.path).architecture
        if architecture not in limits.architectures:
            takers = f"{' or '.join(limits.architectures)}, for this subject"
            raise UnfitError(f"invalid architecture {architecture!r} of {model.path}: expected {takers}")
    if not limits.takes("kv-quantization") and keeps_entries(scenario):
        raise UnfitError(f"invalid kv_cache_dtype {FP8!r}: expected auto, for this subject")
    if draft not in limits.drafts:
        raise UnfitError(f"invalid draft {draft!r}: expected one that the subject has, {', '.join(limits.drafts)}")


def _dtype(scenario: Scenario, limits: Limits) -> Scenario:
    model = scenario.model
    if not isinstance(model, Checkpoint) or not limits.dtypes or model.dtype in limits.dtypes:
        return scenario
    return replace(scenario, model=replace(model, dtype=limits.dtypes[0]))


def _steps(scenario: Scenario, limits: Limits) -> Scenario:
    most = limits.fixed_drafts or limits.max_drafts
    made = with_steps(scenario, most) if 0 < most < scenario.steps else scenario
    return _with_all(made, most) if limits.fixed_drafts else made


def _with_all(scenario: Scenario, steps: int) -> Scenario:
    """Return the scenario with so many drafts in every round, and a `max_len` that none of them comes to."""
    requests = tuple(
        replace(one, rounds=tuple(replace(plan, num_drafts=steps) for plan in one.rounds)) for one in scenario.requests
    )
    longest = max(len(one.prompt) + one.budget for one in requests) + steps
    memory = replace(scenario.memory, max_len=max(scenario.memory.max_len, longest))
    made = replace(scenario, steps=steps, requests=requests, memory=memory)
    pages = max(made.memory.pages, *(pages_needed(made, request) for request in made.requests))
    return replace(made, memory=replace(made.memory, pages=pages))


def _draft(scenario: Scenario, limits: Limits) -> Scenario:
    """Chained layers, and the place of a match, where the subject has no other."""
    draft = scenario.draft
    if isinstance(draft, Mtp | CheckpointDraft) and not draft.chain and not limits.unchained:
        return replace(scenario, draft=replace(draft, chain=True))
    if isinstance(draft, Ngram) and limits.matches and draft.match not in limits.matches:
        return replace(scenario, draft=replace(draft, match=limits.matches[0]))
    return scenario


def _features(scenario: Scenario, limits: Limits) -> Scenario:
    """Every feature that the subject has not is taken away, the last to be drawn first."""
    for feature in reversed(FEATURES):
        if not (feature.of_model or limits.takes(feature.name)):
            scenario = feature.without(scenario)
    return scenario


def _steering(scenario: Scenario, limits: Limits) -> Scenario:
    """Plans that force nothing; without a number of drafts of their own where that cannot be asked for either."""
    if limits.steering == "drafts":
        return scenario
    own = RoundPlan(num_drafts=scenario.steps, num_correct=-1)

    def free(request: Request) -> Request:
        counted = tuple(replace(plan, num_correct=-1, wrong="next", shape=None) for plan in request.rounds)
        return replace(request, rounds=counted if limits.steering == "counts" else (own,))

    return replace(scenario, requests=tuple(free(request) for request in scenario.requests))


def _rows(scenario: Scenario, limits: Limits) -> Scenario:
    most = 1 if limits.arrivals == "serial" else limits.max_rows
    if not 0 < most < scenario.schedule.max_batch:
        return scenario
    sizes = tuple(size for size in scenario.graphs.sizes if size <= most)
    graphs = Graphs(sizes=sizes or scenario.graphs.sizes[:1], capture=scenario.graphs.capture)
    return replace(scenario, graphs=graphs, schedule=replace(scenario.schedule, max_batch=most))


def _arrivals(scenario: Scenario, limits: Limits) -> Scenario:
    """All come before the first step, where engine steps cannot be waited for; none waits for a request row then."""
    if limits.arrivals == "by step":
        return scenario
    requests = tuple(replace(request, arrival=0) for request in scenario.requests)
    slots = max(scenario.memory.request_slots, len(requests))
    return replace(scenario, requests=requests, memory=replace(scenario.memory, request_slots=slots))


def _pages(scenario: Scenario, limits: Limits) -> Scenario:
    """Return the scenario with the nearest page size that the subject has, and pages for the same number of tokens."""
    memory, sizes = scenario.memory, limits.page_sizes
    if not sizes or memory.page_size in sizes:
        return scenario
    size = min(sizes, key=lambda one: (abs(one - memory.page_size), one))
    moved = _crossing(scenario, size) if memory.page_seed % 2 else scenario
    changed = large_enough(replace(moved, memory=replace(moved.memory, page_size=size)))
    largest = max(pages_needed(changed, request) for request in changed.requests)
    pages = max(largest, -(-memory.pages * memory.page_size // size))
    return replace(changed, memory=replace(changed.memory, pages=pages))


def _crossing(scenario: Scenario, size: int) -> Scenario:
    """Return the scenario with longer prompts: the page boundary that most requests cross is one of larger pages, too.

    Each prompt is preceded by its own tokens, repeated.
    """
    old, most = scenario.memory.page_size, scenario.memory.max_len
    spans = [(len(one.prompt), min(most, len(one.prompt) + one.budget)) for one in scenario.requests]
    crossed = {edge: sum(first < edge < last for first, last in spans) for edge in range(old, most, old)}
    edge = max(crossed, key=lambda one: (crossed[one], -one), default=0)
    if size <= old or not crossed.get(edge):
        return scenario
    more = -edge % size
    longer = (
        replace(one, prompt=tuple(itertools.islice(itertools.cycle(one.prompt), more)) + one.prompt)
        for one in scenario.requests
    )
    return replace(scenario, requests=tuple(longer), memory=replace(scenario.memory, max_len=most + more))


def _shared(scenario: Scenario, limits: Limits) -> Scenario:
    """Return every other scenario with more than a page of tokens in common, if the subject serves prefixes."""
    memory, first = scenario.memory, scenario.requests[0].prompt
    if not limits.own_prefix_cache or not limits.page_sizes or memory.page_seed % 2:
        return scenario
    least = memory.page_size + 1
    if len(first) >= least and all(one.prompt[:least] == first[:least] for one in scenario.requests):
        return scenario
    common = tuple(itertools.islice(itertools.cycle(first), least))
    requests = tuple(replace(one, prompt=common + one.prompt) for one in scenario.requests)
    more = -(-len(common) // memory.page_size) * len(requests)
    memory = replace(memory, max_len=memory.max_len + len(common), pages=memory.pages + more)
    return replace(scenario, requests=requests, memory=memory)


def _ahead(scenario: Scenario, limits: Limits) -> Scenario:
    """Return the scenario with pages for all requests at once, if pages are taken ahead and never given back.

    Otherwise two requests that fit by their own tokens may wait for each other.
    """
    if limits.allocation == "exact" or limits.own_preemption:
        return scenario
    size, more = scenario.memory.page_size, scenario.steps + 1
    longest = (min(scenario.memory.max_len, len(one.prompt) + one.budget) for one in scenario.requests)
    pages = sum(-(-(tokens + scenario.steps + more) // size) for tokens in longest)
    return replace(scenario, memory=replace(scenario.memory, pages=max(pages, scenario.memory.pages)))


def _pool(scenario: Scenario, limits: Limits) -> Scenario:
    """Return the scenario with the pages of a pool whose size is the subject's own."""
    memory = scenario.memory
    return replace(scenario, memory=replace(memory, pages=limits.pages)) if limits.pages else scenario


def _variant(scenario: Scenario, limits: Limits) -> Scenario:
    needed = needed_by_variant(scenario.variant)
    if scenario.variant not in ("none", *limits.variants) or (needed and not FEATURES_BY_NAME[needed].has(scenario)):
        return replace(scenario, variant="none")
    if scenario.variant == "chain_as_tree":
        made = beside_tree(scenario)
        return made if is_valid(made) else without_tree(scenario)
    return scenario


def _once(scenario: Scenario, limits: Limits) -> Scenario:
    """Return a scenario that is served once, for a subject whose engine lives on from run to run."""
    once: Schedule = replace(scenario.schedule, services=1)
    return replace(scenario, schedule=once) if limits.persistent else scenario


_CHANGES: tuple[Callable[[Scenario, Limits], Scenario], ...] = (
    _dtype,
    _draft,
    _steps,
    _features,
    _steering,
    _rows,
    _arrivals,
    _pages,
    _ahead,
    _pool,
    _variant,
    _once,
)
