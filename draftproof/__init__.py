"""Draftproof: an optimized speculative decoding engine and a slow reference, side by side, compared exactly.

The names in `__all__`, those of `draftproof.subject` (what the author of a subject needs), `draftproof.op` (the author
of a kernel) and `draftproof.tracer` (checkpoints with known output) are the public API; everything else may change. The
names here are imported when they are first used: importing this package imports no engine and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.engine.subject import EngineSubject as EngineSubject
    from draftproof.harness.check import CheckReport as CheckReport
    from draftproof.harness.check import check as check
    from draftproof.harness.checkpoint_scenarios import checkpoint_scenarios as checkpoint_scenarios
    from draftproof.harness.lockstep import run as run
    from draftproof.harness.subject_crash import SubjectCrashedError as SubjectCrashedError
    from draftproof.properties.conformance import conformance as conformance
    from draftproof.properties.evidence.evidence import Evidence as Evidence
    from draftproof.properties.fit import UnfitError as UnfitError
    from draftproof.properties.fit import fit as fit
    from draftproof.properties.formats.case import read_case as read_case
    from draftproof.properties.judge import Judgement as Judgement
    from draftproof.properties.judge import judge as judge
    from draftproof.properties.lib.errors import DraftproofError as DraftproofError
    from draftproof.properties.strategies.drawn import scenarios as scenarios
    from draftproof.properties.strategies.scenarios import generate as generate
    from draftproof.properties.values.verdict import Divergence as Divergence
    from draftproof.properties.values.verdict import Outcome as Outcome
    from draftproof.properties.values.verdict import Verdict as Verdict
    from draftproof.pytest_checks import assert_holds as assert_holds
    from draftproof.pytest_failures import ContractError as ContractError

_NAMES = {
    "engine.subject": "EngineSubject",
    "harness.check": "CheckReport check",
    "harness.checkpoint_scenarios": "checkpoint_scenarios",
    "harness.lockstep": "run",
    "harness.subject_crash": "SubjectCrashedError",
    "properties.conformance": "conformance",
    "properties.evidence.evidence": "Evidence",
    "properties.fit": "UnfitError fit",
    "properties.formats.case": "read_case",
    "properties.judge": "Judgement judge",
    "properties.lib.errors": "DraftproofError",
    "properties.strategies.drawn": "scenarios",
    "properties.strategies.scenarios": "generate",
    "properties.values.verdict": "Divergence Outcome Verdict",
    "pytest_checks": "assert_holds",
    "pytest_failures": "ContractError",
}
_HOMES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
