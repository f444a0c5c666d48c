"""Bins of a campaign: each fact with each draft that can have it. What was hit, what could be, and what is left."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from draftproof.properties.coverage.facts import FACTS_BY_NAME, SHOWN
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, Algorithm


def name_of(draft: str, fact: str) -> str:
    """Return the name of the bin of a fact with a draft."""
    return f"{draft}: {fact}"


def split(name: str) -> tuple[Algorithm, str]:
    """Return the draft and the fact of a bin. Raises ValueError for what is no bin's name."""
    draft, _, fact = name.partition(": ")
    if draft not in ALGORITHMS or fact not in FACTS_BY_NAME or not FACTS_BY_NAME[fact].shown:
        raise ValueError(f"invalid bin {name!r}: expected <draft>: <fact>, with facts as in SHOWN")
    return draft, fact


def bins(draft: str, counted: Mapping[str, int]) -> frozenset[str]:
    """Return the bins that a scenario of a draft hit, given the counts of the scenario."""
    return frozenset(name_of(draft, fact.name) for fact in SHOWN if counted.get(fact.name))


def universe(drafts: Sequence[Algorithm], beyond: Container[str] = ()) -> tuple[str, ...]:
    """Return the bins that scenarios of these drafts can hit, by fact; `beyond` are facts that a subject cannot show.

    Raises ValueError for no draft, and for an unknown one.
    """
    unknown = sorted(set(drafts) - set(ALGORITHMS))
    if unknown or not drafts:
        raise ValueError(f"invalid drafts {list(drafts)}: expected some of {', '.join(ALGORITHMS)}")
    return tuple(
        name_of(name, fact.name)
        for fact in SHOWN
        for name in ALGORITHMS
        if fact.name not in beyond and name in drafts and fact.drafts(DRAFT_KINDS_BY_NAME[name])
    )


def holes(seen: Container[str], drafts: Sequence[Algorithm]) -> tuple[str, ...]:
    """Return the bins of `universe` that have not been seen."""
    return tuple(name for name in universe(drafts) if name not in seen)
