"""What each scenario of a list is to be: a function of seed, drafts and place, which nothing edits afterwards.

Every dimension is dealt from a deck of its own, in which each value is as often as its share says. Drafts take turns,
and each is dealt all cards of a deck before it is shuffled. Drafts that play together begin at different cards, so that
together they have seen all of a deck when each of them has been dealt its part of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from draftproof.properties.strategies.profiles import BY_NAME as PROFILES
from draftproof.properties.strategies.profiles import CARDS, SIZES, SMALL, WIDE, Profile, Size
from draftproof.properties.strategies.ranks import SPREADS, TENSOR_SPREADS, Spread
from draftproof.properties.values.drafts import BY_NAME, Algorithm
from draftproof.properties.values.scenario import VARIANTS, Variant

T = TypeVar("T")
Commit = Literal["snapshot", "replay"]
Alike = frozenset[Literal["keys", "states", "widths"]]

COMMITS: tuple[Commit, ...] = ("snapshot", "replay")
COMMITS_TREES: tuple[Commit, ...] = ("replay", "snapshot", "replay")
"""How states are committed, and those of trees, of which replay has more to do."""
# Only a hybrid target has two ways to commit; two of ten scenarios compare them. Chains are compared with trees apart.
_OF_SOME = frozenset({"other_commit", "chain_as_tree", "alone", "unmixed", "unoverlapped"})
DENSE_VARIANTS: tuple[Variant, ...] = ("none", *(variant for variant in VARIANTS if variant not in _OF_SOME))
HYBRID_VARIANTS: tuple[Variant, ...] = (*DENSE_VARIANTS, "other_commit", "other_commit")
# In a fifth of models sizes are equal that differ in the others: keys and values, the sides of a state, the widths of
# draft and target.
EQUAL: tuple[Alike, ...] = (
    frozenset({"keys", "states", "widths"}),
    frozenset({"keys"}),
    frozenset({"states", "widths"}),
)
ALIKE: tuple[Alike, ...] = (frozenset(),) * (4 * len(EQUAL)) + EQUAL
BY_BATCH = (True, False, True)
"""Whether a controller has step counts by batch size, or one list."""
SERVICES = (1, 2)
"""Once or twice: of small scenarios, as the second service takes time and shows nothing that depends on sizes."""
SAMPLED = (True, False)
"""Whether requests draw their tokens; one of them where the rounds hang on the schedule."""
PENALIZED = (True, False, False, True, False)
"""Whether requests have penalties, greedy ones and sampled ones, where the rounds do not hang on the schedule."""
PENALIZED_TREES = (True, False)
SAMPLED_TREES = (True, False)
"""Whether requests of trees have penalties (and those that are preempted), and whether they draw their tokens: of
trees there are few."""
TREES = (True, False, False, False)
TREES_OF_MATCHES = (True, False)
HYBRID_TREES = (True, False, True)
"""Whether drafts are trees, where the draft can propose one and sizes are small, whatever else was dealt; whether those
of matches are, which cost little, and of which few rounds find several; and whether the targets of trees have linear
layers, where a tree shows more."""
BESIDE_TREES = (False, True, *(False,) * 10)
"""Whether chains are compared with trees, where the draft can propose one and neither is anything else in the way."""
CONSTRAINED = (False, True, False)
CONSTRAINED_TREES = (False, True)
CONSTRAINED_PREEMPTED = (True, False)
"""Whether requests have grammars, as of penalties, of trees, and of those that are preempted."""
LOGPROBS = (False, True, False)
"""Whether requests ask for logprobs; of trees, of which there are few, some always do."""
PROMPT_LOGPROBS = (False, True, False)
PROMPT_LOGPROBS_CACHED = (True, True, False)
"""Whether requests ask for logprobs of their prompts, of small scenarios, and of those that share pages."""
CACHED = (False, True, False, True, False)
CACHED_TREES = (True, False, True)
CACHED_ADAPTIVE = (True, False, False)
CACHED_DRAFT_BATCH = (True, True, False)
"""Whether pages are kept in a prefix cache: of small scenarios, of trees, under a controller, and where large batches
have no drafts, of which there are few."""
ABORTED = (False, True, False)
ABORTED_CACHED = (False, True)
ABORTED_TREES = (False, True)
ABORTED_PREEMPTED = (True, False, True, False, True)
"""Whether requests are aborted, those that share pages, those of trees, and those that are preempted."""
ENDED = (False, True, True)
ENDED_CACHED = (False, True, False, True, False)
ENDED_TREES = (True, True, True, False)
ENDED_PREEMPTED = (True, True, True, False)
"""Whether requests end by more than their own stop ids and limits, where no controller is to see them for long; whether
those that share pages do, of which emitted tokens are to be served; those of trees, of which there are few; and those
that give way, of which few come back before they end."""
BUDGETED = (False, True, False, False, False)
"""Whether a step has a budget of tokens, where nothing else hangs on the schedule and no batch is there to be full."""
HANDED_OVER = (True, False, True, True)
"""Whether one engine runs prompts for another, of small scenarios without trees, controllers and budgets of steps."""
PREEMPTED = (True, False)
PREEMPTED_CACHED = (False, True, True, True)
"""Whether pages are taken on demand and are too few for all, where nothing else hangs on the schedule; and of those
that share pages."""
WINDOWED = (True, False, True)
WINDOWED_CACHED = (False, True, False, True, False)
WINDOWED_PREEMPTED = (False, True, False)
"""Whether layers of target or draft have windows, where drafts are chains or blocks; beside a prefix cache, where
nothing is freed by them; and beside preemption, of which there is less where pages go back early."""
WINDOWED_RANKS = (True, False, True)
"""Whether layers have windows, where requests are spread over ranks."""
CODED = (False, True, False, False)
CODED_HANDED_OVER = (True, True, False)
CODED_TREES = (False, True)
"""Whether target or draft keep their entries in fewer bits, those that are handed over, and those that trees move."""
ALONE = (False, True, False, False)
"""Whether who shares pages, or gave them back, is compared with itself alone."""
IMAGES = (False, False, True)
"""Whether tokens have three positions and prompts images, where no pages are kept for others."""
RANKS = (False, True, False)
"""Whether requests are spread over ranks, of small scenarios that are about nothing else of the schedule."""
TENSOR = (True, False)
TENSOR_ALONE = (False, False, True, False, False, False)
"""Whether ranks share every layer, of those that requests are not spread over, and of those without a controller."""
MIXED = (True, False)
UNMIXED = (False, True, False, False)
"""Whether chunks and verify rows share a launch, where several requests have chains or blocks, whatever else was dealt;
and whether they are compared with launches of their own."""
OVERLAPPED = (True, True, False)
SERVICES_OVERLAPPED = (2, 1, 2)
UNOVERLAPPED: tuple[Variant, ...] = ("unoverlapped",) * 4
"""Whether a host plans a step while the one before runs, of drafts that are made on the device where nothing else is,
how often small ones are served; and the comparison with a host that waits, four of twelve."""
_OF_PREEMPTED = tuple(one for one in CARDS if one.requests > 2 and not (one.adaptive or one.draft_batch))
_MORE_HYBRIDS = (*_OF_PREEMPTED, *(one for one in _OF_PREEMPTED if one.hybrid))
_MOST_HYBRIDS = (*_MORE_HYBRIDS, *(one for one in _OF_PREEMPTED if one.hybrid))
_OF_CACHED = (*_OF_PREEMPTED, *(one for one in CARDS if one.hybrid and one.requests > 2 and not one.adaptive))
_OF_RANKS = tuple(
    PROFILES[name]
    for name in (
        "adaptive_rising",
        "hybrid_shrinking_batch",
        "adaptive_oversized",
        "hybrid_partial_in_padding",
        "adaptive_falling",
        "adaptive_limits",
    )
)
_OF_TREES = tuple(one for one in CARDS if not (one.hybrid or one.adaptive or one.draft_batch))
_OF_HYBRID_TREES = tuple(one for one in CARDS if one.hybrid and not (one.adaptive or one.draft_batch))
_BLOCK = sum(size.share for size in SIZES)


class Turn(NamedTuple):
    """What one scenario is to be. `number` counts the scenarios of its draft; `form` says which of a draft's forms."""

    profile: Profile
    draft: Algorithm
    size: Size
    variant: Variant
    commit: Commit
    alike: Alike
    is_by_batch: bool
    form: int
    number: int
    services: int = 1
    is_sampled: bool = False
    is_tree: bool = False
    is_penalized: bool = False
    is_preempted: bool = False
    is_constrained: bool = False
    has_logprobs: bool = False
    is_cached: bool = False
    is_aborted: bool = False
    is_ended: bool = False
    is_budgeted: bool = False
    has_prompt_logprobs: bool = False
    is_windowed: bool = False
    has_codes: bool = False
    has_images: bool = False
    spread: Spread = "alone"
    is_mixed: bool = False
    is_handed_over: bool = False
    is_overlapped: bool = False


def turns(seed: int, count: int, drafts: Sequence[Algorithm], sizes: Sequence[Size] = SIZES) -> Iterator[Turn]:
    """Yield the turns of a list; those of a longer list begin with them. Of `sizes` the first is the usual one."""
    dealer = _Dealer(seed, len(drafts))
    for index, turn in enumerate(_turns(seed, count, drafts, sizes)):
        player = index % len(drafts)
        if _may_be_handed_over(turn) and dealer.deal("handed over", HANDED_OVER, player):
            turn = _handed_over(turn, dealer, player)
        if may_be_overlapped(turn) and dealer.deal("overlapped", OVERLAPPED, player):
            yield _overlapped(turn, dealer, player)
        elif _may_be_mixed(turn) and dealer.deal("mixed", MIXED, player):
            yield _mixed(turn, dealer, player)
        else:
            yield turn


def may_be_overlapped(turn: Turn) -> bool:
    """Return whether a step of a turn may be planned while the one before runs."""
    is_alone = turn.size.name != WIDE.name and turn.spread == "alone"
    other = _is_few(turn) or turn.is_handed_over or turn.variant == "alone"
    return is_alone and not other and BY_NAME[turn.draft].proposes != "lookup"


def _overlapped(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn with a host that is a step behind; what other turns are does not hang on it."""
    profile = turn.profile
    variants: tuple[Variant, ...] = HYBRID_VARIANTS if profile.hybrid else DENSE_VARIANTS
    if not (profile.adaptive or profile.draft_batch):
        variants = (*variants, *UNOVERLAPPED)
        # One is to wait for the pages of two.
        turn = turn._replace(profile=profile._replace(requests=max(3, profile.requests)))
    if turn.size.name == SMALL.name:
        turn = turn._replace(services=dealer.deal("services of overlap", SERVICES_OVERLAPPED, player))
    return overlapped(turn)._replace(variant=dealer.deal(f"variant of overlap {len(variants)}", variants, player))


def overlapped(turn: Turn) -> Turn:
    """Return a turn with a host that is a step behind, and nothing that is not defined beside it."""
    return turn._replace(
        is_preempted=False,
        is_cached=False,
        is_aborted=False,
        is_windowed=False,
        is_penalized=False,
        is_constrained=False,
        is_overlapped=True,
    )


def _may_be_mixed(turn: Turn) -> bool:
    """Return whether chunks and verify rows of a turn may share a launch, and are likely to meet."""
    of_chains = not (turn.is_tree or turn.variant == "chain_as_tree")
    of_one_engine = turn.spread == "alone" and not turn.is_handed_over
    return of_chains and of_one_engine and turn.profile.requests > 1 and turn.size.name == SMALL.name


def _mixed(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn with mixed launches; what other turns are does not hang on it."""
    variant: Variant = turn.variant
    if variant != "alone":
        is_compared = dealer.deal("unmixed", UNMIXED, player)
        variant = "unmixed" if is_compared else dealer.deal("variant of mixed", DENSE_VARIANTS, player)
    # A chunk is to meet rounds of two requests, one of them without drafts.
    profile = turn.profile._replace(requests=max(3, turn.profile.requests))
    return turn._replace(is_mixed=True, variant=variant, profile=profile)


def _turns(seed: int, count: int, drafts: Sequence[Algorithm], sizes: Sequence[Size] = SIZES) -> Iterator[Turn]:
    """Yield the turns of a list without hand-overs and mixed launches."""
    dealer = _Dealer(seed, len(drafts))
    for index in range(count):
        number, player = divmod(index, len(drafts))
        profile = dealer.deal("profile", CARDS, player)
        variants = HYBRID_VARIANTS if profile.hybrid else DENSE_VARIANTS
        turn = Turn(
            profile=profile,
            draft=drafts[player],
            size=_block(seed, index // _BLOCK, len(drafts), sizes)[index % _BLOCK],
            variant=dealer.deal(f"variant of {len(variants)}", variants, player),
            commit=dealer.deal(f"commit {profile.adaptive}", COMMITS, player) if profile.hybrid else COMMITS[0],
            alike=dealer.deal("alike", ALIKE, player),
            is_by_batch=profile.adaptive and dealer.deal("controller", BY_BATCH, player),
            form=seed + number,
            number=number,
            services=dealer.deal("services", SERVICES, player),
            is_sampled=dealer.deal("sampled dynamic", SAMPLED, player)
            if profile.adaptive or profile.draft_batch
            else dealer.deal("sampled", SAMPLED, player),
            is_penalized=not (profile.adaptive or profile.draft_batch) and dealer.deal("penalized", PENALIZED, player),
            is_constrained=not (profile.adaptive or profile.draft_batch)
            and dealer.deal("constrained", CONSTRAINED, player),
            has_logprobs=dealer.deal("logprobs", LOGPROBS, player),
            is_aborted=dealer.deal("aborted", ABORTED, player),
            is_ended=not (profile.adaptive or profile.draft_batch) and dealer.deal("ended", ENDED, player),
            has_prompt_logprobs=dealer.deal("prompt logprobs", PROMPT_LOGPROBS, player),
            has_codes=dealer.deal("coded", CODED, player),
            has_images=dealer.deal("images", IMAGES, player),
        )
        turn = _of_kind(turn, dealer, player)
        # What other turns are does not hang on it.
        if _may_have_ranks(turn):
            if dealer.deal("ranks", RANKS, player):
                turn = _ranked(turn, dealer, player)
            elif dealer.deal("tensor ranks", TENSOR, player):
                turn = _shared(turn, dealer, player)
        elif _may_be_handed_over(turn) and dealer.deal("tensor ranks alone", TENSOR_ALONE, player):
            turn = _shared(turn, dealer, player)
        yield turn


def _of_kind(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return the turn as what it is about besides its profile: trees, budgets, shared pages, preemption."""
    profile = turn.profile
    trees = TREES_OF_MATCHES if BY_NAME[turn.draft].proposes == "lookup" else TREES
    if turn.size.name != WIDE.name and BY_NAME[turn.draft].trees and dealer.deal("tree", trees, player):
        return _of_tree(turn, dealer, player)
    if BY_NAME[turn.draft].trees and dealer.deal("beside trees", BESIDE_TREES, player):
        return _beside_tree(turn, dealer, player)
    if _may_be_budgeted(turn) and dealer.deal(f"budgeted {turn.size.name}", BUDGETED, player):
        return _budgeted(turn, dealer, player)
    if turn.size.name == SMALL.name and not profile.adaptive and dealer.deal("cached", CACHED, player):
        return _cached(turn, dealer, player)
    if turn.size.name == SMALL.name and profile.adaptive:
        cards = CACHED_DRAFT_BATCH if profile.draft_batch else CACHED_ADAPTIVE
        is_cached = dealer.deal(f"cached adaptive {profile.draft_batch}", cards, player)
        return turn._replace(is_cached=True) if is_cached else _windowed(turn, dealer, player)
    if turn.size.name == SMALL.name and not profile.adaptive and dealer.deal("preempted", PREEMPTED, player):
        return _preempted(turn, dealer, player)
    return _windowed(turn, dealer, player)


def _may_have_ranks(turn: Turn) -> bool:
    """Return whether ranks may serve a turn: of those with a controller, of which there are most."""
    return turn.size.name == SMALL.name and turn.profile.adaptive and not _is_few(turn)


def _may_be_handed_over(turn: Turn) -> bool:
    """Return whether two engines may serve a turn in place of one."""
    profile = turn.profile
    is_alone = turn.size.name == SMALL.name and turn.spread == "alone"
    return is_alone and not (_is_few(turn) or profile.adaptive or profile.draft_batch)


def _is_few(turn: Turn) -> bool:
    """Return whether a turn is of a kind of which there are few: trees, budgets, preemption, shared pages."""
    of_trees = turn.is_tree or turn.variant == "chain_as_tree"
    return of_trees or turn.is_budgeted or turn.is_preempted or turn.is_cached


def _handed_over(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose prompts one engine runs for another; what other turns are does not hang on it."""
    return _of_several(turn, dealer, player, "handovers", _MOST_HYBRIDS)._replace(
        is_preempted=False,
        is_cached=False,
        is_aborted=False,
        is_budgeted=False,
        is_windowed=False,
        is_penalized=dealer.deal("penalties of handovers", PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of handovers", CONSTRAINED_TREES, player),
        has_codes=dealer.deal("coded of handovers", CODED_HANDED_OVER, player),
        is_handed_over=True,
    )


def _of_several(turn: Turn, dealer: _Dealer, player: int, what: str, profiles: Sequence[Profile]) -> Turn:
    """Return a turn of one of these profiles, without a controller, and a variant and a commit that fit it."""
    profile = dealer.deal(f"profile of {what}", profiles, player)
    variants = HYBRID_VARIANTS if profile.hybrid else DENSE_VARIANTS
    return turn._replace(
        profile=profile,
        variant=dealer.deal(f"variant of {what} {len(variants)}", variants, player),
        commit=dealer.deal(f"commit of {what}", COMMITS, player) if profile.hybrid else COMMITS[0],
        is_by_batch=False,
    )


def _windowed(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    return turn._replace(is_windowed=dealer.deal("windowed", WINDOWED, player))


def _beside_tree(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose chains are compared with trees; what other turns are does not hang on it."""
    return turn._replace(
        profile=dealer.deal("profile beside trees", _OF_TREES, player),
        variant="chain_as_tree",
        commit=COMMITS[0],
        is_by_batch=False,
    )


def _may_be_budgeted(turn: Turn) -> bool:
    """Return whether the steps of a turn may have a budget of tokens."""
    return turn.size.name != WIDE.name and not (turn.profile.adaptive or turn.profile.draft_batch)


def _budgeted(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests share the tokens of a step; what other turns are does not hang on it."""
    return _of_several(turn, dealer, player, "budgets", _OF_PREEMPTED)._replace(is_budgeted=True, is_aborted=False)


def _ranked(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests are spread over ranks: there states and step counts matter most."""
    profile = dealer.deal("profile of ranks", _OF_RANKS, player)
    return turn._replace(
        # With two requests both ranks have one row, or one has none.
        profile=profile._replace(requests=max(3, profile.requests)),
        variant="none",
        commit=dealer.deal("commit of ranks", COMMITS, player),
        is_by_batch=profile.adaptive and dealer.deal("controller of ranks", BY_BATCH, player),
        is_preempted=False,
        is_cached=False,
        is_windowed=dealer.deal("windowed of ranks", WINDOWED_RANKS, player),
        is_aborted=dealer.deal("aborted of ranks", ABORTED, player),
        spread=dealer.deal("spread", SPREADS, player),
    )


def _shared(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn that ranks serve together, of which each has a part of every layer: linear ones matter most."""
    if dealer.deal("hybrid of tensor ranks", HYBRID_TREES, player) and not turn.profile.hybrid:
        turn = turn._replace(
            profile=dealer.deal("profile of tensor ranks", _OF_HYBRID_TREES, player),
            commit=dealer.deal("commit of tensor ranks", COMMITS, player),
            is_by_batch=False,
        )
    return turn._replace(
        variant="none",
        is_cached=False,
        is_windowed=dealer.deal("windowed of tensor ranks", WINDOWED, player),
        is_sampled=True,
        spread=dealer.deal("spread of tensor ranks", TENSOR_SPREADS, player),
    )


def _preempted(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests give way to each other; what other turns are does not hang on it."""
    profile = dealer.deal("profile of preemption", _MORE_HYBRIDS, player)
    return turn._replace(
        profile=profile,
        variant=_alone_or_of(profile, dealer, player, "preemption"),
        commit=dealer.deal("commit of preemption", COMMITS, player) if profile.hybrid else COMMITS[0],
        is_by_batch=False,
        is_penalized=dealer.deal("penalties of preemption", PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of preemption", CONSTRAINED_PREEMPTED, player),
        is_preempted=True,
        is_aborted=dealer.deal("aborted of preemption", ABORTED_PREEMPTED, player),
        is_ended=dealer.deal("ended of preemption", ENDED_PREEMPTED, player),
        is_windowed=dealer.deal("windowed of preemption", WINDOWED_PREEMPTED, player),
    )


def _cached(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests share pages; what other turns are does not hang on it."""
    profile = dealer.deal("profile of caching", _OF_CACHED, player)
    is_preempted = dealer.deal("preempted of caching", PREEMPTED_CACHED, player)
    ends, aborts = (ENDED_PREEMPTED, ABORTED_PREEMPTED) if is_preempted else (ENDED_CACHED, ABORTED_CACHED)
    return turn._replace(
        profile=profile,
        variant=_alone_or_of(profile, dealer, player, "caching"),
        commit=dealer.deal("commit of caching", COMMITS, player) if profile.hybrid else COMMITS[0],
        is_by_batch=False,
        is_preempted=is_preempted,
        is_cached=True,
        is_aborted=dealer.deal(f"aborted of caching {is_preempted}", aborts, player),
        is_ended=dealer.deal(f"ended of caching {is_preempted}", ends, player),
        has_prompt_logprobs=dealer.deal("prompt logprobs of caching", PROMPT_LOGPROBS_CACHED, player),
        is_windowed=dealer.deal("windowed of caching", WINDOWED_CACHED, player),
    )


def _alone_or_of(profile: Profile, dealer: _Dealer, player: int, what: str) -> Variant:
    """Return what a scenario is compared with: each request alone, if that is dealt, where batches change nothing."""
    if not profile.draft_batch and dealer.deal("alone", ALONE, player):
        return "alone"
    variants = HYBRID_VARIANTS if profile.hybrid else DENSE_VARIANTS
    return dealer.deal(f"variant of {what} {len(variants)}", variants, player)


def _of_tree(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose drafts are trees; what other turns are does not hang on it."""
    hybrid = dealer.deal("hybrid trees", HYBRID_TREES, player)
    profiles, variants = (_OF_HYBRID_TREES, HYBRID_VARIANTS) if hybrid else (_OF_TREES, DENSE_VARIANTS)
    return turn._replace(
        profile=dealer.deal(f"profile of trees {hybrid}", profiles, player),
        variant=dealer.deal(f"variant of trees {len(variants)}", variants, player),
        commit=dealer.deal("commit of trees", COMMITS_TREES, player) if hybrid else COMMITS[0],
        is_by_batch=False,
        is_sampled=dealer.deal("sampled trees", SAMPLED_TREES, player),
        is_tree=True,
        is_aborted=dealer.deal("aborted of trees", ABORTED_TREES, player),
        is_penalized=dealer.deal("penalties of trees", PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of trees", CONSTRAINED_TREES, player),
        has_logprobs=True,
        has_codes=dealer.deal("coded of trees", CODED_TREES, player),
        is_ended=dealer.deal("ended of trees", ENDED_TREES, player),
        is_cached=turn.size.name == SMALL.name and dealer.deal("cached trees", CACHED_TREES, player),
    )


class _Dealer:
    """Decks by name, from which every player is dealt in an order of its own."""

    def __init__(self, seed: int, players: int) -> None:
        self._seed, self._players, self._dealt = seed, players, Counter[tuple[str, int]]()

    def deal(self, name: str, cards: Sequence[T], player: int) -> T:
        """Return a player's next card; the deck is shuffled again when all of it has been dealt."""
        block, place = divmod(self._dealt[name, player], len(cards))
        self._dealt[name, player] += 1
        each, more = divmod(len(cards), self._players)
        first = player * each + min(player, more)
        return shuffled(cards, f"{self._seed} {name} {block}")[(first + place) % len(cards)]


def _block(seed: int, block: int, players: int, sizes: Sequence[Size]) -> list[Size]:
    """Return the sizes of twenty scenarios, each as often as its share says; drafts take turns at rare ones."""
    rare = [size for size in sizes[1:] for _ in range(size.share)]
    placed = [sizes[0]] * _BLOCK
    for number, size in enumerate(rare):
        player = (seed + block * len(rare) + number) % players
        own = range((player - block * _BLOCK) % players, _BLOCK, players)
        free = [place for place in own if placed[place] == sizes[0]]
        placed[shuffled(free, f"{seed} {size.name} {block} {number}")[0]] = size
    return placed


def shuffled(cards: Sequence[T], name: str) -> list[T]:
    """Return the cards in an order that is a function of a name."""
    return random.Random(name).sample(cards, len(cards))
