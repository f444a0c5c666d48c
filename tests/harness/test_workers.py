"""Isolated workers: what a subject does to its process costs one order, and is named."""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import torch

from draftproof.engine.subject import EngineSubject
from draftproof.faults.catalogue import catalogue, read_sources
from draftproof.faults.patched_sources import write_copy
from draftproof.harness.execute import kind_of
from draftproof.harness.workers import pool as workers_pool
from draftproof.harness.workers.ends import DEADLINE_PASSED, WorkerEnd
from draftproof.harness.workers.journal import SIZE, Journal, JournalEntry, read
from draftproof.harness.workers.messages import Answer, BoundOrder, Order, Place, SubjectSpec
from draftproof.harness.workers.pool import LEAST_DEADLINE, UNCALIBRATED, Pool
from draftproof.harness.workers.process import WorkerProcess, environments, visible_gpus
from draftproof.harness.workers.worker import BROKEN_DEVICE, OWN_ERROR
from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.observed import LaunchRecord
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solve import solve
from tests.harness.forked import FORKED
from tests.harness.worker_subjects import ORDERS_IN
from tests.named import named

HERE = Path(__file__).parent
SUBJECT = SubjectSpec(subject=SubjectChoice(name="worker_subjects:Acting"))
SECONDS = 8.0
TWO = ("eagle_padded", "five_in_graphs")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """A small one with drafts, without a variant run."""
    return named("eagle_padded")


@pytest.fixture(scope="module")
def importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory, importable: None) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("acts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ORDERS_IN, str(folder))
        (folder / "act").write_text("", encoding="utf-8")
        yield folder


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, acts: Path) -> Iterator[Pool]:
    """Two workers for all tests: each must leave it in order. They begin with the memory of this process.

    Pools of single tests spawn theirs.
    """
    memory = psutil.Process().memory_info().rss + (400 << 20)
    folder = tmp_path_factory.mktemp("workers")
    with Pool(SUBJECT, 2, folder, deadline=SECONDS, memory=memory, start=FORKED) as started:
        yield started


Run = Callable[..., Answer]


@pytest.fixture
def ran(pool: Pool, acts: Path, scenario: Scenario) -> Iterator[Run]:
    """Runs the scenario once, with the named act; afterwards the pool must still work."""

    def run(act: str = "", **order: bool) -> Answer:
        (acts / "act").write_text(act, encoding="utf-8")
        (answer,) = pool.run([Order(number=5, scenario=scenario, **order)])
        return answer

    yield run
    assert run().outcome is Outcome.PASS
    assert pool.busy == 0


def test_a_healthy_order_passes_with_counts_and_bins(ran: Run, pool: Pool) -> None:
    before = pool.replaced
    one, two = ran(digest=True, timeline=True), ran(digest=True)
    assert (one.outcome, one.number, one.failed, one.timeline) == (Outcome.PASS, 5, (), None)
    assert one.counts["rounds"]
    assert "output.lossless" in one.judged
    assert one.bins == tuple(sorted(one.bins)) != ()
    assert one.digest == two.digest != ""
    assert 0 < one.seconds < SECONDS
    assert one.worker in (0, 1)
    assert (pool.replaced, pool.free, len(set(pool.pids))) == (before, 2, 2)


def test_a_wrong_trace_fails_with_its_timeline(ran: Run) -> None:
    answer, plain = ran("wrong", digest=True, timeline=True), ran(digest=True)
    assert answer.outcome is Outcome.FAIL
    assert answer.first is not None
    assert answer.first.channel == "draft.step.positions"
    assert answer.first.contract in answer.failed
    assert answer.timeline is not None
    assert answer.bins
    assert answer.digest != plain.digest


def test_an_exception_of_the_subject_is_a_crash_at_its_launch(ran: Run, pool: Pool) -> None:
    before = pool.pids
    answer = ran("raises")
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "IndexError")
    assert answer.place is not None
    assert (answer.place.run, answer.place.step >= 0) == ("base", True)
    assert answer.place.launch in ("prefill", "extend_prompt", "draft", "verify", "extend", "capture")
    assert "page 9 is out of range" in answer.detail
    assert answer.identity is not None
    assert answer.identity.phase == answer.place.launch
    assert pool.pids == before


def test_a_device_error_has_one_kind_however_it_shows(ran: Run) -> None:
    assert ran("device_error").error == "AcceleratorError: illegal memory access"
    triton = RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
    assert kind_of(triton) == "AcceleratorError: illegal memory access"
    assert kind_of(RuntimeError("CUDA error: device-side assert triggered")) == (
        "AcceleratorError: device-side assert triggered"
    )


def test_an_error_of_our_own_is_no_crash(ran: Run) -> None:
    answer = ran("trips_the_reference")
    assert (answer.outcome, answer.error, answer.failing) == (Outcome.ERROR, "ZeroDivisionError", False)
    assert "of our own" in answer.detail


def test_a_scenario_that_the_subject_refuses_is_an_error(ran: Run) -> None:
    assert ran("refuses").outcome is Outcome.ERROR


def test_an_invalid_scenario_is_an_error(ran: Run, pool: Pool, scenario: Scenario) -> None:
    few, none = (msgspec.structs.replace(scenario.memory, request_slots=slots) for slots in (1, 0))
    schedule = msgspec.structs.replace(scenario.schedule, max_batch=2)
    invalid = msgspec.structs.replace(scenario, memory=few, schedule=schedule)
    broken = msgspec.structs.replace(scenario, memory=none)
    answers = pool.run([Order(number=number, scenario=one) for number, one in enumerate((invalid, broken))])
    assert [answer.outcome for answer in answers] == [Outcome.ERROR] * 2
    assert [answer.number for answer in answers] == [0, 1]
    assert [answer.error for answer in answers] == ["InvalidScenarioError", "ValidationError"]


def test_what_a_subject_prints_is_no_answer(ran: Run, pool: Pool) -> None:
    answer = ran("prints")
    assert (answer.number, answer.outcome) == (5, Outcome.PASS)


def test_memory_above_the_limit_is_a_crash_if_a_new_worker_takes_it_too(ran: Run, pool: Pool) -> None:
    before = pool.replaced
    answer = ran("eats")
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "memory")
    assert "second worker" in answer.detail
    assert "in eats" in answer.detail
    assert pool.replaced == before + 2


def test_a_signal_is_a_crash_and_the_worker_is_replaced(ran: Run, pool: Pool, acts: Path) -> None:
    before = pool.replaced
    answer = ran("segfaults")
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "SIGSEGV")
    assert answer.place is not None
    assert answer.place.launch
    assert "in segfaults" in answer.detail
    assert pool.replaced == before + 1
    assert _gone([int((acts / "child").read_text(encoding="utf-8"))])


def test_a_hang_has_its_place_and_its_stacks(ran: Run) -> None:
    began = time.monotonic()
    answer = ran("hangs")
    assert answer.outcome is Outcome.HANG
    assert answer.place is not None
    assert answer.place.run == "base"
    assert "in hangs" in answer.detail
    assert time.monotonic() - began < 3 * SECONDS


def test_a_worker_killed_from_outside_loses_nothing(ran: Run, pool: Pool, acts: Path, scenario: Scenario) -> None:
    for mark in ("waits", "pid"):
        (acts / mark).unlink(missing_ok=True)
    (acts / "act").write_text("waits_once", encoding="utf-8")
    for number in range(4):
        pool.submit(Order(number=number, scenario=scenario))
    answers: list[Answer] = []
    end = time.monotonic() + 60
    while not (acts / "pid").exists():
        answers += pool.poll(0.05)
        assert time.monotonic() < end
    os.kill(int((acts / "pid").read_text(encoding="utf-8")), signal.SIGKILL)
    while pool.busy:
        answers += pool.poll(1.0)
        assert time.monotonic() < end
    answers += pool.poll(0)
    assert sorted(answer.number for answer in answers) == [0, 1, 2, 3]
    assert {answer.outcome for answer in answers} == {Outcome.PASS}


def test_an_answer_that_is_none_is_a_crash(ran: Run) -> None:
    assert ran("garbles").error == "garbled answer"


@pytest.mark.usefixtures("anew")
def test_a_patched_copy_runs_in_a_calibrated_pool(tmp_path: Path) -> None:
    hunks = catalogue()["draft-positions-advanced-early"].hunks()
    copy = write_copy(tmp_path / "copy", read_sources(), hunks)
    with Pool(SubjectSpec(folder=copy.folder, hunks=copy.hunks), 1, tmp_path / "workers") as pool:
        assert pool.deadline == UNCALIBRATED
        answers = pool.run([Order(number=n, scenario=one) for n, one in enumerate(map(named, TWO))])
        assert LEAST_DEADLINE["cpu"] <= pool.deadline != UNCALIBRATED
    assert {answer.first.channel for answer in answers if answer.first} == {"draft.step.positions"}


@pytest.mark.parametrize(("count", "shares"), [(1, [[-1, 0, 0, 0]]), (2, [[-1, 0, 0], [-1, 0]]), (5, [[-1, 0]] * 3)])
def test_the_first_workers_share_what_calibrates(
    count: int, shares: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With twelve workers on a GPU, each of which ran all of them, the first result came after half a minute."""
    sent: list[list[int]] = []
    calibrating = [named("eagle_padded"), named("ngram_matches"), named("eagle3_features")]

    class Noted(WorkerProcess):
        def __init__(self, *given: Any) -> None:
            self.orders: list[int] = []
            sent.append(self.orders)
            super().__init__(*given)

        def send(self, message: Value) -> None:
            if isinstance(message, Order):
                self.orders.append(message.number)
            super().send(message)

    monkeypatch.setattr(workers_pool, "WorkerProcess", Noted)
    of_three = {(0, 3, ALGORITHMS): calibrating}
    monkeypatch.setattr("draftproof.properties.strategies.scenarios.generate", lambda *of: of_three[of])
    end = time.monotonic() + 60
    with Pool(SubjectSpec(), count, tmp_path / "workers", start=FORKED) as pool:
        while sum(map(len, sent)) < sum(map(len, shares)) and time.monotonic() < end:
            pool.poll(0.05)
        pool.run([Order(number=7, scenario=one) for one in map(named, TWO)])
    assert [[number for number in orders if number != 7] for orders in sent] == [*shares, *[[]] * (count - len(shares))]


@pytest.mark.usefixtures("anew")
def test_workers_that_cannot_start_end_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise ImportError('a broken installation')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(broken))
    with (
        Pool(SubjectSpec(), 1, tmp_path / "workers", deadline=5.0) as pool,
        pytest.raises(RuntimeError, match=r"(?s)exit 1\), 3 times in a row.*a broken installation"),
    ):
        pool.run([Order(number=1, scenario=named("eagle_padded"))])


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_no_worker_outlives_its_pool(tmp_path: Path, raised: type[BaseException]) -> None:
    pids: list[int] = []

    def fail() -> None:
        with Pool(SubjectSpec(), 2, tmp_path, deadline=5.0) as pool:
            pids.extend(pool.pids)
            raise raised

    with pytest.raises(raised):
        fail()
    assert len(pids) == 2
    assert _gone(pids)


def test_where_the_ranks_of_a_worker_met_is_deleted_with_it(tmp_path: Path) -> None:
    with Pool(SubjectSpec(), 1, tmp_path, deadline=60.0, start=FORKED) as pool:
        (answer,) = pool.run([Order(number=0, scenario=named("ranks_data"))])
        met = [one.name for one in (tmp_path / "0.ranks").glob("*/*")]
    assert answer.outcome is Outcome.PASS
    assert {"0.log", "1.log", "journal"} <= set(met)
    assert not (tmp_path / "0.ranks").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run by make test-gpu on a GPU machine")
def test_an_illegal_access_is_a_crash_at_its_launch_and_costs_one_worker(
    tmp_path: Path, acts: Path, scenario: Scenario
) -> None:
    spec = msgspec.structs.replace(SUBJECT, device="cuda")
    with Pool(spec, 1, tmp_path, deadline=120.0) as pool:
        answers = []
        for act in ("", "accesses_illegally", ""):
            (acts / "act").write_text(act, encoding="utf-8")
            answers += pool.run([Order(number=5, scenario=scenario)])
        assert [answer.outcome for answer in answers] == [Outcome.PASS, Outcome.CRASH, Outcome.PASS]
        assert answers[1].error == "AcceleratorError: illegal memory access"
        assert answers[1].place is not None
        assert (answers[1].place.run, answers[1].place.launch != "") == ("base", True)
        assert pool.replaced == 1


PARENT = """
import sys, time
from pathlib import Path
import msgspec
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.subject_choice import SubjectChoice

order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
spec = SubjectSpec(subject=SubjectChoice(name="worker_subjects:Acting"))
with Pool(spec, 1, Path(sys.argv[1]), deadline=600.0) as pool:
    pool.submit(order)
    while not (Path(sys.argv[2]) / "waits").exists():
        pool.poll(0.05)
    sys.stdout.write(f"{pool.pids[0]}\\n")
    sys.stdout.flush()
    time.sleep(600)
"""


def test_a_worker_ends_with_its_parent_in_the_middle_of_an_order(
    tmp_path: Path, acts: Path, scenario: Scenario
) -> None:
    for mark in ("waits", "pid"):
        (acts / mark).unlink(missing_ok=True)
    (acts / "act").write_text("waits_once", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-c", PARENT, str(tmp_path), str(acts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(msgspec.json.encode(Order(number=1, scenario=scenario)) + b"\n")
        parent.stdin.flush()
        worker = int(parent.stdout.readline())
        assert psutil.pid_exists(worker)
        parent.kill()
    assert _gone([worker])


def _gone(pids: list[int]) -> bool:
    """Whether they all end within a moment; a zombie that nobody reaps has ended."""
    end = time.monotonic() + 10
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_journal_says_what_is_in_hand(tmp_path: Path) -> None:
    path = tmp_path / "0.journal"
    assert read(path) is None
    journal = Journal(path)
    assert read(path) is None
    journal.begin(41)
    assert read(path) == JournalEntry(41, Place(run="order"))
    journal.enter("variant")
    journal.announce(7, "extend_prompt")
    assert (
        read(path)
        == JournalEntry(41, journal.place)
        == JournalEntry(41, Place(run="variant", step=7, launch="extend_prompt"))
    )
    assert str(journal.place) == "variant, engine step 7, extend_prompt"
    journal.clear()
    assert read(path) is None


def test_a_torn_record_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "0.journal"
    journal = Journal(path)
    journal.begin(3)
    journal.enter("base")
    whole = path.read_bytes()
    assert len(whole) == SIZE
    for torn in (whole[:-1], whole[:5], b"", whole[:8] + struct.pack("<i", 9) + whole[12:], bytes(SIZE - 1) + b"\1"):
        path.write_bytes(torn)
        assert read(path) is None


def test_a_journal_that_cannot_be_written_costs_no_scenario(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "0.journal")
    os.close(journal.file)
    journal.begin(3)
    journal.clear()
    assert journal.lost == 2
    assert read(tmp_path / "0.journal") is None


def test_a_long_launch_name_is_cut(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "0.journal")
    journal.announce(1, "x" * 99)
    entry = read(tmp_path / "0.journal")
    assert entry is not None
    assert entry.place.launch == "x" * 24


def test_the_engine_announces_every_launch_it_makes(scenario: Scenario) -> None:
    told: list[tuple[int, str]] = []
    subject = EngineSubject()
    subject.announce = lambda step, kind: told.append((step, kind))
    trace = subject.run(scenario, solve(scenario))
    launched = [
        (key.round, record.kind.name.lower()) for key, record in trace.typed("graph.replay", LaunchRecord).items()
    ]
    assert [(step, kind) for step, kind in told if kind != "plan"] == launched
    plans = [step for step, kind in told if kind == "plan"]
    assert plans == list(range(len(plans)))
    assert told[0][1] in ("plan", "capture")


def _end(how: str, run: str = "base", ran: int = 0) -> WorkerEnd:
    return WorkerEnd(how, JournalEntry(1, Place(run=run)) if run else None, "log", ran, 1.0)


def test_what_an_end_means(scenario: Scenario) -> None:
    order = Order(number=1, scenario=scenario)
    assert _end(DEADLINE_PASSED).verdict(order, again=False).outcome is Outcome.HANG
    assert _end(DEADLINE_PASSED, "reference").verdict(order, again=False).outcome is Outcome.ERROR
    assert _end(DEADLINE_PASSED, "judge").verdict(order, again=False).outcome is Outcome.ERROR
    assert _end(f"exit {OWN_ERROR}").verdict(order, again=False).outcome is Outcome.ERROR
    assert _end("SIGSEGV", "reference").verdict(order, again=False).outcome is Outcome.CRASH
    assert not _end(f"exit {BROKEN_DEVICE}", "").is_begun
    assert _end(f"exit {BROKEN_DEVICE}").is_begun
    doubtful = [_end(how).is_doubtful(order) for how in ("SIGKILL", "SIGTERM", "SIGSEGV", "memory")]
    assert doubtful == [True, True, False, False]
    assert _end("memory", ran=1).is_doubtful(order)
    assert _end("SIGSEGV", "").is_doubtful(order)
    # Of a kernel, what ran before in that process may have written over its memory.
    kernel = BoundOrder(number=1, implementation="module:name")
    doubtful = [_end("SIGABRT", ran=ran).is_doubtful(one) for one in (order, kernel) for ran in (0, 1)]
    assert doubtful == [False, False, False, True]


def test_workers_are_shared_out_among_the_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose names may be numbers or UUIDs; on a CPU nobody asks, and one GPU needs no name."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5af0")
    assert visible_gpus() == ["3", "GPU-5af0"]
    shared = [one["CUDA_VISIBLE_DEVICES"] for one in environments("cuda", 5)]
    assert shared == ["3", "GPU-5af0", "3", "GPU-5af0", "3"]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments("cpu", 2)] == ["3, GPU-5af0"] * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments("cuda", 2)] == ["1"] * 2


def test_gpus_are_those_that_the_driver_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing says which of them are visible."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: one (UUID: a)'\necho '  MIG 1g'\necho 'GPU 1: another (UUID: b)'\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert visible_gpus() == ["0", "1"]


def test_a_pool_has_workers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid count 0: expected at least 1"):
        Pool(SubjectSpec(), 0, tmp_path)
