"""`draftproof doctor`: what this machine can check."""

from __future__ import annotations

import os

from draftproof.cli import inputs, screen


def doctor(json: inputs.Json = None) -> None:
    """Show this machine's versions and devices, what can be checked with them, and what is missing."""
    from draftproof.harness.machine import diagnose

    found = diagnose()
    versions = {"python": found.python, **found.versions}
    screen.show(("what", "version"), [(name, version or "not installed") for name, version in versions.items()])
    lanes = [(lane.name, "yes" if lane.runs else "no", lane.checks, lane.missing) for lane in found.lanes]
    screen.show(("lane", "runs here", "checks", "to do"), lanes)
    screen.line(f"devices: {', '.join(found.devices)} ({found.machine}, {os.cpu_count()} cores)")
    inputs.write_json(json, found)
