"""Quantised entries: of the target, of the draft, or of both, mostly of two formats."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.drafts import KvBits
from draftproof.properties.values.scenario import ProbeModel, Scenario

_WHOLE: KvBits = 64
# Of the target and of the draft.
_FORMATS: tuple[tuple[KvBits, KvBits], ...] = ((8, 16), (16, 8), (8, 64), (64, 8), (16, 16), (64, 16), (16, 64), (8, 8))


def with_codes(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw in how many bits target and draft keep their entries."""
    return _formatted(scenario, *draw(sampled(_FORMATS)))


def without_codes(scenario: Scenario) -> Scenario:
    """Return the scenario with entries as they are computed."""
    return _formatted(scenario, _WHOLE, _WHOLE)


def _formatted(scenario: Scenario, target: KvBits, own: KvBits) -> Scenario:
    model, draft = scenario.model, scenario.draft
    if not isinstance(model, ProbeModel):
        return scenario
    if hasattr(draft, "kv_bits"):
        draft = replace(draft, kv_bits=own)
    return replace(scenario, model=replace(model, kv_bits=target), draft=draft)
