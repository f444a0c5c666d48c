"""The prefix cache: what it serves and keeps, by a model that follows the run, and by counting (S-CACHE)."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Literal

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import DRAFT_KINDS_BY_NAME, Mtp
from draftproof.properties.values.observed import CachedCheckpoint, CachedPages, CheckpointReport
from draftproof.properties.values.relations import Different, Missing, OutOfOrder, OutOfRange, Relation, Surplus
from draftproof.properties.values.scenario import Image, PromptLogprobs, Request, RoundPlan, Scenario, States
from tests.properties.breaking import edited
from tests.properties.evidence import (
    ADAPTIVE,
    CACHED,
    CACHED_STATES,
    OF_DRAFTS,
    STATIC,
    TREE,
    by_engine,
    with_observations,
)

DENSE = [
    replace(CACHED, draft=one.draft, steps=one.steps, model=replace(one.model, layer_types=(), linear=None))
    for one in OF_DRAFTS.values()
]
COMMITS = ("snapshot", "replay")


def alone(prompt: tuple[int, ...], arrival: int) -> Request:
    """A request of two tokens: its draft is extended over the prompt, and over nothing else."""
    plan = RoundPlan(num_drafts=1, num_correct=0)
    return Request(arrival=arrival, prompt=prompt, budget=2, rounds=(plan,))


@pytest.mark.parametrize("base", DENSE, ids=list(OF_DRAFTS))
def test_what_is_served_is_what_counting_says(base: Scenario) -> None:
    """Of two prompts the second is served whole pages of what both have, by a formula."""
    kind, steps = DRAFT_KINDS_BY_NAME[base.draft.__struct_config__.tag], 1
    ahead = base.draft.layers if isinstance(base.draft, Mtp) else int(kind.proposes_at_extend)
    vocab = base.model.vocab
    text = tuple((3 * place + place // 4) % vocab for place in range(9))
    for size, (first, common, own) in itertools.product((1, 2, 3), ((9, 9, 0), (9, 6, 3), (6, 6, 2), (7, 4, 1))):
        tail = tuple((text[common] + 1 if common < 9 else 1) % vocab for _ in range(own))
        requests = (alone(text[:first], 0), alone(text[:common] + tail, 20))
        memory = replace(base.memory, page_size=size, pages=60, max_len=30)
        schedule = replace(base.schedule, preemption=False)
        scenario = validate(replace(base, steps=steps, requests=requests, memory=memory, schedule=schedule))
        of = lockstep(EngineSubject(), scenario)
        assert judge(of).passed
        # What is known of the first is its prompt and a token more, which the second may happen to go on with.
        known = text[:first] + of.script.requests[0].tokens[:1]
        prompt = requests[1].prompt
        same = next((at for at, pair in enumerate(zip(known, prompt, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(known), len(prompt)) if same is None else same
        final = first - max(0, ahead - 1)
        served = min(final, same - ahead, len(prompt) - max(1, ahead)) // size * size
        assert dict(of.schedule.cached) == {(0, 0): 0, (1, 0): max(0, served)}


SAME = Image(start=4, frames=1, height=2, width=2)


@pytest.mark.parametrize(("images", "served"), [((SAME,), 8), ((replace(SAME, frames=2, height=1),), 2), ((), 2)])
def test_pages_of_two_texts_part_where_an_image_begins_in_one_alone(images: tuple[Image, ...], served: int) -> None:
    """EAGLE's entries of page 1, tokens 2 and 3, are known by token 4 as well, with which the image begins."""
    first = replace(alone(tuple(range(9)), 0), images=(SAME,))
    memory = replace(DENSE[0].memory, page_size=2, pages=60, max_len=30)
    made = replace(DENSE[0], steps=1, model=replace(DENSE[0].model, mrope=True), memory=memory)
    schedule = replace(made.schedule, preemption=False)
    made = replace(made, requests=(first, replace(first, arrival=20, images=images)), schedule=schedule)
    of = lockstep(EngineSubject(), validate(made))
    assert judge(of).passed
    assert of.schedule.cached[1, 0] == served
    assert counts(of)["prefix_hits_of_images"] == (served == 8)


def test_texts_are_what_they_are_without_a_cache() -> None:
    of = by_engine(CACHED)
    plain = lockstep(EngineSubject(), replace(CACHED, schedule=replace(CACHED.schedule, prefix_cache=False)))
    assert judge(of).passed
    assert of.subject.texts == plain.subject.texts
    assert counts(of)["prefix_hits"] > 1


@pytest.mark.parametrize("commit", COMMITS)
def test_a_hybrid_is_served_up_to_a_page_with_a_state(commit: Literal["snapshot", "replay"]) -> None:
    """The prompt is run in chunks of 4 tokens, and what was kept of it when it is asked for is its states there."""
    text = tuple((3 * place + place // 4) % CACHED_STATES.model.vocab for place in range(11))
    for interval, slots, served in (
        (2, 9, 10),
        (4, 9, 8),
        (1, 9, 8),
        (3, 9, 6),
        (0, 9, 0),
        (2, 0, 0),
        (8, 9, 8),
        (6, 9, 6),
    ):
        scenario = replace(
            CACHED_STATES,
            states=States(commit=commit, checkpoint=interval),
            memory=replace(CACHED_STATES.memory, pages=60, max_len=30, checkpoint_slots=slots),
            schedule=replace(CACHED_STATES.schedule, preemption=False, chunk=4),
            requests=(alone(text, 0), alone(text, 20), alone(text, 40)),
        )
        of = lockstep(EngineSubject(), validate(scenario))
        assert judge(of).passed
        assert [of.schedule.cached[request, 0] for request in range(3)] == [0, served, served]


def test_who_begins_while_another_runs_is_served_what_that_has_run() -> None:
    text = tuple((3 * place + place // 4) % CACHED.model.vocab for place in range(11))
    requests = (replace(alone(text, 0), budget=9), alone(text, 2))
    memory = replace(CACHED.memory, pages=60, max_len=30)
    schedule = replace(CACHED.schedule, preemption=False, chunk=4)
    scenario = validate(replace(CACHED, requests=requests, memory=memory, schedule=schedule))
    of = lockstep(EngineSubject(), scenario)
    assert judge(of).passed
    # Two chunks of 4, of which the draft's entries look at the next token.
    assert of.schedule.cached[1, 0] == 8
    assert counts(of)["prefix_hits_on_running"] == 1


def test_who_keeps_no_pages_keeps_no_states() -> None:
    assert FEATURES_BY_NAME["prefix-cache"].without(CACHED_STATES).memory.checkpoint_slots == 0


@pytest.mark.parametrize(
    ("base", "count"),
    [(TREE, "prefix_hits_of_trees"), (ADAPTIVE, "prefix_hits_with_adaptive_steps")],
    ids=["tree", "adaptive"],
)
def test_trees_and_controllers_are_served_and_change_no_text(base: Scenario, count: str) -> None:
    first, *others = base.requests
    size = base.memory.page_size
    prompt = (first.prompt * size)[: 2 * size + 1]
    requests = (first, *(replace(one, prompt=(*prompt, number)) for number, one in enumerate(others)))
    requests = (replace(first, prompt=(*prompt, 3)), *requests[1:])
    memory = replace(base.memory, max_len=60, pages=60, checkpoint_slots=4)
    states = replace(base.states, checkpoint=size) if base.model.linear else base.states
    kept = replace(base, requests=requests, memory=memory, states=states)
    plain = lockstep(EngineSubject(), validate(kept))
    of = lockstep(EngineSubject(), validate(replace(kept, schedule=replace(base.schedule, prefix_cache=True))))
    assert judge(of).passed
    assert of.subject.texts == plain.subject.texts
    assert counts(of)[count] > 0
    assert not counts(plain)[count]


@pytest.mark.parametrize(("start", "served"), [(0, 0), (1, 0), (2, 2), (7, 6), (8, 8), (10, 10), (40, 10)])
def test_who_is_told_of_its_prompt_runs_what_is_asked_for(start: int, served: int) -> None:
    """Of a prompt of 11 tokens that another has left in pages of 2 all but the last page may be served."""
    text = tuple((3 * place + place // 4) % CACHED.model.vocab for place in range(11))
    again = replace(alone(text, 20), prompt_logprobs=PromptLogprobs(top=2, start=start))
    scenario = replace(
        CACHED,
        memory=replace(CACHED.memory, pages=60, max_len=30),
        schedule=replace(CACHED.schedule, preemption=False, chunk=4),
        requests=(alone(text, 0), again),
    )
    of = lockstep(EngineSubject(), validate(scenario))
    assert judge(of).passed
    assert of.schedule.cached[1, 0] == served
    told = of.subject.channel("accept.prompt_logprobs")
    assert sorted(key.row for key in told) == list(range(start + 1, 11))
    assert counts(of)["prefix_hits_cut_by_logprobs"] == int(served < 10)
    assert counts(of)["prompt_logprobs_behind_prefix"] == int(served > 0 and start < 10)


def _with_pages(of: Evidence, change: Callable[[CachedPages], CachedPages], place: int = 0) -> Evidence:
    """The same with what `change` makes of the first pages that the cache keeps, or of those at another place."""
    observations = list(of.subject.observations)
    at = [at for at, one in enumerate(observations) if one.channel == "pool.cached" and one.value][place]
    observations[at] = observations[at]._replace(value=change(observations[at].value))  # type: ignore[arg-type]
    return with_observations(of, observations)


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        (lambda pages: pages[1:], Missing),
        (lambda pages: (*pages, replace(pages[-1], page=12, tokens=(1, 2, 3))), Surplus),
        (lambda pages: (*pages, replace(pages[-1], page=12)), Surplus),
        (lambda pages: (replace(pages[0], locks=pages[0].locks + 1), *pages[1:]), Different),
        (lambda pages: (replace(pages[0], page=pages[0].page + 1), *pages[1:]), Different),
    ],
    ids=["lost", "rejected token kept", "kept twice", "locked by nobody", "another page"],
)
def test_a_cache_that_keeps_something_else_is_noticed(
    change: Callable[[CachedPages], CachedPages], relation: type[Relation]
) -> None:
    (found,) = find("prefix_cache.pages").check(_with_pages(by_engine(CACHED), change))
    assert isinstance(found.relation, relation)


def _with_states(of: Evidence, change: Callable[[CheckpointReport], CheckpointReport]) -> Evidence:
    """The same with what `change` makes of the first states that the cache keeps."""
    observations = list(of.subject.observations)
    at = next(at for at, one in enumerate(observations) if one.channel == "pool.checkpoints" and one.value.kept)  # type: ignore[union-attr]
    observations[at] = observations[at]._replace(value=change(observations[at].value))  # type: ignore[arg-type]
    return with_observations(of, observations)


def test_states_of_a_hybrid_are_kept_as_defined() -> None:
    assert judge(by_engine(CACHED_STATES)).passed
    assert all(
        counts(by_engine(CACHED_STATES))[name] for name in ("prefix_hits_of_hybrids", "checkpoints_copied_again")
    )


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        (lambda one: replace(one, kept=one.kept[1:]), Missing),
        (lambda one: replace(one, kept=(*one.kept, CachedCheckpoint(6, (1, 2, 3)))), Surplus),
        (lambda one: replace(one, kept=(*one.kept, replace(one.kept[0], slot=6))), Surplus),
        (lambda one: replace(one, kept=(replace(one.kept[0], slot=1), *one.kept[1:])), OutOfRange),
        (lambda one: replace(one, free_slots=one.free_slots + 1), Different),
    ],
    ids=["lost", "of another text", "kept twice", "in the slot of a request", "a slot too many"],
)
def test_a_cache_that_keeps_other_states_is_noticed(
    change: Callable[[CheckpointReport], CheckpointReport], relation: type[Relation]
) -> None:
    (found,) = find("prefix_cache.states").check(_with_states(by_engine(CACHED_STATES), change))
    assert isinstance(found.relation, relation)


def test_a_page_that_is_cached_and_free_is_noticed() -> None:
    of = _with_pages(by_engine(CACHED), lambda pages: pages[1:], place=-1)
    (found,) = find("pool.balance").check(of)
    assert found.channel == "pool.owners"


def _served(of: Evidence, more: int) -> Evidence:
    return edited(of, "round.cached", lambda _, tokens: tokens and tokens + more)


@pytest.mark.parametrize("more", [-2, 1, 2], ids=["a page less", "no whole page", "a page more"])
def test_a_request_that_is_served_something_else_is_noticed(more: int) -> None:
    assert find("prefix_cache.matched").check(_served(by_engine(CACHED), more))


def test_a_cache_that_nobody_asked_for_is_not_judged() -> None:
    of = dataclasses.replace(by_engine(CACHED), scenario=replace(CACHED, schedule=STATIC.schedule))
    assert not find("prefix_cache.matched").applies(of)
    assert not find("prefix_cache.pages").applies(of)
    assert not find("prefix_cache.states").applies(by_engine(CACHED))


def test_what_is_told_of_a_prompt_comes_in_the_order_of_positions() -> None:
    contract = find("accept.prompt_logprobs")
    text = tuple((3 * place + place // 4) % CACHED.model.vocab for place in range(11))
    asked = replace(alone(text, 0), prompt_logprobs=PromptLogprobs(top=2, start=3))
    of = lockstep(EngineSubject(), validate(replace(CACHED, requests=(asked, alone(text, 3)))))
    assert contract.check(of) == []
    told = [one for one in of.subject.observations if one.channel == "accept.prompt_logprobs"]
    others = [one for one in of.subject.observations if one.channel != "accept.prompt_logprobs"]
    (found,) = contract.check(with_observations(of, [*others, *told[4:], *told[:4]]))
    assert (found.request, found.row, found.relation) == (0, told[0].key.row, OutOfOrder())
