"""What each part of a package is run on: generated scenarios of probes."""

from __future__ import annotations

from draftproof.fuzz.releases.packages import PackagePart, Recipe
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.scenario import ProbeModel, Scenario

_DRAWN = 40
"""Scenarios drawn for one that is needed, at most; a tenth of them or more have recurrent states."""


def plans_of(recipe: Recipe, seed: int, count: int) -> list[tuple[PackagePart, list[Scenario]]]:
    """Return the scenarios of each part, `count` of them or what was drawn."""
    return [(part, _of_part(part, seed, count)) for part in recipe.parts]


def _of_part(part: PackagePart, seed: int, count: int) -> list[Scenario]:
    if not part.linear:
        return list(generate(seed_=seed, count=count, drafts=part.drafts))
    drawn = generate(seed_=seed, count=_DRAWN * count, drafts=part.drafts)
    fitting = (one for one in drawn if isinstance(one.model, ProbeModel) and one.model.linear)
    return [one for one, _ in zip(fitting, range(count), strict=False)]
