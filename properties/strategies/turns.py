"""What each scenario of a list is to be: a function of seed, drafts and place, which nothing edits afterwards.

Every dimension is dealt from a deck of its own, in which each value is as often as its share says. Drafts take turns,
and each is dealt all cards of a deck before it is shuffled. Drafts that play together begin at different cards, so that
together they have seen all of a deck when each of them has been dealt its part of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from draftproof.properties.strategies import decks
from draftproof.properties.strategies.decks import Alike, Commit
from draftproof.properties.strategies.profiles import CARDS, SIZES, SMALL, WIDE, Profile, Size
from draftproof.properties.strategies.ranks import SPREADS, TENSOR_SPREADS, Spread
from draftproof.properties.values.drafts import BY_NAME, Algorithm
from draftproof.properties.values.scenario import Variant

T = TypeVar("T")
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
        if _is_handed_over(turn, dealer, player):
            turn = _handed_over(turn, dealer, player)
        if may_be_overlapped(turn) and dealer.deal("overlapped", decks.OVERLAPPED, player):
            yield _overlapped(turn, dealer, player)
        elif _may_be_mixed(turn) and dealer.deal("mixed", decks.MIXED, player):
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
    if turn.profile.adaptive and dealer.deal("overlapped plain", decks.OVERLAPPED_PLAIN, player):
        turn = _of_several(turn, dealer, player, "overlap", decks.MORE_HYBRIDS)
    profile = turn.profile
    if turn.is_by_batch:
        turn = turn._replace(is_by_batch=dealer.deal("controller of overlap", decks.BY_BATCH_OVERLAPPED, player))
    variants: tuple[Variant, ...] = decks.HYBRID_VARIANTS if profile.hybrid else decks.DENSE_VARIANTS
    if not (profile.adaptive or profile.draft_batch):
        variants = (*variants, *decks.UNOVERLAPPED)
        # One is to wait for the pages of two.
        turn = turn._replace(profile=profile._replace(requests=max(3, profile.requests)))
    services = decks.SERVICES_OVERLAPPED if turn.size.name == SMALL.name else decks.SERVICES
    turn = turn._replace(
        services=dealer.deal(f"services of overlap {turn.size.name}", services, player),
        has_prompt_logprobs=dealer.deal("prompt logprobs of overlap", decks.PROMPT_LOGPROBS_OVERLAPPED, player),
    )
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
    if turn.profile.adaptive and dealer.deal("mixed plain", decks.MIXED_PLAIN, player):
        turn = _of_several(turn, dealer, player, "mixed", decks.MORE_HYBRIDS)
    variant: Variant = turn.variant
    if variant != "alone":
        is_compared = dealer.deal("unmixed", decks.UNMIXED, player)
        variant = "unmixed" if is_compared else dealer.deal("variant of mixed", decks.DENSE_VARIANTS, player)
    # A chunk is to meet rounds of two requests, one of them without drafts.
    profile = turn.profile._replace(requests=max(3, turn.profile.requests))
    return turn._replace(is_mixed=True, variant=variant, profile=profile)


def _turns(seed: int, count: int, drafts: Sequence[Algorithm], sizes: Sequence[Size] = SIZES) -> Iterator[Turn]:
    """Yield the turns of a list without hand-overs and mixed launches."""
    dealer = _Dealer(seed, len(drafts))
    for index in range(count):
        number, player = divmod(index, len(drafts))
        profile = dealer.deal("profile", CARDS, player)
        variants = decks.HYBRID_VARIANTS if profile.hybrid else decks.DENSE_VARIANTS
        turn = Turn(
            profile=profile,
            draft=drafts[player],
            size=_block(seed, index // _BLOCK, len(drafts), sizes)[index % _BLOCK],
            variant=dealer.deal(f"variant of {len(variants)}", variants, player),
            commit=dealer.deal(f"commit {profile.adaptive}", decks.COMMITS, player)
            if profile.hybrid
            else decks.COMMITS[0],
            alike=dealer.deal("alike", decks.ALIKE, player),
            is_by_batch=profile.adaptive and dealer.deal("controller", decks.BY_BATCH, player),
            form=seed + number,
            number=number,
            services=dealer.deal("services", decks.SERVICES, player),
            is_sampled=dealer.deal("sampled dynamic", decks.SAMPLED, player)
            if profile.adaptive or profile.draft_batch
            else dealer.deal("sampled", decks.SAMPLED, player),
            is_penalized=not (profile.adaptive or profile.draft_batch)
            and dealer.deal("penalized", decks.PENALIZED, player),
            is_constrained=not (profile.adaptive or profile.draft_batch)
            and dealer.deal("constrained", decks.CONSTRAINED, player),
            has_logprobs=dealer.deal("logprobs", decks.LOGPROBS, player),
            is_aborted=dealer.deal("aborted", decks.ABORTED, player),
            is_ended=not (profile.adaptive or profile.draft_batch) and dealer.deal("ended", decks.ENDED, player),
            has_prompt_logprobs=dealer.deal("prompt logprobs", decks.PROMPT_LOGPROBS, player),
            has_codes=dealer.deal("coded", decks.CODED, player),
            has_images=dealer.deal("images", decks.IMAGES, player),
        )
        turn = _of_kind(turn, dealer, player)
        # What other turns are does not hang on it.
        if _may_have_ranks(turn):
            if not turn.profile.draft_batch and dealer.deal("ranks", decks.RANKS, player):
                turn = _ranked(turn, dealer, player)
            elif dealer.deal("tensor ranks", decks.TENSOR, player):
                turn = _shared(turn, dealer, player)
        elif _may_be_shared(turn) and dealer.deal("tensor ranks alone", decks.TENSOR_ALONE, player):
            turn = _shared(turn, dealer, player)
        yield turn


def _of_kind(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return the turn as what it is about besides its profile: trees, budgets, shared pages, preemption."""
    profile = turn.profile
    of_matches = BY_NAME[turn.draft].proposes == "lookup"
    trees = decks.TREES_OF_MATCHES if of_matches else decks.TREES
    if turn.size.name != WIDE.name and BY_NAME[turn.draft].trees and dealer.deal("tree", trees, player):
        return _of_tree(turn, dealer, player)
    if BY_NAME[turn.draft].trees and dealer.deal("beside trees", decks.BESIDE_TREES, player):
        return _beside_tree(turn, dealer, player)
    may_be_preempted = turn.size.name == SMALL.name and not profile.adaptive
    if of_matches and may_be_preempted and dealer.deal("preempted matches", decks.PREEMPTED_MATCHES, player):
        return _preempted(turn, dealer, player)
    if _may_be_budgeted(turn) and dealer.deal(f"budgeted {turn.size.name}", decks.BUDGETED, player):
        return _budgeted(turn, dealer, player)
    if turn.size.name == SMALL.name and not profile.adaptive and dealer.deal("cached", decks.CACHED, player):
        return _cached(turn, dealer, player)
    if turn.size.name == SMALL.name and profile.adaptive:
        cards = decks.CACHED_DRAFT_BATCH if profile.draft_batch else decks.CACHED_ADAPTIVE
        is_cached = dealer.deal(f"cached adaptive {profile.draft_batch}", cards, player)
        if not is_cached:
            return _windowed(turn, dealer, player)
        asks = dealer.deal("prompt logprobs of caching", decks.PROMPT_LOGPROBS_CACHED, player)
        return turn._replace(is_cached=True, has_prompt_logprobs=asks)
    if may_be_preempted and dealer.deal("preempted", decks.PREEMPTED, player):
        return _preempted(turn, dealer, player)
    return _windowed(turn, dealer, player)


def _may_have_ranks(turn: Turn) -> bool:
    """Return whether ranks may serve a turn: of those with a controller, of which there are most."""
    return turn.size.name == SMALL.name and turn.profile.adaptive and not _is_few(turn)


def _is_handed_over(turn: Turn, dealer: _Dealer, player: int) -> bool:
    """Return whether two engines serve a turn in place of one."""
    if turn.size.name == WIDE.name or turn.spread != "alone" or turn.profile.adaptive or turn.profile.draft_batch:
        return False
    if turn.size.name != SMALL.name:
        return _is_simple(turn) and dealer.deal("handed over long", decks.HANDED_OVER_LONG, player)
    if dealer.deal("handed over anyway", decks.HANDED_OVER_ANYWAY, player):
        return not (turn.is_tree or turn.variant == "chain_as_tree")
    return _is_simple(turn) and dealer.deal("handed over", decks.HANDED_OVER, player)


def _may_be_shared(turn: Turn) -> bool:
    """Return whether tensor-parallel ranks may serve a turn without a controller."""
    return turn.size.name == SMALL.name and _is_simple(turn)


def _is_simple(turn: Turn) -> bool:
    """Return whether nothing of a turn hangs on its schedule yet."""
    of_controllers = turn.profile.adaptive or turn.profile.draft_batch
    return turn.spread == "alone" and not (_is_few(turn) or of_controllers)


def _is_few(turn: Turn) -> bool:
    """Return whether a turn is of a kind of which there are few: trees, budgets, preemption, shared pages."""
    of_trees = turn.is_tree or turn.variant == "chain_as_tree"
    return of_trees or turn.is_budgeted or turn.is_preempted or turn.is_cached


def _handed_over(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose prompts one engine runs for another; what other turns are does not hang on it."""
    return _of_several(turn, dealer, player, "handovers", decks.MOST_HYBRIDS)._replace(
        is_preempted=False,
        is_cached=False,
        is_aborted=False,
        is_budgeted=False,
        is_windowed=False,
        is_penalized=dealer.deal("penalties of handovers", decks.PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of handovers", decks.CONSTRAINED_TREES, player),
        has_images=dealer.deal("images of handovers", decks.IMAGES_HANDED_OVER, player),
        has_codes=dealer.deal("coded of handovers", decks.CODED_HANDED_OVER, player),
        is_ended=dealer.deal("ended of handovers", decks.ENDED_HANDED_OVER, player),
        services=dealer.deal(f"services of handovers {turn.size.name}", decks.SERVICES_HANDED_OVER, player),
        is_handed_over=True,
    )


def _of_several(turn: Turn, dealer: _Dealer, player: int, what: str, profiles: Sequence[Profile]) -> Turn:
    """Return a turn of one of these profiles, without a controller, and a variant and a commit that fit it."""
    profile = dealer.deal(f"profile of {what}", profiles, player)
    variants = decks.HYBRID_VARIANTS if profile.hybrid else decks.DENSE_VARIANTS
    return turn._replace(
        profile=profile,
        variant=dealer.deal(f"variant of {what} {len(variants)}", variants, player),
        commit=dealer.deal(f"commit of {what}", decks.COMMITS, player) if profile.hybrid else decks.COMMITS[0],
        is_by_batch=False,
    )


def _windowed(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    return turn._replace(is_windowed=dealer.deal("windowed", decks.WINDOWED, player))


def _beside_tree(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose chains are compared with trees; what other turns are does not hang on it."""
    return turn._replace(
        profile=dealer.deal("profile beside trees", decks.OF_TREES, player),
        variant="chain_as_tree",
        commit=decks.COMMITS[0],
        is_by_batch=False,
    )


def _may_be_budgeted(turn: Turn) -> bool:
    """Return whether the steps of a turn may have a budget of tokens."""
    return turn.size.name != WIDE.name and not (turn.profile.adaptive or turn.profile.draft_batch)


def _budgeted(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests share the tokens of a step; what other turns are does not hang on it."""
    return _of_several(turn, dealer, player, "budgets", decks.OF_PREEMPTED)._replace(is_budgeted=True, is_aborted=False)


def _ranked(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests are spread over ranks: there states and step counts matter most."""
    profile = dealer.deal("profile of ranks", decks.OF_RANKS, player)
    return turn._replace(
        # With two requests both ranks have one row, or one has none.
        profile=profile._replace(requests=max(3, profile.requests)),
        variant="none",
        commit=dealer.deal("commit of ranks", decks.COMMITS, player),
        is_by_batch=profile.adaptive and dealer.deal("controller of ranks", decks.BY_BATCH, player),
        is_preempted=False,
        is_cached=False,
        is_windowed=dealer.deal("windowed of ranks", decks.WINDOWED_RANKS, player),
        is_aborted=dealer.deal("aborted of ranks", decks.ABORTED, player),
        spread=dealer.deal("spread", SPREADS, player),
    )


def _shared(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn that ranks serve together, of which each has a part of every layer: linear ones matter most."""
    if dealer.deal("hybrid of tensor ranks", decks.HYBRID_TREES, player) and not turn.profile.hybrid:
        turn = turn._replace(
            profile=dealer.deal("profile of tensor ranks", decks.OF_HYBRID_TREES, player),
            commit=dealer.deal("commit of tensor ranks", decks.COMMITS, player),
            is_by_batch=False,
        )
    return turn._replace(
        variant="none",
        is_cached=False,
        is_windowed=dealer.deal("windowed of tensor ranks", decks.WINDOWED, player),
        is_sampled=True,
        spread=dealer.deal("spread of tensor ranks", TENSOR_SPREADS, player),
    )


def _preempted(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests give way to each other; what other turns are does not hang on it."""
    profile = dealer.deal("profile of preemption", decks.MORE_HYBRIDS, player)
    return turn._replace(
        profile=profile,
        variant=_alone_or_of(profile, dealer, player, "preemption"),
        commit=dealer.deal("commit of preemption", decks.COMMITS, player) if profile.hybrid else decks.COMMITS[0],
        is_by_batch=False,
        is_penalized=dealer.deal("penalties of preemption", decks.PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of preemption", decks.CONSTRAINED_PREEMPTED, player),
        is_preempted=True,
        has_logprobs=dealer.deal("logprobs of preemption", decks.LOGPROBS_PREEMPTED, player),
        has_images=dealer.deal("images of preemption", decks.IMAGES_PREEMPTED, player),
        is_aborted=dealer.deal("aborted of preemption", decks.ABORTED_PREEMPTED, player),
        is_ended=dealer.deal("ended of preemption", decks.ENDED_PREEMPTED, player),
        is_windowed=dealer.deal("windowed of preemption", decks.WINDOWED_PREEMPTED, player),
    )


def _cached(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose requests share pages; what other turns are does not hang on it."""
    profile = dealer.deal("profile of caching", decks.OF_CACHED, player)
    is_preempted = dealer.deal("preempted of caching", decks.PREEMPTED_CACHED, player)
    is_constrained = dealer.deal(f"grammars of caching {is_preempted}", decks.CONSTRAINED_CACHED, player)
    ends = decks.ENDED_PREEMPTED if is_preempted else decks.ENDED_CACHED
    others: Sequence[bool] = decks.ABORTED_CONSTRAINED if is_constrained else decks.ABORTED_CACHED
    aborts: Sequence[bool] = decks.ABORTED_PREEMPTED if is_preempted else others
    return turn._replace(
        profile=profile,
        variant=_alone_or_of(profile, dealer, player, "caching"),
        commit=dealer.deal("commit of caching", decks.COMMITS, player) if profile.hybrid else decks.COMMITS[0],
        is_by_batch=False,
        services=dealer.deal("services of caching", decks.SERVICES_CACHED, player),
        is_preempted=is_preempted,
        is_constrained=is_constrained,
        is_cached=True,
        is_aborted=dealer.deal(f"aborted of caching {is_preempted} {is_constrained}", aborts, player),
        is_ended=dealer.deal(f"ended of caching {is_preempted}", ends, player),
        has_prompt_logprobs=dealer.deal("prompt logprobs of caching", decks.PROMPT_LOGPROBS_CACHED, player),
        is_windowed=dealer.deal("windowed of caching", decks.WINDOWED_CACHED, player),
    )


def _alone_or_of(profile: Profile, dealer: _Dealer, player: int, what: str) -> Variant:
    """Return what a scenario is compared with: each request alone, if that is dealt, where batches change nothing."""
    if not profile.draft_batch and dealer.deal("alone", decks.ALONE, player):
        return "alone"
    variants = decks.HYBRID_VARIANTS if profile.hybrid else decks.DENSE_VARIANTS
    return dealer.deal(f"variant of {what} {len(variants)}", variants, player)


def _of_tree(turn: Turn, dealer: _Dealer, player: int) -> Turn:
    """Return a turn whose drafts are trees; what other turns are does not hang on it."""
    hybrid = dealer.deal("hybrid trees", decks.HYBRID_TREES, player)
    profiles, variants = (
        (decks.OF_HYBRID_TREES, decks.HYBRID_VARIANTS) if hybrid else (decks.OF_TREES, decks.DENSE_VARIANTS)
    )
    of_tree = turn._replace(
        profile=dealer.deal(f"profile of trees {hybrid}", profiles, player),
        variant=dealer.deal(f"variant of trees {len(variants)}", variants, player),
        commit=dealer.deal("commit of trees", decks.COMMITS_TREES, player) if hybrid else decks.COMMITS[0],
        is_by_batch=False,
        is_sampled=dealer.deal("sampled trees", decks.SAMPLED_TREES, player),
        is_tree=True,
        is_aborted=dealer.deal("aborted of trees", decks.ABORTED_TREES, player),
        is_penalized=dealer.deal("penalties of trees", decks.PENALIZED_TREES, player),
        is_constrained=dealer.deal("grammars of trees", decks.CONSTRAINED_TREES, player),
        has_logprobs=True,
        has_codes=dealer.deal("coded of trees", decks.CODED_TREES, player),
        is_ended=dealer.deal("ended of trees", decks.ENDED_TREES, player),
        is_cached=turn.size.name == SMALL.name and dealer.deal("cached trees", decks.CACHED_TREES, player),
    )
    if not of_tree.is_cached:
        return of_tree
    is_constrained = dealer.deal("grammars of cached trees", decks.CONSTRAINED_CACHED, player)
    aborts: Sequence[bool] = decks.ABORTED_CONSTRAINED if is_constrained else decks.ABORTED_TREES
    return of_tree._replace(
        is_constrained=is_constrained,
        is_aborted=dealer.deal(f"aborted of cached trees {is_constrained}", aborts, player),
        services=dealer.deal("services of cached trees", decks.SERVICES_CACHED, player),
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
