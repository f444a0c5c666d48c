"""Quantised entries: of the target, of the draft, or of both, mostly of two formats."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import KvBits
from draftproof.properties.values.fp8 import draft_keeps, target_keeps
from draftproof.properties.values.scenario import ProbeModel, Scenario

_WHOLE: KvBits = 64
# Of the target and of the draft.
_FORMATS: tuple[tuple[KvBits, KvBits], ...] = ((8, 16), (16, 8), (8, 64), (64, 8), (16, 16), (64, 16), (16, 64), (8, 8))


def with_codes(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw in how many bits target and draft keep their entries."""
    return _formatted(scenario, *choose.one_of(_FORMATS))


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


def has_codes(scenario: Scenario) -> bool:
    """Return whether target or draft keep their entries in fewer bits than they are computed in."""
    codes = any(getattr(part, "kv_bits", 64) < 64 for part in (scenario.model, scenario.draft))
    return codes or target_keeps(scenario) or draft_keeps(scenario.draft)


FEATURE = Feature(
    name="codes",
    what="KV entries of target or draft are kept in 8 or 16 bits",
    has=has_codes,
    without=without_codes,
    draw=with_codes,
    rule="S-KV-1",
    effects=("coded_targets", "coded_drafts"),
)
