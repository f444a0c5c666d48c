"""A real Ray cluster on this machine: workers are killed, the head is restarted, and nothing is lost or double."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.kill_campaign import differences
from tests.fuzz.kill_cluster import ENVIRONMENT, cluster, disturb, fuzz

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'draftproof[cluster]'"
)


@needs_ray
@pytest.mark.parametrize("client", [False, True], ids=["from a node", "ray://"])
def test_kills_of_workers_and_of_the_head_change_nothing(client: bool, tmp_path: Path):
    same = {"workers": 3, "seed": 4, "examples": 70, "fault": "none"}
    with cluster(tmp_path, cpus=3) as head:
        command = fuzz(tmp_path / "killed", **same, address=head.client if client else head.address)
        done = disturb(head, command, kills=3, seed=1, pause=(1.0, 3.0))
    assert (done["workers_killed"] > 0, done["head_restarts"]) == (True, 1)
    whole = subprocess.run(fuzz(tmp_path / "whole", **same), stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=False)
    assert done["code"] == whole.returncode
    assert list(differences(tmp_path / "killed", tmp_path / "whole")) == []
