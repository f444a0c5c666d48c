"""Commands that run nothing start quickly: they import neither torch, numpy nor Hypothesis."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

HEAVY = {"torch", "triton", "numpy", "hypothesis", "jinja2", "psutil", "multiprocessing", "asyncio"}


def imported(*arguments: str) -> set[str]:
    """Return the names that running a command imports, as `-X importtime` lists them."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "draftproof.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("doctor", "--help"),
        ("check", "--help"),
        ("fuzz", "--help"),
        ("report", "--help"),
        ("bisect", "history", "--help"),
        ("faults", "list"),
        ("faults", "show", "pages-leak-on-finish"),
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(arguments):
    names = imported(*arguments)
    assert "draftproof.cli.app" in names
    assert names & HEAVY == set()


def test_a_heavy_import_would_be_seen():
    assert "torch" in imported("doctor")
