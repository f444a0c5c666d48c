"""Scenarios of probe models: small, valid by construction, and aimed at where bugs were found.

Draws shrink toward what a person wants to read: graphs off, one request, a short prompt, page size 1, one layer.
Each profile (profiles.py) is a trigger that real bugs needed: a batch that shrinks below its captured size, a partial
accept in a padded replay, and so on. What a scenario is to be is its turn (turns.py); the rest is drawn, once.

`P` page size, `K` drafts of a round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies import decks
from draftproof.properties.strategies.aborts import with_aborts
from draftproof.properties.strategies.codes import with_codes
from draftproof.properties.strategies.controllers import by_batch
from draftproof.properties.strategies.drafts import with_draft
from draftproof.properties.strategies.ends import with_ends
from draftproof.properties.strategies.examples import composed, examples, integers, sampled
from draftproof.properties.strategies.grammars import with_grammars
from draftproof.properties.strategies.handovers import with_handover
from draftproof.properties.strategies.images import with_images
from draftproof.properties.strategies.logprobs import with_logprobs, with_prompt_logprobs
from draftproof.properties.strategies.mixed import with_mixed
from draftproof.properties.strategies.models import models
from draftproof.properties.strategies.overlap import with_overlap
from draftproof.properties.strategies.penalties import with_penalties
from draftproof.properties.strategies.preemption import with_preemption
from draftproof.properties.strategies.prefix_cache import with_prefix_cache
from draftproof.properties.strategies.profiles import BY_NAME, PROFILES, SIZES, SMALL, WIDE, Profile, Size
from draftproof.properties.strategies.ranks import SPREADS, TENSOR_SPREADS, Spread, may_have_ranks, with_ranks
from draftproof.properties.strategies.requests import Draw, Fit, requests
from draftproof.properties.strategies.sampling import with_sampling
from draftproof.properties.strategies.step_tokens import with_step_tokens
from draftproof.properties.strategies.trees import beside_tree, with_tree
from draftproof.properties.strategies.turns import Turn, may_be_overlapped, overlapped, turns
from draftproof.properties.strategies.windows import with_windows
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, Eagle, Mtp, kind_of
from draftproof.properties.values.scenario import (
    Adaptive,
    AdaptiveByBatch,
    Graphs,
    Memory,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
)
from draftproof.properties.values.validate import validate
from draftproof.properties.variants import NEED_SIZES

# Of more requests than these no others are cut by `max_len`.
_FEW = 4


def generate(
    seed_: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> list[Scenario]:
    """Return `count` scenarios, a function of the arguments and of the version only; several drafts take turns.

    Nothing is read from a database or from sources. A longer list begins with the shorter one.
    Raises ValueError for a negative count, for no draft, and for one that is unknown or named twice.
    """
    return list(generated(seed_, count, drafts, sizes))


def generated(
    seed_: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> Iterator[Scenario]:
    """Yield what `generate` returns, each drawn when it is asked for. Raises at once what `generate` raises."""
    if count < 0:
        raise ValueError(f"invalid count {count}: expected 0 or more")
    if not drafts or len(set(drafts)) < len(drafts) or not set(drafts) <= set(ALGORITHMS):
        raise ValueError(f"invalid drafts {list(drafts)}: expected some of {', '.join(ALGORITHMS)}, each once")
    return (_example(seed_, turn) for turn in turns(seed_, count, drafts, sizes))


def _example(seed_: int, turn: Turn) -> Scenario:
    """Return the scenario of a turn. The first example is always the smallest there is, and is left out."""
    own = (seed_ * len(ALGORITHMS) + ALGORITHMS.index(turn.draft)) << 32
    return examples(_scenario(turn), own + turn.number, 2)[-1]


def scenarios(
    profile: Profile | str | None = None,
    draft: Algorithm | None = None,
    sizes: Sequence[Size] = SIZES,
    ranks: Sequence[bool] = decks.RANKS,
) -> st.SearchStrategy[Scenario]:
    """Return a strategy for scenarios of one profile and one draft, or of drawn ones, each of one of these sizes.

    Requests are spread over ranks as often as `ranks` says so, and never if it is empty.
    """
    profiles = sampled(PROFILES) if profile is None else st.just(profile)
    drafts = sampled(ALGORITHMS) if draft is None else st.just(draft)
    return _drawn(profiles.map(lambda one: BY_NAME[one] if isinstance(one, str) else one), drafts, sizes, ranks)


@st.composite
def _drawn(
    draw: Draw,
    profiles: st.SearchStrategy[Profile],
    drafts: st.SearchStrategy[Algorithm],
    sizes: Sequence[Size],
    ranks: Sequence[bool],
) -> Scenario:
    profile = draw(profiles)
    if profile.name == "any":
        profile = profile._replace(hybrid=draw(st.booleans()))
    turn = Turn(
        profile=profile,
        draft=draw(drafts),
        size=draw(sampled([size for size in sizes for _ in range(size.share)])),
        variant=draw(sampled(decks.HYBRID_VARIANTS if profile.hybrid else decks.DENSE_VARIANTS)),
        commit=draw(sampled(decks.COMMITS)) if profile.hybrid else decks.COMMITS[0],
        alike=draw(sampled(decks.ALIKE)),
        is_by_batch=draw(sampled(decks.BY_BATCH)),
        form=draw(integers(0, 59)),
        number=0,
        services=draw(st.sampled_from(decks.SERVICES)),
        is_sampled=draw(sampled(decks.SAMPLED)),
        is_tree=draw(sampled(decks.TREES)),
        is_penalized=draw(sampled(decks.PENALIZED)),
        is_preempted=draw(sampled(decks.PREEMPTED)),
        is_constrained=draw(sampled(decks.CONSTRAINED)),
        has_logprobs=draw(sampled(decks.LOGPROBS)),
        is_cached=draw(sampled(decks.CACHED)),
        has_prompt_logprobs=draw(sampled(decks.PROMPT_LOGPROBS)),
        is_aborted=draw(sampled(decks.ABORTED)),
        is_ended=draw(sampled(decks.ENDED)),
        is_windowed=draw(sampled(decks.WINDOWED)),
        has_codes=draw(sampled(decks.CODED)),
        has_images=draw(sampled(decks.IMAGES)),
        spread=_spread(draw, ranks),
        is_mixed=draw(sampled(decks.MIXED)),
    )
    if may_be_overlapped(turn) and draw(sampled(decks.OVERLAPPED)):
        turn = overlapped(turn)
    return draw(_scenario(turn))


def _spread(draw: Draw, ranks: Sequence[bool]) -> Spread:
    has_ranks = draw(sampled(ranks)) if ranks else False
    return draw(sampled((*SPREADS, *TENSOR_SPREADS))) if has_ranks else "alone"


@st.composite
def _scenario(draw: Draw, turn: Turn) -> Scenario:
    """Draw what a turn leaves open."""
    profile, size = turn.profile, turn.size
    model, head = draw(models(profile.hybrid, turn.alike, size.layers))
    adaptive = draw(_adaptive(profile, size, turn.is_by_batch)) if profile.adaptive else None
    steps = max(adaptive.steps) if adaptive else _steps(draw, profile, size)
    page_size = draw(integers(1, 6)) if profile.name == "any" else draw(sampled(size.pages))
    chunk = max(size.chunks) if profile.shaped == "oversized" else draw(sampled(size.chunks))
    fit = Fit(model.vocab, steps, page_size, chunk)
    count = _count(draw, profile, size)
    drawn = draw(requests(profile, size, fit, count))
    schedule = draw(_schedule(profile, size, count, chunk))
    is_served_again = size.name == SMALL.name or (size.name != WIDE.name and turn.is_overlapped)
    if is_served_again and turn.spread == "alone":
        schedule = replace(schedule, services=turn.services)
    graphs = _captured(draw, profile, size, schedule.max_batch, turn.variant in NEED_SIZES)
    scenario = Scenario(
        model=model,
        draft=head,
        steps=steps,
        memory=_memory(draw, profile, drawn, fit, schedule),
        graphs=graphs,
        schedule=schedule,
        requests=drawn,
        variant="none" if turn.variant in ("chain_as_tree", "unmixed", "unoverlapped") else turn.variant,
        states=States(commit=turn.commit, checkpoint=_checkpoint(draw, size)) if profile.hybrid else States(),
        adaptive=adaptive,
    )
    made = with_draft(scenario, turn.draft, turn.form)
    made = unforced(made) if turn.variant == "taps_off" else made
    # Drawn last: what a seed makes of the others does not change with it.
    if turn.is_tree and kind_of(made.draft).trees and not made.dynamic:
        made = with_tree(draw, made)
    if turn.is_preempted and not (made.dynamic or made.tree):
        made = with_preemption(draw, made)
    if turn.is_budgeted and not (made.dynamic or made.tree):
        made = with_step_tokens(draw, made)
    if turn.is_sampled:
        made = with_sampling(draw, made)
    if not (made.adaptive or made.schedule.draft_batch):
        made = with_penalties(draw, made) if turn.is_penalized else made
        made = with_grammars(draw, made) if turn.is_constrained else made
    if turn.is_cached and not made.schedule.step_tokens:
        made = with_prefix_cache(draw, made)
    made = with_logprobs(draw, made) if turn.has_logprobs else made
    if turn.has_prompt_logprobs and (size.name == SMALL.name or turn.is_overlapped):
        made = with_prompt_logprobs(draw, made)
    if turn.is_ended and not (made.adaptive or made.schedule.draft_batch) and size.name != WIDE.name:
        made = with_ends(draw, made)
    made = with_codes(draw, made) if turn.has_codes else made
    made = with_images(draw, made) if turn.has_images and not made.schedule.prefix_cache else made
    if turn.variant == "chain_as_tree":
        return validate(beside_tree(made))
    made = with_handover(draw, made) if turn.is_handed_over else made
    # Wide batches are there to be full.
    is_aborted = turn.is_aborted and size.name != WIDE.name and not made.schedule.step_tokens
    made = with_aborts(draw, made) if is_aborted else made
    made = with_windows(draw, made) if turn.is_windowed and not made.tree else made
    has_ranks = turn.spread != "alone" and size.name == SMALL.name and may_have_ranks(made)
    if has_ranks:
        return validate(with_ranks(draw, made, turn.spread))
    if turn.is_overlapped:
        return validate(with_overlap(draw, replace(made, variant=turn.variant)))
    if turn.is_mixed and not (made.tree or made.schedule.handover):
        made = with_mixed(draw, replace(made, variant=turn.variant))
    return validate(made)


def unforced(scenario: Scenario) -> Scenario:
    """Return the scenario with rounds that verify the draft's own proposals: without taps it shows only in these.

    Under a controller all of them are, and right ones, so that the step count rises. What an n-gram draft finds is
    seldom right, whatever the model: there some rounds still force what moves the controller.
    """
    own = RoundPlan(num_drafts=scenario.steps, num_correct=-1)
    if scenario.adaptive is None or kind_of(scenario.draft).proposes == "lookup":
        changed = tuple(replace(one, rounds=(own, *one.rounds[1:])) for one in scenario.requests)
        return replace(scenario, requests=changed)
    changed = tuple(replace(one, rounds=(own,)) for one in scenario.requests)
    draft = scenario.draft
    if isinstance(draft, Eagle | Mtp) and isinstance(scenario.model, ProbeModel):
        draft = replace(draft, head_vocab=draft.head_vocab and scenario.model.vocab)
    return replace(scenario, model=replace(scenario.model, agreement=256), draft=draft, requests=changed)


def _steps(draw: Draw, profile: Profile, size: Size) -> int:
    return draw(sampled(size.steps)) if size.steps else draw(integers(profile.steps, profile.most_steps))


def _checkpoint(draw: Draw, size: Size) -> int:
    """Draw after how many tokens a state is kept; a long prompt passes whole multiples of more."""
    return draw(sampled((64, 7, 0, 100, 256) if size.shortest > 1 else (2, 3, 0, 4, 1, 7)))


def _count(draw: Draw, profile: Profile, size: Size) -> int:
    """Draw how many requests there are; a controller is to see each of them for some rounds."""
    if not size.requests:
        return draw(integers(profile.requests, 3 if profile.adaptive else 4))
    most = 12 if profile.adaptive else max(size.requests)
    return max(profile.requests, draw(sampled([count for count in size.requests if count <= most])))


def _captured(draw: Draw, profile: Profile, size: Size, max_batch: int, needed: bool) -> Graphs:
    """Draw sizes that leave rows of padding; "oversized" leaves the largest batches without any."""
    if profile.shaped == "oversized":
        return Graphs(sizes=(draw(integers(1, max_batch - 1)),))
    if not (profile.graphs or needed or draw(st.booleans())):
        return Graphs()
    if not needed and draw(sampled((False,) * 7 + (True,))):
        return Graphs()
    if size.captured:
        return Graphs(sizes=draw(sampled(size.captured)))
    options = [(max_batch,), (max_batch + 1,), (1, max_batch + 1), (2, max_batch + 2)]
    options.append((1, max(2, max_batch - 1), max_batch + 2))
    if max_batch > 2:
        options.append((2, max_batch))
    if profile.shaped in ("shrinking_batch", "partial_in_padding"):
        options = [(max_batch + 1,), (max_batch,), (2, max_batch + 2)] if max_batch > 1 else [(2,), (3,)]
    return Graphs(sizes=draw(sampled(options)))


# Step counts to choose from, with one to begin with: among them or between them, so that there is one above; and above
# them all.
_RISING = ((1, (1, 4)), (2, (2, 5)), (1, (1, 2, 5)), (2, (1, 4)), (2, (1, 2, 5)))
_CANDIDATES = (*_RISING, (4, (1, 2)), (3, (1, 2)))


@composed
def _adaptive(draw: Draw, profile: Profile, size: Size, is_by_batch: bool) -> Adaptive | AdaptiveByBatch:
    """Draw a controller that moves within a few rounds."""
    if is_by_batch and not size.controllers:
        return draw(by_batch())
    usual = _RISING if profile.pattern == "rising" else _CANDIDATES
    initial, candidates = draw(sampled(size.controllers or usual))
    if draw(sampled((True, False, True))):
        # After a round that accepted all the average is exactly at a threshold.
        return Adaptive(initial=initial, candidates=candidates, alpha=0.5, interval=1, warmup=0, down=0.0, up=0.0)
    return Adaptive(
        initial=initial,
        candidates=candidates,
        alpha=draw(sampled((0.5, 0.25, 0.75))),
        interval=draw(sampled((1, 1, 2))),
        warmup=draw(integers(0, 2)),
        # At half an average that falls to the next lower step count meets its threshold exactly.
        down=draw(sampled((0.0, -0.25, 0.25, 0.5))),
        # Far below zero an average rises past two candidates at once.
        up=draw(sampled((0.0, -0.25, 0.25, -1.5))),
    )


@composed
def _schedule(draw: Draw, profile: Profile, size: Size, count: int, chunk: int) -> Schedule:
    """Draw batches of all requests or of some; of few of them if larger ones get no drafts."""
    few = max(2 if count > 1 else 1, count // 2 if size.captured else 0)
    least = min(count, 3) if profile.requests > 2 and not profile.crowded else 1
    max_batch = draw(integers(max(few, least), max(count - int(profile.crowded), few)))
    if profile.shaped in ("reuse", "oversized"):
        max_batch = few if profile.shaped == "reuse" else count
    draft_batch = draw(integers(1, max_batch - 1)) if profile.draft_batch else 0
    return Schedule(max_batch=max_batch, chunk=chunk, row_seed=draw(integers(0, 3)), draft_batch=draft_batch)


def _memory(draw: Draw, profile: Profile, drawn: tuple[Request, ...], fit: Fit, schedule: Schedule) -> Memory:
    """Draw so few pages and rows that requests wait and reuse them; `max_len` sometimes ends a request."""
    totals = [len(request.prompt) + request.budget for request in drawn]
    longest = max(len(request.prompt) for request in drawn)
    max_len = max(totals) + fit.steps
    if profile.limits or (len(drawn) <= _FEW and draw(sampled((False, False, False, True)))):
        # One of: cuts a request and those that are longer, is met exactly, leaves one over; near a page boundary if it
        # can be. Or the longest prompt leaves room for its first token only.
        less = draw(sampled((0, -1, -2, 1, -max(totals))))
        max_len = max(longest + 1, draw(sampled(sorted(totals)[-_FEW:])) + less, 4)
    needs = sorted((-(-min(max_len, total + fit.steps) // fit.page_size) for total in totals), reverse=True)
    ample = sum(needs)
    tight = sum(needs[: max(2, len(needs) // 2)])
    # Who is to be crowded, or under a controller, waits for no pages.
    at_once = profile.together or profile.crowded or profile.adaptive
    pages = max(ample if at_once or draw(st.booleans()) else tight, needs[0])
    arriving = max(Counter(request.arrival for request in drawn).values())
    rows = max(schedule.max_batch, len(drawn) if profile.crowded else arriving)
    return Memory(
        page_size=fit.page_size,
        pages=pages,
        request_slots=rows if profile.shaped == "reuse" else rows + draw(integers(0, 1)),
        max_len=max(max_len, 4),
        page_seed=draw(integers(0, 3)),
        poison=draw(integers(0, 1)),
    )
