"""Scenarios of probe models: small, valid by construction, and aimed at where bugs were found.

Draws shrink toward what a person wants to read: graphs off, one request, a short prompt, page size 1, one layer.
Each profile (profiles.py) is a trigger that real bugs needed: a batch that shrinks below its captured size, a partial
accept in a padded replay, and so on.

Hypothesis draws a scenario of a profile, with an EAGLE draft. `generate` then makes four passes over the list, each a
pure function of a scenario and its place in the list:

1. `widened` (wide.py): every 41st scenario gets rounds of seven drafts and batches of five requests.
2. `with_draft` (drafts.py): the EAGLE draft is exchanged for that whose turn it is, in the form whose turn it is.
3. `_in_turns`: variants, and the two ways to commit states, take turns.
4. `unforced`: without taps a draft shows only in what is verified, so rounds of `taps_off` verify its own proposals.

`P` page size, `K` drafts of a round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.drafts import with_draft
from draftproof.properties.strategies.examples import examples
from draftproof.properties.strategies.models import models
from draftproof.properties.strategies.plans import plans
from draftproof.properties.strategies.profiles import BY_NAME, PROFILES, ROTATION, Profile
from draftproof.properties.strategies.wide import widened
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, Eagle, Mtp, kind_of
from draftproof.properties.values.scenario import (
    VARIANTS,
    Adaptive,
    Graphs,
    Memory,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
    Variant,
)
from draftproof.properties.values.validate import validate
from draftproof.properties.variants import NEED_SIZES

# Every integer is drawn from below 100: Hypothesis mixes constants of imported sources into larger ranges, and lists
# would depend on what else a process has imported.
Draw = st.DrawFn

# Only a hybrid target has two ways to commit.
_TURNS: tuple[Variant, ...] = (*(variant for variant in VARIANTS if variant != "other_commit"), "none")
_COMMITS: tuple[Literal["snapshot", "replay"], ...] = ("snapshot", "replay")
# After every 73rd scenario the turns of drafts slip by one: with any number of drafts up to eight each of them meets
# all profiles, variants and ways to commit within forty scenarios of its own.
_DRAFT_SLIP = 73
# Scenarios 33, 74, .. have wide rounds and batches.
_WIDE_PERIOD, _FIRST_WIDE = 41, 33
# Of nine hybrid scenarios two compare both ways to commit.
_COMMIT_PERIOD, _OTHER_COMMIT = 9, (3, 7)
_FIRST_BLOCK, _BLOCK = 2, 8


def scenarios(profile: Profile | str | None = None, draft: Algorithm | None = None) -> st.SearchStrategy[Scenario]:
    """Return a strategy for scenarios of one profile and one draft, or of drawn ones."""
    profiles = st.sampled_from(PROFILES) if profile is None else st.just(profile)
    drafts = st.sampled_from(ALGORITHMS) if draft is None else st.just(draft)
    return _drafted(profiles.map(lambda one: BY_NAME[one] if isinstance(one, str) else one), drafts)


@st.composite
def _drafted(draw: Draw, profiles: st.SearchStrategy[Profile], drafts: st.SearchStrategy[Algorithm]) -> Scenario:
    """Draw the draft last: whatever shrinks, shrinks alike for each of them."""
    scenario = draw(_scenario(draw(profiles)))
    return with_draft(scenario, draw(drafts), draw(st.integers(0, 59)))


def generate(seed_: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1]) -> list[Scenario]:
    """Return `count` scenarios, a function of the arguments and of the version only; several drafts take turns.

    Nothing is read from a database or from sources.
    A longer list begins with the shorter one, and lists of other drafts have the same batches, memory and schedules.
    Raises ValueError for a negative count, for no draft, and for one that is unknown or named twice.
    """
    if count < 0:
        raise ValueError(f"invalid count {count}: expected 0 or more")
    if not drafts or len(set(drafts)) < len(drafts) or not set(drafts) <= set(ALGORITHMS):
        raise ValueError(f"invalid drafts {list(drafts)}: expected some of {', '.join(ALGORITHMS)}, each once")
    return list(_in_turns(_with_drafts(_drawn(seed_, count), drafts, seed_), seed_))


@lru_cache(maxsize=8)
def _drawn(seed_: int, count: int) -> tuple[Scenario, ...]:
    """Return what lists of any drafts are made from."""
    lanes = [_lane(seed_, lane, -(-(count - lane) // len(ROTATION))) for lane in range(min(count, len(ROTATION)))]
    return tuple(lanes[index % len(lanes)][index // len(lanes)] for index in range(count))


def _with_drafts(drawn: Iterable[Scenario], drafts: Sequence[Algorithm], seed_: int) -> Iterator[Scenario]:
    """Widen scenarios whose turn it is, and let drafts, and the forms of each, take turns."""
    for index, scenario in enumerate(drawn):
        rotation = index // len(ROTATION)
        turn = index + index // _DRAFT_SLIP
        if index % _WIDE_PERIOD == _FIRST_WIDE:
            scenario = widened(scenario, index // _WIDE_PERIOD)
        yield with_draft(scenario, drafts[turn % len(drafts)], seed_ + index // len(drafts) + rotation)


def _in_turns(drawn: Iterable[Scenario], seed_: int) -> Iterator[Scenario]:
    """Let variants and ways to commit take turns, so that a short list holds them all.

    A variant that needs captured sizes lets others go first. The turn moves on by one more a rotation of profiles, so
    that these meet all variants.
    """
    turn, hybrids = seed_, seed_
    for index, scenario in enumerate(drawn):
        turns = (*_TURNS[turn % len(_TURNS) :], *_TURNS[: turn % len(_TURNS)])
        variant = next(one for one in turns if scenario.graphs.sizes or one not in NEED_SIZES)
        commit = scenario.states.commit
        turn += int(index % len(ROTATION) == 0)
        if _hybrid(scenario):
            commit = _COMMITS[hybrids % 2]
            hybrids += 1
        if _hybrid(scenario) and hybrids % _COMMIT_PERIOD in _OTHER_COMMIT:
            variant = "other_commit"
        else:
            turn += 1
        states = replace(scenario.states, commit=commit)
        yield validate(
            replace(unforced(scenario) if variant == "taps_off" else scenario, variant=variant, states=states)
        )


def unforced(scenario: Scenario) -> Scenario:
    """Return the scenario with rounds that verify the draft's own proposals: without taps it shows only in these.

    Under a controller all of them are, and right ones, so that the step count rises. What an n-gram draft finds is
    seldom right, whatever the model: there some rounds still force what moves the controller.
    """
    own = RoundPlan(num_drafts=scenario.steps, num_correct=-1)
    if scenario.adaptive is None or kind_of(scenario.draft).proposes == "lookup":
        requests = tuple(replace(one, rounds=(own, *one.rounds[1:])) for one in scenario.requests)
        return replace(scenario, requests=requests)
    requests = tuple(replace(one, rounds=(own,)) for one in scenario.requests)
    draft = scenario.draft
    if isinstance(draft, Eagle | Mtp) and isinstance(scenario.model, ProbeModel):
        draft = replace(draft, head_vocab=draft.head_vocab and scenario.model.vocab)
    return replace(scenario, model=replace(scenario.model, agreement=256), draft=draft, requests=requests)


def _hybrid(scenario: Scenario) -> bool:
    return "linear_attention" in scenario.model.types  # type: ignore[union-attr]  # generated: always a probe


def _lane(seed_: int, lane: int, count: int) -> list[Scenario]:
    """Draw scenarios of one profile in blocks: the first is short, since few want more.

    The first example of a block is left out, for it is always the smallest; in runs of ten some after it are, too.
    """
    found: list[Scenario] = []
    profile, own_seed = ROTATION[(lane + seed_) % len(ROTATION)], seed_ * len(ROTATION) + lane
    while len(found) < count:
        seed, size = (len(found) + (own_seed << 32), _BLOCK) if found else (own_seed, _FIRST_BLOCK)
        found += examples(_scenario(profile), seed, size + 1)[1:]
    return found[:count]


class _Sizes(NamedTuple):
    """What requests have to fit into."""

    vocab: int
    steps: int
    page_size: int
    chunk: int


def _near(draw: Draw, unit: int, low: int, high: int) -> int:
    """Draw a length of k * unit + {-1, 0, 1}, within low .. high."""
    k = draw(st.integers(1, max(1, high // unit)))
    return min(max(k * unit + draw(st.sampled_from((0, 1, -1))), low), high)


@st.composite
def _request(draw: Draw, profile: Profile, sizes: _Sizes, index: int) -> Request:
    """Draw a request; with `together` the first runs alone, in a graph, and long enough for the others to join it."""
    unit = draw(st.sampled_from((sizes.page_size, sizes.chunk)))
    longest = 14 if index == 0 and profile.long else 9
    length = _near(draw, unit, 1, longest)
    start, stride = draw(st.integers(0, sizes.vocab - 1)), draw(st.integers(1, 7))
    prompt = tuple((start + stride * place * (place + 1) // 2) % sizes.vocab for place in range(length))
    if length > sizes.chunk and (start + stride) % 2:
        # Token 0 begins a later chunk: to be told from "no token".
        prompt = (*prompt[: sizes.chunk], 0, *prompt[sizes.chunk + 1 :])
    budget = draw(st.integers(*_budget(profile, index)))
    # A stop inside an accepted run; at `budget - 1` stop and budget fall on one token.
    places = (-1, budget - 1) if profile.together else (-1, -1, budget - 1, max(budget - 2, 0), min(2, budget - 1))
    stop = draw(st.sampled_from(places))
    return Request(
        arrival=draw(st.sampled_from(_arrivals(profile, index))),
        prompt=prompt,
        budget=budget,
        rounds=draw(plans(profile.pattern, sizes.steps)),
        stop_at=stop,
    )


def _arrivals(profile: Profile, index: int) -> tuple[int, ...]:
    """Return arrivals; `together`: the first is alone at first; "reuse": those without a slot wait for one."""
    if not index:
        return (0,)
    if _shape(profile) == "reuse":
        return (0, 1) if index == 1 else (1 + index, 2 + index)
    if profile.draft_batch:
        return (1, 2, 5)
    return (1, 2) if profile.together else (0, 0, 1, 3)


def _budget(profile: Profile, index: int) -> tuple[int, int]:
    """Return the least and the most tokens of a request.

    A controller needs about eight rounds to move twice, and the first request of a batch that has become too large for
    drafts should see it shrink again.
    """
    if profile.adaptive:
        return 14, 20
    if profile.draft_batch:
        return (3, 6) if index else (14, 18)
    if profile.long and index:
        return 1, 4
    return (9, 12) if profile.together and not index else (4, 10)


def _captured(draw: Draw, profile: Profile, max_batch: int, needed: bool) -> Graphs:
    """Draw sizes that leave rows of padding; "oversized" leaves the largest batches without any."""
    if _shape(profile) == "oversized":
        return Graphs(sizes=(draw(st.integers(1, max_batch - 1)),))
    if not (profile.graphs or needed or draw(st.booleans())):
        return Graphs()
    if not needed and draw(st.sampled_from((False,) * 7 + (True,))):
        return Graphs()
    options = [(max_batch,), (max_batch + 1,), (1, max_batch + 1), (2, max_batch + 2)]
    options.append((1, max(2, max_batch - 1), max_batch + 2))
    if max_batch > 2:
        options.append((2, max_batch))
    if _shape(profile) in ("shrinking_batch", "partial_in_padding"):
        options = [(max_batch + 1,), (max_batch,), (2, max_batch + 2)] if max_batch > 1 else [(2,), (3,)]
    return Graphs(sizes=draw(st.sampled_from(options)))


def _alike(request: Request, shift: int, vocab: int) -> Request:
    """Return a request alike in all but tokens: such end together, and a batch shrinks by several rows."""
    prompt = tuple((token + shift) % vocab for token in request.prompt)
    rounds = tuple(replace(plan, num_correct=max(0, plan.num_correct)) for plan in request.rounds)
    return replace(request, prompt=prompt, rounds=rounds, stop_at=-1)


def _shape(profile: Profile) -> str:
    return profile.shape or profile.name


# Step counts to choose from, with one to begin with: among them or between them, so that there is one above; and above
# them all.
_RISING = ((1, (1, 3)), (2, (2, 4)), (1, (1, 2, 5)), (2, (1, 3)), (2, (1, 2, 5)))
_CANDIDATES = (*_RISING, (4, (1, 2)), (3, (1, 2)))


@st.composite
def _adaptive(draw: Draw, profile: Profile) -> Adaptive:
    """Draw a controller that moves within a few rounds."""
    initial, candidates = draw(st.sampled_from(_RISING if profile.pattern == "rising" else _CANDIDATES))
    return Adaptive(
        initial=initial,
        candidates=candidates,
        alpha=draw(st.sampled_from((0.5, 0.25, 0.75))),
        interval=draw(st.sampled_from((1, 1, 2))),
        warmup=draw(st.integers(0, 2)),
        down=draw(st.sampled_from((0.0, -0.25, 0.25))),
        # Far below zero an average rises past two candidates at once.
        up=draw(st.sampled_from((0.0, -0.25, 0.25, -1.5))),
    )


@st.composite
def _schedule(draw: Draw, profile: Profile, count: int, chunk: int) -> Schedule:
    """Draw batches of all requests or of some; of few of them if larger ones get no drafts."""
    least = 2 if count > 1 else 1
    max_batch = draw(st.integers(min(count, 3) if profile.requests > 2 else least, max(count, least)))
    if _shape(profile) in ("reuse", "oversized"):
        max_batch = 2 if _shape(profile) == "reuse" else count
    few = draw(st.integers(1, max_batch - 1)) if profile.draft_batch else 0
    return Schedule(max_batch=max_batch, chunk=chunk, row_seed=draw(st.integers(0, 3)), draft_batch=few)


@st.composite
def _requests(draw: Draw, profile: Profile, sizes: _Sizes, count: int) -> tuple[Request, ...]:
    """Draw requests, sometimes alike in all but tokens, so that all end, or all go without drafts, in one step."""
    requests = tuple(draw(_request(profile, sizes, index)) for index in range(count))
    if _shape(profile) == "shrinking_batch" and draw(st.booleans()):
        return (requests[0], *(_alike(requests[1], shift, sizes.vocab) for shift in range(count - 1)))
    if (profile.adaptive or _shape(profile) == "switching") and draw(st.sampled_from((False, True, True))):
        return (requests[0], *(_alike(requests[0], shift, sizes.vocab) for shift in range(1, count)))
    return requests


@st.composite
def _scenario(draw: Draw, profile: Profile) -> Scenario:
    variant: Variant = draw(st.sampled_from(("none", *VARIANTS)))
    hybrid = draw(st.booleans()) if profile.name == "any" else profile.hybrid
    model, head = draw(models(hybrid))
    adaptive = draw(_adaptive(profile)) if profile.adaptive else None
    steps = max(adaptive.steps) if adaptive else draw(st.integers(profile.steps, profile.most_steps))
    page_size = draw(st.integers(1, 6)) if profile.name == "any" else draw(st.sampled_from((2, 3, 1, 4, 5)))
    chunk = 16 if _shape(profile) == "oversized" else draw(st.sampled_from((4, 3, 5, 16)))
    sizes = _Sizes(model.vocab, steps, page_size, chunk)
    count = draw(st.integers(profile.requests, 3 if profile.adaptive else 4))
    requests = draw(_requests(profile, sizes, count))
    schedule = draw(_schedule(profile, count, chunk))
    graphs = _captured(draw, profile, schedule.max_batch, variant in NEED_SIZES)
    memory = _memory(draw, profile, requests, sizes, schedule)
    return validate(
        Scenario(
            model=model,
            draft=head,
            steps=steps,
            memory=memory,
            graphs=graphs,
            schedule=schedule,
            requests=requests,
            variant=variant if hybrid or variant != "other_commit" else "none",
            states=draw(_states()) if hybrid else States(),
            adaptive=adaptive,
        )
    )


@st.composite
def _states(draw: Draw) -> States:
    return States(commit=draw(st.sampled_from(_COMMITS)), checkpoint=draw(st.sampled_from((2, 3, 0, 4, 1, 7))))


def _memory(draw: Draw, profile: Profile, requests: tuple[Request, ...], sizes: _Sizes, schedule: Schedule) -> Memory:
    """Draw so few pages and rows that requests wait and reuse them; `max_len` sometimes ends a request."""
    totals = [len(request.prompt) + request.budget for request in requests]
    longest = max(len(request.prompt) for request in requests)
    max_len = max(totals) + sizes.steps
    if profile.limits:
        # One of: cuts the longest request, is met exactly, leaves one over; near a page boundary if it can be.
        # Or the longest prompt leaves room for its first token only.
        less = draw(st.sampled_from((0, -1, -2, 1, -max(totals))))
        max_len = max(longest + 1, max(totals) + less, 4)
    needs = sorted((-(-min(max_len, total + sizes.steps) // sizes.page_size) for total in totals), reverse=True)
    ample = sum(needs)
    tight = sum(needs[: min(2, len(needs))])
    pages = max(ample if profile.together or draw(st.booleans()) else tight, needs[0])
    at_once = max(Counter(request.arrival for request in requests).values())
    rows = max(schedule.max_batch, at_once)
    return Memory(
        page_size=sizes.page_size,
        pages=pages,
        request_slots=rows if _shape(profile) == "reuse" else rows + draw(st.integers(0, 1)),
        max_len=max(max_len, 4),
        page_seed=draw(st.integers(0, 3)),
        poison=draw(st.integers(0, 1)),
    )
