"""What each part of a package is run on: generated scenarios of probes."""

from __future__ import annotations

from functools import lru_cache

from draftproof.fuzz.releases.packages import PackagePart
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.base import Value
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import ProbeModel, Scenario

_DRAWN = 40
"""Scenarios drawn for one that is needed, at most; a tenth of them or more have recurrent states."""


class Plan(Value, frozen=True, kw_only=True):
    """The parts of a package, each to be run on `count` scenarios, or those of so many drawn that it can run."""

    parts: tuple[PackagePart, ...]
    seed: int
    count: int

    def scenarios(self, part: PackagePart, limits: Limits) -> tuple[Scenario, ...]:
        """Return those of a part whose subject has these limits."""
        return _drawn(self.seed, self.count, limits.drafts, part.linear)


@lru_cache(maxsize=16)
def _drawn(seed: int, count: int, drafts: tuple[Algorithm, ...], linear: bool) -> tuple[Scenario, ...]:
    if not linear:
        return tuple(generate(seed_=seed, count=count, drafts=drafts))
    drawn = generate(seed_=seed, count=_DRAWN * count, drafts=drafts)
    fitting = (
        one
        for one in drawn
        if isinstance(one.model, ProbeModel) and one.model.linear and one.states.commit == "snapshot"
    )
    return tuple(one for one, _ in zip(fitting, range(count), strict=False))
