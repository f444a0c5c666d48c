"""Draftproof: an optimized speculative decoding engine and a slow reference, side by side, compared exactly.

The names in `__all__` are the public API; everything else may change. They are imported when they are first used:
importing this package imports no engine and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.engine.subject import EngineSubject
    from draftproof.harness.check import CheckReport, check
    from draftproof.harness.checkpoint_scenarios import checkpoint_scenarios
    from draftproof.harness.lockstep import evidence
    from draftproof.properties.judge import judge
    from draftproof.properties.strategies.scenarios import generate, scenarios
    from draftproof.properties.subject import Subject, conformance
    from draftproof.properties.values.case import read_case
    from draftproof.properties.values.scenario import Scenario
    from draftproof.properties.values.script import Script
    from draftproof.properties.values.trace import Observation, Trace
    from draftproof.properties.values.verdict import Divergence, Outcome, Verdict
    from draftproof.pytest_checks import hold

_HOMES = {
    "CheckReport": "harness.check",
    "Divergence": "properties.values.verdict",
    "EngineSubject": "engine.subject",
    "Observation": "properties.values.trace",
    "Outcome": "properties.values.verdict",
    "Scenario": "properties.values.scenario",
    "Script": "properties.values.script",
    "Subject": "properties.subject",
    "Trace": "properties.values.trace",
    "Verdict": "properties.values.verdict",
    "check": "harness.check",
    "checkpoint_scenarios": "harness.checkpoint_scenarios",
    "conformance": "properties.subject",
    "evidence": "harness.lockstep",
    "generate": "properties.strategies.scenarios",
    "hold": "pytest_checks",
    "judge": "properties.judge",
    "read_case": "properties.values.case",
    "scenarios": "properties.strategies.scenarios",
}

__all__ = [
    "CheckReport",
    "Divergence",
    "EngineSubject",
    "Observation",
    "Outcome",
    "Scenario",
    "Script",
    "Subject",
    "Trace",
    "Verdict",
    "check",
    "checkpoint_scenarios",
    "conformance",
    "evidence",
    "generate",
    "hold",
    "judge",
    "read_case",
    "scenarios",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
