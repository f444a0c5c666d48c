"""The public API is a sorted list, and importing it imports no engine."""

from __future__ import annotations

import subprocess
import sys

import draftproof

NAMES = [
    "CheckReport",
    "Divergence",
    "EngineSubject",
    "Hook",
    "Limits",
    "Observation",
    "Outcome",
    "Scenario",
    "Script",
    "Subject",
    "Trace",
    "UnfitError",
    "Verdict",
    "assert_holds",
    "check",
    "checkpoint_scenarios",
    "conformance",
    "evidence",
    "fit",
    "generate",
    "judge",
    "read_case",
    "scenarios",
]


def test_the_public_names_are_these():
    assert draftproof.__all__ == NAMES
    assert sorted(NAMES) == NAMES
    assert all(getattr(draftproof, name).__doc__ for name in NAMES)


def test_importing_the_package_imports_no_engine_and_no_torch():
    code = "import draftproof, sys; print([m for m in sys.modules if m == 'torch' or m.startswith('draftproof.')])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
