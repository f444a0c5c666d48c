"""What each part of a package is run on: generated scenarios of probes."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

from msgspec.structs import replace

from draftproof.fuzz.releases.packages import PackagePart
from draftproof.properties.lib.base import Value
from draftproof.properties.strategies.scenarios import generated
from draftproof.properties.validate import validate
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import ProbeModel, Scenario

_DRAWN = 100
"""Scenarios drawn for one that is needed, at most; a tenth of them or more have recurrent states."""


class Plan(Value, frozen=True, kw_only=True):
    """The parts of a package; each runs `count` scenarios, or as many of `count` drawn ones as it can run."""

    parts: tuple[PackagePart, ...]
    seed: int
    count: int

    def scenarios(self, part: PackagePart, limits: Limits) -> tuple[Scenario, ...]:
        """Return the scenarios of a part with a subject of these limits."""
        return _drawn(self.seed, self.count, limits.drafts, part.linear, part.control)


@lru_cache(maxsize=16)
def _drawn(seed: int, count: int, drafts: tuple[Algorithm, ...], linear: bool, control: str) -> tuple[Scenario, ...]:
    if not linear and not control:
        return tuple(generated(seed, count, drafts))
    drawn = generated(seed, _DRAWN * count, drafts)
    fitting = (one for one in drawn if (not linear or _linear(one)) and (not control or control in _controls(one)))
    if control == "slots":
        fitting = (_never_none(one) for one in drawn if isinstance(one.adaptive_steps, AdaptiveByBatch))
    return tuple(islice(fitting, count))


def _linear(scenario: Scenario) -> bool:
    model = scenario.model
    return isinstance(model, ProbeModel) and model.linear is not None and scenario.states.commit == "snapshot"


def _controls(scenario: Scenario) -> tuple[str, ...]:
    """Return what a scenario's controller is, as parts ask for it."""
    adaptive = scenario.adaptive_steps
    if adaptive is None:
        return ()
    return ("any", "list") if isinstance(adaptive, Adaptive) else ("any", "slots with none")


def _never_none(scenario: Scenario) -> Scenario:
    """Return the scenario with one step wherever its controller could choose none."""
    adaptive = scenario.adaptive_steps
    assert isinstance(adaptive, AdaptiveByBatch)
    slots = tuple(
        replace(slot, candidates=tuple(sorted({max(1, steps) for steps in slot.candidates}))) for slot in adaptive.slots
    )
    return validate(replace(scenario, adaptive_steps=replace(adaptive, initial=max(1, adaptive.initial), slots=slots)))
