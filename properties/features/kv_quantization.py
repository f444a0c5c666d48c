"""Quantised entries: of the target, of the draft, or of both, mostly of two formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import KvBits
from draftproof.properties.values.fp8 import keeps_entries
from draftproof.properties.values.scenario import ProbeModel, Scenario

_WHOLE: KvBits = 64
# Of the target and of the draft.
_FORMATS: tuple[tuple[KvBits, KvBits], ...] = ((8, 16), (16, 8), (8, 64), (64, 8), (16, 16), (64, 16), (16, 64), (8, 8))


def with_kv_quantization(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw in how many bits target and draft keep their entries."""
    return _formatted(scenario, *choose.one_of(_FORMATS))


def without_kv_quantization(scenario: Scenario) -> Scenario:
    """Return the scenario with entries as they are computed."""
    return _formatted(scenario, _WHOLE, _WHOLE)


def _formatted(scenario: Scenario, target: KvBits, own: KvBits) -> Scenario:
    model, draft = scenario.model, scenario.draft
    if not isinstance(model, ProbeModel):
        return scenario
    if hasattr(draft, "kv_bits"):
        draft = replace(draft, kv_bits=own)
    return replace(scenario, model=replace(model, kv_bits=target), draft=draft)


def has_kv_quantization(scenario: Scenario) -> bool:
    """Return whether target or draft keep their entries in fewer bits than they are computed in."""
    codes = any(getattr(part, "kv_bits", 64) < 64 for part in (scenario.model, scenario.draft))
    return codes or keeps_entries(scenario)


def _bits(part: str) -> Callable[[Any], int]:
    """Return a reader of runs: in how many bits a probe's target or draft keeps its entries, 0 if it has none."""
    return lambda run: getattr(getattr(run.scenario, part), "kv_bits", 0)


def _differ(run: Any) -> bool:
    return _bits("draft")(run) not in (0, _bits("model")(run))


def _kept_in(bits: int) -> Callable[[Any], bool]:
    return lambda run: bits in (_bits("model")(run), _bits("draft")(run))


_run, _drafts = facts_of("run", real=False), facts_of("run", real=False, drafts=lambda kind: kind.extends)
_FACTS = (
    _run("quantized_targets", lambda run: 0 < _bits("model")(run) < 64, "KV quantization: of the target", effect=True),
    _drafts("quantized_drafts", lambda run: 0 < _bits("draft")(run) < 64, "KV quantization: of the draft", effect=True),
    _drafts("kv_formats_differ", _differ, "KV quantization: of two formats"),
    _run("kv_of_8_bits", _kept_in(8), "KV quantization: 8 bits"),
    _run("kv_of_16_bits", _kept_in(16), "KV quantization: 16 bits"),
)

FEATURE = Feature(
    name="kv-quantization",
    what="KV entries of target or draft are kept in 8 or 16 bits",
    has=has_kv_quantization,
    without=without_kv_quantization,
    draw=with_kv_quantization,
    rule="S-KV-1",
    facts=_FACTS,
)
