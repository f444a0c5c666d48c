"""How often each pattern of a round comes up in generated scenarios, and that what came up was asked for (S-PLAN-8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.values.scenario import WRONG
from draftproof.properties.values.verdict import Outcome, Verdict

_NAME = "oracle.shares"
ENOUGH = 600
"""Rounds of a kind in which every share of them is judged."""


class Pattern(NamedTuple):
    """What plans ask for, in `least` to `most` of a hundred rounds of a kind; `came` counts how often it came up."""

    asked: str
    of: str
    least: int
    most: int
    came: str = ""


PATTERNS = (
    Pattern("rounds_without_drafts", "rounds", 6, 55),
    Pattern("asked_none", "planned_rounds", 4, 40, "forced_none"),
    Pattern("asked_partial", "planned_rounds", 7, 62, "forced_partial"),
    Pattern("asked_all", "planned_rounds", 8, 58, "forced_all"),
    Pattern("asked_own", "planned_rounds", 3, 60, "unsteered_rounds"),
    *(Pattern(f"wrong_{kind}", "rounds_with_wrong_drafts", 6, 42) for kind in WRONG),
)


def verdict(counts: Mapping[str, int]) -> Verdict:
    """Return INCONCLUSIVE if a pattern came up too rarely, too often, or at other times than it was asked for."""
    missing = tuple(_missing(counts))
    outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return Verdict(name=_NAME, verdict=outcome, scenarios=counts.get("scenarios", 0), missing=missing)


def _missing(counts: Mapping[str, int]) -> Iterator[str]:
    for asked, of, least, most, came in PATTERNS:
        share, rounds = counts.get(asked, 0), counts.get(of, 0)
        if came and counts.get(came, 0) != share:
            yield f"{came} {counts.get(came, 0)} (expected the {share} of {asked})"
        if rounds >= ENOUGH and not least * rounds <= 100 * share <= most * rounds:
            yield f"{asked} in {100 * share / rounds:.0f} % of {of} (expected {least} to {most} %)"
