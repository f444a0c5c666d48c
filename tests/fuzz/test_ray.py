"""A real Ray cluster on this machine: what is killed there changes nothing, and verdicts are those of this machine."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.kill_campaign import differences
from tests.fuzz.kill_cluster import ENVIRONMENT, cluster, disturb, fuzz

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'ray[client]'"
)
SECONDS = {"seconds", "seconds_to_detect", "time"}


@pytest.mark.parametrize("client", [False, True], ids=["from a node", "ray://"])
def test_kills_of_workers_and_of_the_head_change_nothing(client: bool, tmp_path: Path):
    same = {"workers": 3, "seed": 4, "examples": 70, "fault": "none"}
    with cluster(tmp_path, cpus=3) as head:
        command = fuzz(tmp_path / "killed", **same, address=head.client if client else head.address)
        done = disturb(head, command, kills=3, seed=1, pause=(1.0, 3.0))
    assert (done["workers_killed"] > 0, done["head_restarts"]) == (True, 1), done["end"]
    whole = subprocess.run(fuzz(tmp_path / "whole", **same), stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=False)
    assert done["code"] == whole.returncode
    assert list(differences(tmp_path / "killed", tmp_path / "whole")) == []


def test_faults_and_mutants_are_judged_as_on_this_machine(tmp_path: Path):
    """One fault meets a tiny checkpoint, which the node writes itself."""
    faults = ["-m", "draftproof.cli", "faults", "run", "--seeds", "2", "--examples", "4"]
    for name in ("draft-positions-advanced-early", "page-shift-at-most-three", "eagle3-head-norms-exchanged"):
        faults += ["--id", name]
    sample, mutation = tmp_path / "sample.json", ["-m", "draftproof.faults.mutation", "--seed", "5", "--examples", "4"]
    run([*mutation, "--count", "4", "--write-sample", str(sample)])
    mutation += ["--sample", str(sample)]
    here = [run([*command, "--json", str(tmp_path / "here.json")]) for command in (faults, mutation)]
    with cluster(tmp_path, cpus=2) as head:
        there = [
            run([*command, "--json", str(tmp_path / "there.json"), "--cluster", head.address])
            for command in (faults, mutation)
        ]
    for ours, theirs, rows in zip(here, there, ("faults", "mutants"), strict=True):
        assert {name for row in theirs[rows] for name in row["nodes"]} != set()
        assert without(theirs, SECONDS | {"nodes"}) == without(ours, SECONDS | {"nodes"})


def test_workers_are_shared_out_among_the_gpus_of_a_node(tmp_path: Path):
    """None is there: Ray gives each worker what it was told of, and the worker says which it may use."""
    with cluster(tmp_path, cpus=8, gpus=2) as head:
        command = [sys.executable, "-P", "-c", _ON_GPUS, head.address]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    room, *names = json.loads(done.stdout)
    assert room == 8
    assert sorted(name.split(", python")[0].partition(": ")[2] for name in names) == [
        f"CUDA device (GPU {number})" for number in (0, 0, 0, 0, 1, 1, 1, 1)
    ]


# In a process of its own, since Ray leaves threads and handlers behind.
_ON_GPUS = """
import json, sys
import msgspec
from draftproof.harness.cluster.messages import ClusterNode, ClusterSpec
from draftproof.harness.cluster.ray_cluster import RayCluster
from draftproof.harness.cluster.scenarios import GivenSubject
from draftproof.harness.workers.messages import SubjectSpec

joined = RayCluster(sys.argv[1])
given = msgspec.Raw(msgspec.json.encode(GivenSubject(subject=SubjectSpec(device="cuda"))))
worker = "draftproof.harness.cluster.scenarios:ScenarioWorker"
spec = ClusterSpec(address=sys.argv[1], device="cuda", worker=worker, given=given)
actors = [joined.actor("cuda", msgspec.json.encode(spec)) for _ in range(8)]
nodes = [msgspec.json.decode(actor.call("node").result(timeout=240), type=ClusterNode).name for actor in actors]
print(json.dumps([joined.workers("cuda"), *nodes]))
"""


def run(command: list[str]) -> dict[str, Any]:
    """Run a command, and return what it wrote with --json."""
    done = subprocess.run(
        [sys.executable, "-P", *command], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    named = command[command.index("--json") + 1] if "--json" in command else ""
    return json.loads(Path(named).read_text(encoding="utf-8")) if named else {}


def without(value: Any, names: set[str]) -> Any:
    """Return a value without some fields, wherever they are."""
    if isinstance(value, dict):
        return {name: without(part, names) for name, part in value.items() if name not in names}
    return [without(part, names) for part in value] if isinstance(value, list) else value
