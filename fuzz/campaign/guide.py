"""What a campaign runs next: scenarios in the rotation of `generate`, and such as aim at what was not covered yet.

The process that uses a guide imports no engine: Hypothesis mixes constants of imported sources into what it draws.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from hypothesis import strategies as st

from draftproof.fuzz.campaign.corpus import name_of
from draftproof.properties.coverage import holes, split, universe
from draftproof.properties.strategies.examples import examples
from draftproof.properties.strategies.goals import AIMED, aimed, near
from draftproof.properties.strategies.profiles import CARDS
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.strategies.turns import Turn, turns
from draftproof.properties.values.drafts import Algorithm, algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario

BLOCK = len(CARDS)
# Of a guided block so many bins are aimed at, each with so many scenarios; the rest is as without a guide.
_TARGETS, _EACH = 7, 2
# One bin is aimed at no more often than this in a block.
_OFTEN = 3
# A chapter is what `generate` gives for one seed: two scenarios of each profile, which cost it least.
_CHAPTER = 2 * len(CARDS)
_STRIDE = 1_000_003
_NEAREST = 3


class Proposed(NamedTuple):
    """A scenario, and where it comes from: "profile NAME", "aimed at BIN" or "near HASH"."""

    scenario: Scenario
    origin: str


class Guide:
    """Proposes blocks of scenarios for a campaign. A block is a function of seed, drafts and the arguments only."""

    def __init__(self, seed: int, drafts: Sequence[Algorithm], *, guided: bool = True) -> None:
        self._seed, self._drafts, self._guided = seed, tuple(drafts), guided
        order = list(universe(drafts))
        random.Random(seed).shuffle(order)
        self._order = order

    def block(self, number: int, seen: Mapping[str, int], corpus: Sequence[Scenario]) -> list[Proposed]:
        """Block 0, 1, ..; `seen`: how often bins were hit, `corpus`: scenarios to go on from."""
        aims = _TARGETS if self._guided else 0
        plain = BLOCK - aims * _EACH
        found = [self._plain(number * plain + place) for place in range(plain)]
        for place, target in enumerate(self._targets(number, seen, aims)):
            found += self._toward(target, (number * _TARGETS + place), corpus)
        return found

    def _plain(self, index: int) -> Proposed:
        """Scenario number `index` of those that aim at nothing."""
        chapter, place = divmod(index, _CHAPTER)
        seed_ = self._seed * _STRIDE + chapter
        scenario, turn = _chapter(seed_, self._drafts)[place]
        return Proposed(scenario, f"profile {turn.profile.name}")

    def _targets(self, number: int, seen: Mapping[str, int], count: int) -> list[str]:
        """Holes take turns, and the last ones more than one; the bins that were hit least often stand in for more."""
        missing = set(holes(seen, self._drafts))
        open_ = [name for name in self._order if name in missing]
        start = number * count
        chosen = [open_[(start + place) % len(open_)] for place in range(min(count, _OFTEN * len(open_)))]
        if len(chosen) < count:
            known = [name for name in self._order if name not in missing]
            rarest = sorted(known, key=lambda name: seen[name])[: 4 * count]
            random.Random(start).shuffle(rarest)
            chosen += rarest[: count - len(chosen)]
        return chosen

    def _toward(self, target: str, number: int, corpus: Sequence[Scenario]) -> list[Proposed]:
        """Scenarios made for one bin, and such as a neighbour of it became."""
        wanted = {point: value for point, value in split(target)[1].items() if point in AIMED}
        direct = _made(aimed(wanted, self._drafts), f"aimed at {target}")
        others = [_made(near(one, wanted), f"near {name_of(one)}") for one in _nearest(wanted, corpus, number)]
        # Half of the time the bin is aimed at, else a neighbour goes on.
        either = st.booleans().flatmap(lambda aims: direct if aims else st.one_of(*others)) if others else direct
        # The first of a run is always the smallest there is, and is left out.
        return examples(either, self._seed * _STRIDE + number, _EACH + 1)[1:]


def _made(scenarios: st.SearchStrategy[Scenario], origin: str) -> st.SearchStrategy[Proposed]:
    return scenarios.map(lambda scenario: Proposed(scenario, origin))


def _nearest(wanted: Mapping[str, str], corpus: Sequence[Scenario], number: int) -> list[Scenario]:
    """Return a few scenarios that have most of the values already, as far as a scenario shows its own."""
    ranked = list(corpus)
    random.Random(number).shuffle(ranked)
    ranked.sort(key=lambda one: -sum(wanted.get(point) == value for point, value in _shown(one)))
    return [one for one in ranked[:_NEAREST] if isinstance(one.model, ProbeModel)]


def _shown(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    """Return what can be said of a scenario before it ran."""
    hybrid = isinstance(scenario.model, ProbeModel) and scenario.model.linear is not None
    return (
        ("draft", algorithm(scenario.draft)),
        ("layers", scenario.states.commit if hybrid else "dense"),
        ("variant", scenario.variant),
        ("page size", str(scenario.memory.page_size)),
        ("rows", "padded" if scenario.graphs.sizes else "eager"),
        ("control", "fixed" if scenario.adaptive is None else "adaptive"),
    )


@lru_cache(maxsize=8)
def _chapter(seed_: int, drafts: tuple[Algorithm, ...]) -> list[tuple[Scenario, Turn]]:
    return list(zip(generate(seed_, _CHAPTER, drafts), turns(seed_, _CHAPTER, drafts), strict=True))
