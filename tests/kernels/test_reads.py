"""Reads of interpreted kernels: every one of what is no element of a tensor is seen, and no other."""

import json
import sys
from pathlib import Path

import torch

from draftproof.harness.kernel_runs import divergence
from draftproof.properties.kernels.contract import Difference
from draftproof.properties.kernels.reads import WatchedReads
from draftproof.report.relations import phrase
from tests.warm import Warm

READING = Path(__file__).with_name("reading.py")


def test_a_stray_read_is_seen_wherever_it_goes(warm: Warm) -> None:
    done = warm.run([sys.executable, str(READING)], TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "a row": None,
        "of 16 bits": None,
        "behind the row": ["x", 5],
        "behind the last element": ["x", 5],
        "behind what is 16 bits wide": ["x", 5],
        "before the row": ["x", -1],
        "between strided elements": ["x", 1],
        "behind what the launcher made": ["", 5],
    }


def test_nothing_is_watched_where_triton_is_compiled() -> None:
    with WatchedReads() as watched:
        watched.given({"x": torch.arange(3)})
    assert watched.stray is None


def test_a_stray_read_is_told_as_such() -> None:
    found = divergence(Difference("rope", "cos_sin", "outside", (7,), 0, 1, None, 1))
    assert (found.channel, found.expected) == ("kernel.cos_sin", "reads of elements of cos_sin")
    assert found.got == "a read 7 elements from its start"
    assert phrase(found.relation) == "a lane reads what is no element of a tensor; on a GPU it may fault"
