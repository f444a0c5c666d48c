"""Batches of faults on a cluster: every task is run once, whatever becomes of workers and heads."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from draftproof.faults import on_nodes
from draftproof.faults.catalogue import catalogue, read_sources
from draftproof.faults.checkpoints import is_tiny, tiny_name
from draftproof.faults.on_nodes import BatchWorker, Chunk, ChunkResults, ClusterServer
from draftproof.faults.orders import Batch, Task, TaskResult
from draftproof.faults.patched_sources import write_copy
from draftproof.faults.trial import Expectation, FaultOutcome
from draftproof.harness.cluster import pool as pools
from draftproof.harness.cluster.address import ClusterError
from draftproof.harness.workers.pool import WorkerStartError
from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, Scenario
from tests.harness.clusters import Cluster, bridges
from tests.named import named

FAULT, OP = "page-shift-at-most-three", "assign_slots"


def echoed(chunk: Chunk) -> ChunkResults:
    """Results that say which files of a task are changed, in the place of hunks without effect."""
    return ChunkResults(
        results=tuple(
            TaskResult(id=task.id, inert=tuple(changed))
            for task, changed in zip(chunk.batch.tasks, chunk.changed, strict=True)
        )
    )


@dataclass
class Chunks(Cluster):
    """A cluster whose workers answer chunks; its head goes after `left` of them."""

    of: Callable[[Chunk], ChunkResults] = echoed
    left: int = 1 << 30

    def done(self, work: bytes, node: str) -> Value:
        self.left -= 1
        if self.left < 0:
            os._exit(1)
        return self.of(msgspec.json.decode(work, type=Chunk))


def batch(folder: Path, tasks: int, name: str = "") -> Batch:
    """A clean twin and so many faults, of which every other one changes a file."""
    sources = read_sources()
    clean = write_copy(folder / "clean", sources).folder
    other = write_copy(folder / "other", {**sources, "engine/engine.py": "x = 1\n"}).folder
    of = [
        Task(id=f"{name}{number}", folder=(clean, other)[number % 2], hunks=("a:1",), expected=Expectation())
        for number in range(tasks)
    ]
    twin = Task(id=f"{name}twin", folder=clean, hunks=(), expected=Expectation())
    return Batch(seeds=(0,), examples=1, scenarios=((),), tasks=(twin, *of), device="cpu", parallel=9, deadline=9.0)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_AGAIN_SECONDS", 0.0)


def test_every_task_is_run_once_with_the_files_that_are_changed(tmp_path: Path):
    with ClusterServer("none", "cpu", None, start=bridges(tmp_path / "calls", Chunks)) as server:
        results = list(server.run(batch(tmp_path, 50)))
    assert Counter(one.id for one in results) == Counter(["twin", *map(str, range(50))])
    changed = {one.id: one.inert for one in results}
    assert {changed[str(number)] for number in range(0, 50, 2)} == {()}
    assert {changed[str(number)] for number in range(1, 50, 2)} == {("engine/engine.py",)}


def test_chunks_are_of_a_few_tasks_and_name_no_folder_of_this_machine(tmp_path: Path):
    """A clean twin takes longest, and is by itself."""
    start = bridges(tmp_path / "calls", Chunks)
    with ClusterServer("none", "cpu", None, start=start) as server:
        chunks = list(server._chunks(batch(tmp_path, 50)))
    assert [len(chunk.batch.tasks) for chunk in chunks] == [1, *[4] * 12, 2]
    assert [task.id for task in chunks[0].batch.tasks] == ["twin"]
    assert {(task.folder, chunk.batch.parallel) for chunk in chunks for task in chunk.batch.tasks} == {("", 1)}


def test_heads_that_go_change_nothing_for_several_threads(tmp_path: Path, soon: None):
    kinds = [lambda: Chunks(left=3), lambda: Chunks(left=0), lambda: Chunks(left=5), Chunks]
    told: list[str] = []
    with ClusterServer("none", "cpu", 2, tell=told.append, start=bridges(tmp_path / "calls", *kinds)) as server:
        batches = [batch(tmp_path / str(number), 20, f"{number} ") for number in range(3)]
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(lambda one: [result.id for result in server.run(one)], batches))
    assert [sorted(of) for of in found] == [sorted(task.id for task in one.tasks) for one in batches]
    assert len((tmp_path / "calls").read_bytes()) == 4
    assert [one.split(" (")[0].split(" after")[0] for one in told] == [
        "the cluster is away",
        "the cluster is there again",
    ] * 3


def test_errors_of_our_own_and_what_ends_the_pool_are_raised(tmp_path: Path):
    def broken(chunk: Chunk) -> ChunkResults:
        return ChunkResults(error="on node 1: twin: no torch")

    start = bridges(tmp_path / "one", lambda: Chunks(of=broken))
    with (
        ClusterServer("none", "cpu", None, start=start) as server,
        pytest.raises(RuntimeError, match=r"^on node 1: twin: no torch$"),
    ):
        list(server.run(batch(tmp_path, 1)))
    start = bridges(tmp_path / "two", lambda: Chunks(sources="0123"))
    # Its thread may be told before or after the server is entered.
    with (
        pytest.raises(WorkerStartError, match="install the same commit there"),
        ClusterServer("none", "cpu", None, start=start) as server,
    ):
        list(server.run(batch(tmp_path, 1)))


def test_a_thread_that_waits_for_results_ends_where_the_cluster_is_left(tmp_path: Path):
    """As at an interrupt."""

    def late(chunk: Chunk) -> ChunkResults:
        time.sleep(2)
        return echoed(chunk)

    ends: list[str] = []

    def waits() -> None:
        try:
            list(server.run(batch(tmp_path, 1)))
        except RuntimeError as error:
            ends.append(str(error))

    waiting = threading.Thread(target=waits, daemon=True)
    with ClusterServer("none", "cpu", None, start=bridges(tmp_path / "calls", lambda: Chunks(of=late))) as server:
        waiting.start()
        waiting.join(0.3)
        assert ends == []
    waiting.join(20.0)
    assert ends == ["the cluster was left before this batch had its end"]


def test_a_cluster_that_is_not_there(tmp_path: Path):
    def away() -> Cluster:
        raise ConnectionError("nobody there")

    server = ClusterServer("ray://h:1", "cpu", None, start=bridges(tmp_path / "calls", away))
    with pytest.raises(ClusterError, match=r"invalid --cluster 'ray://h:1': .* but ConnectionError: nobody there"):
        server.__enter__()


def test_a_worker_tells_a_fault_from_a_clean_twin(tmp_path: Path):
    """In the processes of a node, and of the patch it needs what is changed only."""
    sources, file = read_sources(), catalogue()[FAULT]
    copy = write_copy(tmp_path / "copy", sources, file.hunks())
    expected = Expectation(contract=file.fault.contract, channel=file.fault.channel)
    texts = {path: (tmp_path / "copy" / path).read_text(encoding="utf-8") for path in sources}
    changed = {path: text for path, text in texts.items() if text != sources[path]}
    assert len(changed) == 1
    tasks = (
        Task(id="twin", folder="", hunks=(), expected=Expectation(), ops=(OP,)),
        Task(id=FAULT, folder="", hunks=copy.hunks, expected=expected, ops=(OP,)),
    )
    asked = Batch(seeds=(0,), examples=40, scenarios=((),), tasks=tasks, device="cpu", parallel=1, deadline=60.0)
    worker = BatchWorker(b"{}", "node 1", tmp_path)
    with worker._server:
        worker.start(0.0)
        ran = worker.run(msgspec.json.encode(Chunk(batch=asked, changed=({}, changed))))
    results = {one.id: one for one in msgspec.json.decode(ran.answer, type=ChunkResults).results}
    assert {name: one.seeds[0].outcome for name, one in results.items()} == {
        "twin": FaultOutcome.SURVIVED,
        FAULT: FaultOutcome.DETECTED,
    }
    assert {one.nodes for one in results.values()} == {("node 1",)}


def test_tiny_checkpoints_are_those_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A user's own must lie under the same path."""
    name = tiny_name()
    monkeypatch.setattr(on_nodes, "tiny_folder", lambda cache: cache / name)
    monkeypatch.setattr(on_nodes.tempfile, "gettempdir", lambda: str(tmp_path))

    def scenario(folder: str) -> Scenario:
        model = Checkpoint(path=f"{folder}/llama", vocab=64)
        draft = CheckpointDraft(algorithm="eagle3", path=f"{folder}/eagle3")
        return msgspec.structs.replace(named("eagle_padded"), model=model, draft=draft)

    here = tmp_path / "draftproof-nodes" / name
    assert is_tiny(here)
    assert on_nodes._moved(scenario(f"elsewhere/{name}")) == scenario(str(here))
    assert on_nodes._moved(scenario("/models")) == scenario("/models")
