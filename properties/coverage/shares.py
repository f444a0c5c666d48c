"""How often each pattern of a round comes up in generated scenarios, and that what came up was asked for (S-PLAN-8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.values.scenario import WRONG
from draftproof.properties.values.verdict import Outcome, Verdict

ENOUGH = 600
"""Rounds of a kind in which every share of them is judged."""
LEAST = 3
"""Of a hundred rounds so many have each pattern, and so at least 18 of those that are judged.

What is true of one round in five, such as a padded batch or the end of a page, is then missing beside a pattern in two
checks of a hundred (0.8 to the power of 18). No pattern has a most: one that leaves each of the others its least takes
nothing from them.
"""


class Pattern(NamedTuple):
    """What plans ask for in LEAST of a hundred rounds of a kind; `came` counts how often it came up."""

    asked: str
    of: str
    came: str = ""


PATTERNS = (
    Pattern("rounds_without_drafts", "rounds"),
    Pattern("planned_rounds", "rounds"),
    Pattern("asked_none", "planned_rounds", "forced_none"),
    Pattern("asked_partial", "planned_rounds", "forced_partial"),
    Pattern("asked_all", "planned_rounds", "forced_all"),
    Pattern("asked_own", "planned_rounds", "unsteered_rounds"),
    *(Pattern(f"wrong_{kind}", "rounds_with_wrong_drafts") for kind in WRONG),
)


def verdict(counts: Mapping[str, int]) -> Verdict:
    """Return INCONCLUSIVE if a pattern came up too rarely, or at other times than it was asked for."""
    missing = tuple(_missing(counts))
    outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return Verdict(name="oracle.shares", verdict=outcome, scenarios=counts.get("scenarios", 0), missing=missing)


def _missing(counts: Mapping[str, int]) -> Iterator[str]:
    for asked, of, came in PATTERNS:
        share, rounds = counts.get(asked, 0), counts.get(of, 0)
        if came and counts.get(came, 0) != share:
            yield f"{came} {counts.get(came, 0)} (expected the {share} of {asked})"
        if rounds >= ENOUGH and 100 * share < LEAST * rounds:
            yield f"{asked} in {100 * share / rounds:.1f} % of {of} (expected at least {LEAST} %)"
