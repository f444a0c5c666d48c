"""Draftproof: an optimized speculative decoding engine and a slow reference, side by side, compared exactly.

The names in `__all__` are the public API; everything else may change. They are imported when they are first used:
importing this package imports no engine and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.engine.subject import EngineSubject as EngineSubject
    from draftproof.harness.check import CheckReport as CheckReport
    from draftproof.harness.check import check as check
    from draftproof.harness.checkpoint_scenarios import checkpoint_scenarios as checkpoint_scenarios
    from draftproof.harness.lockstep import evidence as evidence
    from draftproof.properties.conformance import conformance as conformance
    from draftproof.properties.fit import UnfitError as UnfitError
    from draftproof.properties.fit import fit as fit
    from draftproof.properties.formats.case import read_case as read_case
    from draftproof.properties.judge import judge as judge
    from draftproof.properties.strategies.drawn import scenarios as scenarios
    from draftproof.properties.strategies.scenarios import generate as generate
    from draftproof.properties.values.limits import Limits as Limits
    from draftproof.properties.values.scenario import Scenario as Scenario
    from draftproof.properties.values.script import Script as Script
    from draftproof.properties.values.subject import Hook as Hook
    from draftproof.properties.values.subject import Subject as Subject
    from draftproof.properties.values.trace import Observation as Observation
    from draftproof.properties.values.trace import Trace as Trace
    from draftproof.properties.values.verdict import Divergence as Divergence
    from draftproof.properties.values.verdict import Outcome as Outcome
    from draftproof.properties.values.verdict import Verdict as Verdict
    from draftproof.pytest_checks import assert_holds as assert_holds

_NAMES = {
    "engine.subject": "EngineSubject",
    "harness.check": "CheckReport check",
    "harness.checkpoint_scenarios": "checkpoint_scenarios",
    "harness.lockstep": "evidence",
    "properties.fit": "UnfitError fit",
    "properties.judge": "judge",
    "properties.strategies.drawn": "scenarios",
    "properties.strategies.scenarios": "generate",
    "properties.conformance": "conformance",
    "properties.values.subject": "Hook Subject",
    "properties.formats.case": "read_case",
    "properties.values.limits": "Limits",
    "properties.values.scenario": "Scenario",
    "properties.values.script": "Script",
    "properties.values.trace": "Observation Trace",
    "properties.values.verdict": "Divergence Outcome Verdict",
    "pytest_checks": "assert_holds",
}
_HOMES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
