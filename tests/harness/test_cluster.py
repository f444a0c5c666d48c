"""A pool on a cluster: whatever becomes of workers, nodes and heads, each order is answered once."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest

from draftproof.harness.cluster import bridge as bridging
from draftproof.harness.cluster import pool as pools
from draftproof.harness.cluster.address import ClusterError, require_cluster
from draftproof.harness.cluster.bridge import MOST_FAILURES, MOST_LOSSES, Bridge
from draftproof.harness.cluster.messages import ClusterSpec, Done, Errand, Failed, FromCluster, Joined, Leave, Lost
from draftproof.harness.cluster.node import this_node
from draftproof.harness.cluster.scenarios import GivenSubject, OrderPool
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import UNCALIBRATED, WorkerStartError
from draftproof.properties.lib import extras
from tests.fuzz.campaigns import campaign, known, rows, wrong_pages
from tests.harness.clusters import Actor, Cluster, GoneError, OwnError, bridges, ends_after
from tests.harness.doubles import drawn, passing


def orders(count: int) -> list[Order]:
    return [Order(number=place, scenario=drawn(3)[place]) for place in range(count)]


def served(cluster: Cluster, count: int = 8, workers: int = 0) -> list[FromCluster]:
    """What a bridge says while so many errands are done, or until it gives up."""
    said: list[FromCluster] = []

    def say(message: FromCluster) -> None:
        said.append(message)
        if sum(isinstance(one, Done) for one in said) == count:
            bridge.hear(Leave())

    spec = ClusterSpec(address="none", device="cpu", worker="none:None", given=msgspec.Raw(b"{}"), workers=workers)
    bridge = Bridge(spec, say)
    for order in orders(count):
        work = msgspec.Raw(msgspec.json.encode(order))
        bridge.hear(Errand(ticket=100 + order.number, name=f"scenario {order.number}", work=work))
    bridge.serve(cluster)
    return said


def failing_now_and_then(error: type[Exception], every: int = 3) -> Callable[[Order], Answer]:
    calls = [0]

    def answer(order: Order) -> Answer:
        calls[0] += 1
        if not calls[0] % every:
            raise error("killed")
        return passing(order)

    return answer


def test_every_errand_is_done_by_a_worker_that_names_its_node():
    joined, *done = served(Cluster())
    assert joined == Joined(workers=3, room=3)
    assert sorted(one.ticket for one in done if isinstance(one, Done)) == list(range(100, 108))
    answers = [msgspec.json.decode(one.answer, type=Answer) for one in done if isinstance(one, Done)]
    assert {answer.node for answer in answers} == {"node 0", "node 1"}


@pytest.mark.parametrize("error", [GoneError, OwnError])
def test_what_a_lost_worker_had_in_hand_runs_elsewhere(error: type[Exception]):
    cluster = Cluster(failing_now_and_then(error))
    said = served(cluster)
    lost = sum(isinstance(one, Lost) for one in said)
    assert lost >= 2
    assert cluster.started == 3 + lost
    assert sorted(one.ticket for one in said if isinstance(one, Done)) == list(range(100, 108))


def test_an_order_that_loses_all_its_workers_is_told():
    def ends_four(order: Order) -> Answer:
        if order.number == 4:
            raise GoneError("out of memory")
        return passing(order)

    said = served(Cluster(ends_four))
    assert sum(isinstance(one, Lost) for one in said) == MOST_LOSSES
    assert said[-1] == Failed(kind="refused", reason=f"scenario 4 lost its worker {MOST_LOSSES} times: out of memory")


def test_workers_that_cannot_start_are_told():
    def begin() -> None:
        raise OwnError("no module named draftproof")

    said = served(Cluster(begin=begin))
    assert said[-1] == Failed(
        kind="refused",
        reason=f"a worker could not start, {MOST_FAILURES} times in a row: no module named draftproof",
    )


def test_another_commit_on_a_node_is_refused():
    said = served(Cluster(sources="0123"))
    assert isinstance(said[-1], Failed)
    assert "invalid node node 1: expected the Draftproof of this machine" in said[-1].reason


def test_a_node_names_its_versions():
    assert "CPU, python 3." in this_node("cpu").name
    assert "torch 2." in this_node("cpu").name
    assert len(this_node("cpu").sources) == 16


def run_all(pool: OrderPool, asked: list[Order]) -> list[Answer]:
    answers: list[Answer] = []
    waiting = list(asked)
    while len(answers) < len(asked):
        while waiting and pool.free > 0:
            pool.submit(waiting.pop(0))
        answers += pool.poll(0.2)
    return answers


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_AGAIN_SECONDS", 0.0)


def test_a_head_that_goes_takes_nothing_with_it(tmp_path: Path, soon: None):
    def away() -> Cluster:
        raise ConnectionError("nobody there")

    start = bridges(tmp_path / "calls", ends_after(5), ends_after(4), away, ends_after(0), Cluster)
    told: list[str] = []
    with OrderPool("none", SubjectSpec(), 3, tmp_path, start=start) as pool:
        pool.tell(told.append)
        assert (pool.width, pool.free, pool.deadline) == (3, 3, UNCALIBRATED)
        answers = run_all(pool, orders(20))
        assert (pool.free, pool.deadline, pool.replaced) == (3, 7.0, 9)
    assert sorted(one.number for one in answers) == list(range(20))
    assert len((tmp_path / "calls").read_bytes()) == 5
    assert [one.split(" (")[0].split(" after")[0] for one in told] == [
        "the cluster is away",
        "the cluster is there again",
    ] * 3


def test_a_campaign_is_the_same_with_heads_that_go(tmp_path: Path, soon: None):
    kinds = [ends_after(count, wrong_pages) for count in (7, 1, 12)]
    start = bridges(tmp_path / "calls", *kinds, lambda: Cluster(wrong_pages))
    with OrderPool("none", SubjectSpec(), 2, tmp_path / "workers", start=start) as pool:
        campaign(tmp_path / "cluster", pool)
    assert len((tmp_path / "calls").read_bytes()) == 4
    with OrderPool(
        "none", SubjectSpec(), 2, tmp_path, start=bridges(tmp_path / "more", lambda: Cluster(wrong_pages))
    ) as pool:
        campaign(tmp_path / "whole", pool)
    assert known(tmp_path / "cluster") == known(tmp_path / "whole")
    assert sum(ran for (ran,) in rows(tmp_path / "cluster", "SELECT scenarios FROM nodes")) == 40
    assert rows(tmp_path / "cluster", "SELECT DISTINCT node FROM findings") != [("",)]


def test_a_cluster_that_is_not_there(tmp_path: Path):
    def away() -> Cluster:
        raise ConnectionError("nobody there")

    asked = OrderPool("ray://h:1", SubjectSpec(), 3, tmp_path, start=bridges(tmp_path / "calls", away))
    with pytest.raises(
        ClusterError, match=r"invalid --cluster 'ray://h:1': expected a Ray cluster that runs, with Python 3.*but Conn"
    ):
        asked.__enter__()
    asked = OrderPool("a:1", SubjectSpec(), None, tmp_path, start=bridges(tmp_path / "more", lambda: Cluster(room=0)))
    with pytest.raises(ClusterError, match="but it has no CPU; a number of workers asks"):
        asked.__enter__()


def test_a_cluster_that_stays_away_ends_the_campaign(tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch):
    def away() -> Cluster:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(pools, "AWAY_SECONDS", 0.5)
    start = bridges(tmp_path / "calls", ends_after(2), away)
    with (
        OrderPool("a:1", SubjectSpec(), 3, tmp_path, start=start) as pool,
        pytest.raises(WorkerStartError, match=r"a:1 is away for 0 s"),
    ):
        run_all(pool, orders(5))


def test_refused_nodes_end_the_campaign(tmp_path: Path):
    start = bridges(tmp_path / "calls", lambda: Cluster(sources="0123"))
    pool = OrderPool("a:1", SubjectSpec(), 3, tmp_path, start=start)
    with pytest.raises(WorkerStartError, match="install the same commit there"), pool:
        run_all(pool, orders(5))


def test_files_of_a_patched_subject_go_with_it(tmp_path: Path):
    (tmp_path / "engine" / "__pycache__").mkdir(parents=True)
    (tmp_path / "engine" / "one.py").write_text("x = 1\n")
    (tmp_path / "engine" / "__pycache__" / "one.pyc").write_bytes(b"\xff")
    pool = OrderPool("a:1", SubjectSpec(folder=str(tmp_path)), 3, tmp_path)
    given = msgspec.json.decode(pool._spec.given, type=GivenSubject)
    assert given.files == {"engine/one.py": "x = 1\n"}


def test_workers_without_a_place_are_told_and_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A node that an autoscaler starts takes minutes; one that never comes ends the campaign."""

    class Full(Cluster):
        def actor(self, device: str, spec: bytes) -> Actor:
            return Waiting(self, "none")

    class Waiting(Actor):
        def call(self, method: str, *arguments: object) -> Future[object]:
            return Future()

    monkeypatch.setattr(bridging, "ROOM_SECONDS", 0.0)
    monkeypatch.setattr(bridging, "_LOOK", 0.01)
    said = served(Full(room=0), workers=2)
    assert said == [
        Joined(workers=2, room=0),
        Failed(
            kind="refused",
            reason="no worker got a place in 0 s: expected a node with room for one, that is a CPU",
        ),
    ]


def test_a_cluster_with_less_room_than_was_asked_for(tmp_path: Path):
    start = bridges(tmp_path / "calls", lambda: Cluster(room=1))
    told: list[str] = []
    with OrderPool("none", SubjectSpec(), 3, tmp_path, start=start) as pool:
        pool.tell(told.append)
        assert pool.width == 3
    assert told == ["the cluster has room for 1 of 3 workers; the others wait for nodes"]


@pytest.mark.parametrize("address", ["", "here", "ray://", "ray://h", "ray://h:0", "ray://h:70000", "ray://:1", "h:x"])
def test_what_is_no_address(address: str):
    with pytest.raises(ClusterError, match=r"^invalid --cluster .*: expected ray://HOST:PORT, HOST:PORT or auto$"):
        require_cluster(address)


def test_a_machine_without_ray(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    with pytest.raises(ClusterError, match=r"'ray://h:1': expected ray to be installed, as by pip install"):
        require_cluster("ray://h:1")
