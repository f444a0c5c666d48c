"""Coverage as tables of coloured cells: one for each group of facts, a line for each fact, a column for each draft."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.properties.coverage.bins import name_of, split, universe
from draftproof.properties.coverage.facts import GROUPS
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.report.numbers import short

State = Literal["hit", "hole", "impossible"]
LEVELS = 5


@dataclass(frozen=True)
class Square:
    """One bin. `level` 1 .. 5 grows with the logarithm of its hits; `title` says why where nothing was hit."""

    state: State
    text: str
    level: int = 0
    title: str = ""


@dataclass(frozen=True)
class FactGroup:
    """The facts of a group by their words, each with a square for every draft."""

    name: str
    lines: tuple[tuple[str, tuple[Square, ...]], ...]

    def count(self, *states: State) -> int:
        """Return how many squares are in one of these states."""
        return sum(square.state in states for _, squares in self.lines for square in squares)

    @property
    def hit(self) -> int:
        return self.count("hit")

    @property
    def possible(self) -> int:
        return self.count("hit", "hole")


@dataclass(frozen=True)
class Coverage:
    """Bins of a campaign.

    `covered` can be hit and were; `holes`, the facts by draft, were not; `strangers` are in the database but not
    declared.
    """

    drafts: tuple[Algorithm, ...]
    covered: frozenset[str]
    possible: int
    groups: tuple[FactGroup, ...]
    holes: tuple[tuple[str, tuple[str, ...]], ...]
    strangers: tuple[str, ...]

    @property
    def hit(self) -> int:
        """How many are covered."""
        return len(self.covered)


@dataclass(frozen=True)
class _Known:
    """What squares are drawn from. `top` is the most hits of any bin."""

    hits: Mapping[str, int]
    possible: frozenset[str]
    top: int

    def square(self, name: str) -> Square:
        if hits := self.hits.get(name, 0):
            return Square("hit", short(hits), _level(hits, self.top))
        if name in self.possible:
            return Square("hole", "○", title=f"hole: {name}")
        return Square("impossible", "", title="no scenario of this draft, model and subject shows it")


def covered(bins: Iterable[Mapping[str, Any]], drafts: Iterable[str], never: Set[str] = frozenset()) -> Coverage:
    """Return the coverage by rows of the table `bins`, of all that scenarios of these drafts can reach.

    `never` names bins that the scenarios themselves say are beyond model or subject.
    """
    wanted: tuple[Algorithm, ...] = tuple(name for name in ALGORITHMS if name in set(drafts)) or ALGORITHMS
    hits = {str(row["name"]): int(row["hits"]) for row in bins}
    possible = frozenset(name for name in universe(wanted) if name in hits or name not in never)
    known = _Known(hits, possible, max(hits.values(), default=1))
    missed = [split(name) for name in universe(wanted) if name in possible - hits.keys()]
    holes = ((draft, tuple(fact for of, fact in missed if of == draft)) for draft in wanted)
    return Coverage(
        drafts=wanted,
        covered=possible & hits.keys(),
        possible=len(possible),
        groups=tuple(_groups(wanted, known)),
        holes=tuple((draft, facts) for draft, facts in holes if facts),
        strangers=tuple(sorted(name for name in hits if not _is_declared(name))),
    )


def _groups(drafts: Iterable[Algorithm], known: _Known) -> Iterable[FactGroup]:
    """Yield the groups with facts that these drafts can have."""
    for name, facts in GROUPS.items():
        lines = ((one.words, tuple(known.square(name_of(draft, one.name)) for draft in drafts)) for one in facts)
        group = FactGroup(name, tuple(lines))
        if group.possible:
            yield group


def _is_declared(name: str) -> bool:
    try:
        split(name)
    except ValueError:
        return False
    return True


def _level(hits: int, top: int) -> int:
    if top <= 1:
        return LEVELS
    return 1 + round((LEVELS - 1) * math.log(hits) / math.log(top))
