"""Scenarios of probe models: small, valid by construction, and aimed at where bugs were found.

Draws shrink toward what a person wants to read: graphs off, one request, a short prompt, page size 1, one layer.
`P` page size, `K` drafts of a round. Each profile is a trigger that
real bugs needed: a batch that shrinks below its captured size, a partial accept in a padded replay, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from draftproof.properties.values.scenario import (
    RELATIONS,
    Graphs,
    Memory,
    ProbeHead,
    ProbeModel,
    Relation,
    Request,
    RoundWish,
    Scenario,
    Schedule,
)
from draftproof.properties.values.validate import validate

# Change it with anything that changes what a seed generates. Every integer is drawn from below 100: Hypothesis mixes
# constants of imported sources into larger ranges, and lists would depend on what else a process has imported.
VERSION = 2
Draw = st.DrawFn

# The relations that need a graph, or captured sizes, to differ from the base run.
_NEED_SIZES: frozenset[Relation] = frozenset({"graph_vs_eager", "padded_vs_exact", "other_bucket"})
_TURNS: tuple[Relation, ...] = (*RELATIONS, "none")


class Profile(NamedTuple):
    """What a scenario is about; `requests` and `steps` (K) are the least of them that it takes."""

    name: str
    requests: int = 1
    steps: int = 1
    graphs: bool = False
    pattern: str = "any"
    limits: bool = False
    long: bool = False
    together: bool = False
    most_steps: int = 5


PROFILES = (
    Profile("any"),
    Profile("shrinking_batch", requests=3, steps=2, graphs=True, pattern="uneven", together=True),
    Profile("partial_in_padding", requests=1, steps=3, graphs=True, pattern="partial"),
    Profile("alternating", requests=2, steps=2, graphs=True, pattern="alternating"),
    Profile("switching", requests=2, steps=3, graphs=True, pattern="switching"),
    Profile("oversized", requests=3, steps=2, graphs=True, pattern="partial", together=True, most_steps=3),
    Profile("reuse", requests=3, steps=2, graphs=True, pattern="any", long=True),
    Profile("limits", requests=2, steps=3, graphs=True, pattern="all", limits=True),
    Profile("boundaries", requests=2, steps=4, graphs=True, pattern="uneven", limits=True),
)
BY_NAME = {profile.name: profile for profile in PROFILES}
# Scenarios in one list take turns at profiles, so that a few examples have seen every trigger.
_ROTATION = tuple(profile for profile in PROFILES if profile.name != "any")
_FIRST_BLOCK, _BLOCK = 2, 8


def scenarios(profile: Profile | str | None = None) -> st.SearchStrategy[Scenario]:
    """Scenarios of one profile, or of a drawn one."""
    if profile is None:
        return st.sampled_from(PROFILES).flatmap(_scenario)
    return _scenario(BY_NAME[profile] if isinstance(profile, str) else profile)


def generate(seed_: int, count: int) -> list[Scenario]:
    """`count` scenarios, a function of the seed and of VERSION only: nothing is read from a database or from sources.

    A longer list begins with the shorter one. Raises ValueError for a negative count.
    """
    if count < 0:
        raise ValueError(f"count is {count}; allowed: 0 or more")
    lanes = [_lane(seed_, lane, -(-(count - lane) // len(_ROTATION))) for lane in range(min(count, len(_ROTATION)))]
    drawn = (lanes[index % len(lanes)][index // len(lanes)] for index in range(count))
    return [_with_relation(scenario, index + index // len(_TURNS) + seed_) for index, scenario in enumerate(drawn)]


def _with_relation(scenario: Scenario, turn: int) -> Scenario:
    """Relations take turns, so that a short list holds them all; one that needs captured sizes lets others go first."""
    turns = (*_TURNS[turn % len(_TURNS) :], *_TURNS[: turn % len(_TURNS)])
    relation = next(one for one in turns if scenario.graphs.sizes or one not in _NEED_SIZES)
    requests = scenario.requests
    if relation == "taps_off":
        # Without taps a draft shows only in what is verified: its own proposals have to be.
        requests = tuple(msgspec.structs.replace(one, rounds=(_own(scenario), *one.rounds[1:])) for one in requests)
    return validate(msgspec.structs.replace(scenario, relation=relation, requests=requests))


def _own(scenario: Scenario) -> RoundWish:
    return RoundWish(drafts=scenario.steps, accept=-1)


def _lane(seed_: int, lane: int, count: int) -> list[Scenario]:
    """Scenarios of one profile, in blocks: the first is short, since few want more."""
    found: list[Scenario] = []
    while len(found) < count:
        block = seed_ * len(_ROTATION) + lane if not found else len(found) + (seed_ * len(_ROTATION) + lane << 32)
        found += _block(block, _ROTATION[(lane + seed_) % len(_ROTATION)], _BLOCK if found else _FIRST_BLOCK)
    return found[:count]


def _block(seed_: int, profile: Profile, count: int) -> list[Scenario]:
    """The first example of a run is always the smallest there is, and is left out; in runs of ten and more some after
    it are small, too."""
    found: list[Scenario] = []

    @seed(seed_)
    @settings(
        max_examples=count + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(_scenario(profile))
    def collect(scenario: Scenario) -> None:
        found.append(scenario)

    collect()
    return found[1:]


class _Sizes(NamedTuple):
    """What requests have to fit into."""

    vocab: int
    steps: int
    page_size: int
    chunk: int


def _distinct(draw: Draw, low: int, high: int, taken: set[int]) -> int:
    """A size that none of `taken` is: sizes that happen to be equal hide swapped axes."""
    free = [size for size in range(low, high + 1) if size not in taken]
    size = draw(st.sampled_from(free))
    taken.add(size)
    return size


@st.composite
def _models(draw: Draw) -> tuple[ProbeModel, ProbeHead]:
    """Pairwise distinct head sizes and widths of target and head, grouped queries half the time."""
    taken: set[int] = set()
    key, value = _distinct(draw, 2, 4, taken), _distinct(draw, 2, 5, taken)
    head_key, head_value = _distinct(draw, 1, 6, taken), _distinct(draw, 1, 7, taken)
    lanes, head_lanes = _distinct(draw, 3, 8, taken), _distinct(draw, 3, 9, taken)
    kv_heads, groups = draw(st.sampled_from(((1, 2), (2, 1), (2, 2), (1, 3))))
    head_kv, head_groups = draw(st.sampled_from(((3, 1), (1, 1), (1, 2))))
    model = ProbeModel(
        seed=draw(st.integers(0, 15)),
        layers=draw(st.sampled_from((1, 2, 2, 3))),
        heads=kv_heads * groups,
        kv_heads=kv_heads,
        key_dim=key,
        value_dim=value,
        lanes=lanes,
        vocab=draw(st.sampled_from((37, 23, 61))),
        logit_bits=draw(st.sampled_from((23, 23, 23, 3, 2))),
        agreement=draw(st.sampled_from((192, 256, 128, 0))),
    )
    head = ProbeHead(
        seed=draw(st.integers(0, 15)),
        heads=head_kv * head_groups,
        kv_heads=head_kv,
        key_dim=head_key,
        value_dim=head_value,
        lanes=head_lanes,
    )
    return model, head


def _near(draw: Draw, unit: int, low: int, high: int) -> int:
    """A length of k * unit + {-1, 0, 1}, within low .. high."""
    k = draw(st.integers(1, max(1, high // unit)))
    return min(max(k * unit + draw(st.sampled_from((0, 1, -1))), low), high)


@st.composite
def _rounds(draw: Draw, pattern: str, steps: int) -> tuple[RoundWish, ...]:
    """The wishes of one request: drafts wanted and how many of them are right, by an accept pattern."""
    if pattern == "any":
        pattern = draw(st.sampled_from(("all", "none", "partial", "alternating", "switching", "uneven", "unforced")))
    count = draw(st.integers(1, 4))
    if pattern == "alternating":
        drafts = draw(st.integers(min(2, steps), steps))
        pairs = (RoundWish(drafts=drafts, accept=drafts), RoundWish(drafts=drafts, accept=0))
        return pairs if draw(st.booleans()) else pairs[::-1]
    if pattern == "switching":
        drafts = draw(st.integers(min(2, steps), steps))
        some = RoundWish(drafts=drafts, accept=draw(st.integers(0, drafts)))
        none = RoundWish(drafts=0, accept=0)
        return (some, none, *(draw(_wish("any", steps)) for _ in range(count - 1)))
    return tuple(draw(_wish(pattern, steps)) for _ in range(count))


@st.composite
def _wish(draw: Draw, pattern: str, steps: int) -> RoundWish:
    if pattern == "unforced":
        return RoundWish(drafts=draw(st.integers(1, steps)), accept=-1)
    if pattern == "partial" and steps > 1:
        drafts = draw(st.integers(2, steps))
        return RoundWish(drafts=drafts, accept=draw(st.integers(1, drafts - 1)))
    drafts = draw(st.integers(1 if pattern in ("all", "none", "partial") else 0, steps))
    accept = {"all": drafts, "none": 0}.get(pattern)
    return RoundWish(drafts=drafts, accept=draw(st.integers(-1, drafts)) if accept is None else accept)


@st.composite
def _request(draw: Draw, profile: Profile, sizes: _Sizes, index: int) -> Request:
    """`together`: the first runs alone, in a graph, and long enough for the others to join it."""
    unit = draw(st.sampled_from((sizes.page_size, sizes.chunk)))
    longest = 14 if index == 0 and profile.long else 9
    length = _near(draw, unit, 1, longest)
    start, stride = draw(st.integers(0, sizes.vocab - 1)), draw(st.integers(1, 7))
    prompt = tuple((start + stride * place * (place + 1) // 2) % sizes.vocab for place in range(length))
    low, high = (1, 4) if profile.long and index else (9, 12) if profile.together and not index else (4, 10)
    budget = draw(st.integers(low, high))
    # A stop inside an accepted run; at `budget - 1` stop and budget fall on one token.
    places = (-1, budget - 1) if profile.together else (-1, -1, budget - 1, max(budget - 2, 0), min(2, budget - 1))
    stop = draw(st.sampled_from(places))
    return Request(
        arrival=draw(st.sampled_from((1, 2) if profile.together else (0, 0, 1, 3))) if index else 0,
        prompt=prompt,
        budget=budget,
        rounds=draw(_rounds(profile.pattern, sizes.steps)),
        stop_at=stop,
    )


def _captured(draw: Draw, profile: Profile, max_batch: int, needed: bool) -> Graphs:
    """Sizes that leave rows of padding; "oversized" leaves the largest batches without any."""
    if profile.name == "oversized":
        return Graphs(sizes=(draw(st.integers(1, max_batch - 1)),))
    if not (profile.graphs or needed or draw(st.booleans())):
        return Graphs()
    if not needed and draw(st.sampled_from((False,) * 7 + (True,))):
        return Graphs()
    options = [(max_batch,), (max_batch + 1,), (1, max_batch + 1), (2, max_batch + 2)]
    options.append((1, max(2, max_batch - 1), max_batch + 2))
    if max_batch > 2:
        options.append((2, max_batch))
    if profile.name in ("shrinking_batch", "partial_in_padding"):
        options = [(max_batch + 1,), (max_batch,), (2, max_batch + 2)] if max_batch > 1 else [(2,), (3,)]
    return Graphs(sizes=draw(st.sampled_from(options)))


def _alike(request: Request, shift: int, vocab: int) -> Request:
    """Requests alike in all but their tokens arrive, run and end together: a batch shrinks by more than one row."""
    prompt = tuple((token + shift) % vocab for token in request.prompt)
    rounds = tuple(msgspec.structs.replace(wish, accept=max(0, wish.accept)) for wish in request.rounds)
    return msgspec.structs.replace(request, prompt=prompt, rounds=rounds, stop_at=-1)


@st.composite
def _scenario(draw: Draw, profile: Profile) -> Scenario:
    relation: Relation = draw(st.sampled_from(("none", *RELATIONS)))
    model, head = draw(_models())
    steps = draw(st.integers(profile.steps, profile.most_steps))
    page_size = draw(st.integers(1, 6)) if profile.name == "any" else draw(st.sampled_from((2, 3, 1, 4, 5)))
    chunk = 16 if profile.name == "oversized" else draw(st.sampled_from((4, 3, 5, 16)))
    sizes = _Sizes(model.vocab, steps, page_size, chunk)
    count = draw(st.integers(profile.requests, 4))
    requests = tuple(draw(_request(profile, sizes, index)) for index in range(count))
    if profile.name == "shrinking_batch" and draw(st.booleans()):
        requests = (requests[0], *(_alike(requests[1], shift, model.vocab) for shift in range(count - 1)))
    least = 2 if count > 1 else 1
    max_batch = draw(st.integers(min(count, 3) if profile.requests > 2 else least, max(count, least)))
    if profile.name in ("reuse", "oversized"):
        max_batch = 2 if profile.name == "reuse" else count
    schedule = Schedule(max_batch=max_batch, chunk=chunk, row_seed=draw(st.integers(0, 3)))
    graphs = _captured(draw, profile, max_batch, relation in _NEED_SIZES)
    memory = _memory(draw, profile, requests, sizes, schedule)
    return validate(
        Scenario(
            model=model,
            head=head,
            steps=steps,
            memory=memory,
            graphs=graphs,
            schedule=schedule,
            requests=requests,
            relation=relation,
        )
    )


def _memory(draw: Draw, profile: Profile, requests: tuple[Request, ...], sizes: _Sizes, schedule: Schedule) -> Memory:
    """As few pages and rows as make requests wait and reuse them; `max_len` sometimes ends a request."""
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
    rows = max(schedule.max_batch, _most_at_once(requests))
    return Memory(
        page_size=sizes.page_size,
        pages=pages,
        request_slots=rows if profile.name == "reuse" else rows + draw(st.integers(0, 1)),
        max_len=max(max_len, 4),
        page_seed=draw(st.integers(0, 3)),
        poison=draw(st.integers(0, 1)),
    )


def _most_at_once(requests: tuple[Request, ...]) -> int:
    arrivals = [request.arrival for request in requests]
    return max(arrivals.count(step) for step in set(arrivals))
