"""`draftproof doctor`: what this machine can check."""

from __future__ import annotations

import os

from draftproof.cli import inputs, screen


def doctor(json: inputs.Json = None) -> None:
    """Show this machine's versions and devices, what can be checked with them, and what is missing."""
    from draftproof.harness.machine import diagnose

    found = diagnose()
    table = screen.table("what", "version")
    for name, version in {"python": found.python, **found.versions}.items():
        table.add_row(name, version or "not installed")
    console = screen.console()
    console.print(table)
    lanes = screen.table("lane", "runs here", "checks", "to do")
    for lane in found.lanes:
        lanes.add_row(lane.name, "yes" if lane.runs else "no", lane.checks, lane.missing)
    console.print(lanes)
    screen.line(f"devices: {', '.join(found.devices)} ({found.machine}, {os.cpu_count()} cores)")
    inputs.write_json(json, found)
