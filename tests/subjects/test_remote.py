"""A subject in another Python: what comes back is what it made, and whatever it does to its process is told."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import repeat
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.execute import Executor
from draftproof.harness.remote import RemoteError, RemoteStartError, RemoteSubject
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.conformance import conformance, same_observations
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import LaunchKind, LaunchRecord, Owner, PoolReport
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script, steering
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.valuetypes import malformed
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved
from draftproof.subjects.remote.values import SentTrace, from_wire, to_wire
from tests.named import named
from tests.subjects.other import lean_subjects


@pytest.fixture(scope="session")
def scenario() -> Scenario:
    return named("eagle_padded")


@pytest.fixture(scope="session")
def script(scenario: Scenario) -> Script:
    return steering(solved(scenario).script)


Make = Callable[..., RemoteSubject]


@pytest.fixture
def lean(lean_python: str, search: str) -> Iterator[Make]:
    """Makes subjects of lean_subjects in the lean Python, and closes them."""
    with ExitStack() as made:

        def make(name: str = "Lean", **settings: str) -> RemoteSubject:
            choice = SubjectChoice(name=f"lean_subjects:{name}", python=lean_python, settings=settings)
            return made.enter_context(closing(RemoteSubject(choice, search=search)))

        yield make


def test_processes_of_a_subject_find_no_modules_in_the_current_folder(lean, tmp_path, monkeypatch):
    (tmp_path / "astray.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert lean("Starting").name.strip() == "False"


def test_the_engine_reports_there_what_it_reports_here(scenario, script):
    local = EngineSubject(device="cpu")
    with closing(RemoteSubject(SubjectChoice(name="engine", python=sys.executable))) as remote:
        there, here = remote.run(scenario, script), local.run(scenario, script)
        assert there.subject == here.subject == remote.name
        assert there.channels == here.channels == remote.channels(scenario)
        assert same_observations(there, here)
        kinds = [(type(a.value), a.key) for a in here.observations]
        assert [(type(b.value), b.key) for b in there.observations] == kinds
        assert list(malformed(there)) == []


def test_limits_and_values_of_every_kind_come_over(lean, scenario, script):
    subject = lean()
    assert subject.limits == lean_subjects.Lean.limits != Limits()
    assert conformance(subject, scenario, script) == []
    emitted, record, hidden = (one.value for one in subject.run(scenario, script).observations)
    assert emitted == (5, 6)
    assert record.kind is LaunchKind.VERIFY
    assert isinstance(hidden, np.ndarray)
    assert not hidden.flags.writeable
    hooks, versions = subject.hooks(), subject.versions
    assert hooks == lean_subjects.Lean().hooks()
    assert versions == {"python": platform.python_version(), "numpy": np.__version__, "no-such-package": ""}


def test_a_wrong_value_is_told_as_here(lean, scenario, script):
    there, here = lean("Wrong"), lean_subjects.Wrong()
    told = list(malformed(there.run(scenario, script)))
    assert told == list(malformed(here.run(scenario, script)))
    assert "[np.int64(5)]" in told[0]


@pytest.mark.parametrize(
    ("channel", "values"),
    [
        ("commit.length", (7, -1, (1 << 64) - 1)),
        ("verify.hidden", (b"12345678", np.arange(2.0), b"")),
        ("verify.choice", ((3, 0.0), (4, float("inf")))),
        (
            "graph.replay",
            (LaunchRecord(LaunchKind.VERIFY, 4, 2, 1, 3, 0), LaunchRecord(LaunchKind.DRAFT, 0, 1, 0, 2, 1)),
        ),
        ("pool.owners", (PoolReport(3, 1, (Owner(2, 0), Owner(4, 1))), PoolReport(3, 1, ()))),
        ("accept.emitted", ((1, 2), ())),
        # Of a wrong type, or of no channel that there is.
        ("accept.emitted", ((1, True), (2,), None, (LaunchKind.VERIFY,))),
        ("commit.length", (7, 7.0, True, "7", LaunchKind.VERIFY)),
        ("graph.replay", (LaunchRecord(2, 4, 2, 1, 3, 0), (2, 4, 2, 1, 3, 0))),
        ("no.such", (7, (1, (2,)), b"1", Owner(2, 0))),
    ],
)
def test_values_come_out_as_they_went_in(channel, values):
    keys = (Key(0, 1, row=row) for row in range(len(values)))
    trace = Trace("canned", frozenset({channel}), tuple(map(Observation, repeat(channel), keys, values)))
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(trace)), type=SentTrace)
    back = from_wire(sent)
    assert (back.subject, back.channels) == (trace.subject, trace.channels)
    assert [(one.channel, one.key, type(one.value), repr(one.value)) for one in back.observations] == [
        (one.channel, one.key, type(one.value), repr(one.value)) for one in trace.observations
    ]


def test_observations_keep_their_order_and_keys_become_whole_numbers():
    told = [("commit.length", Key(np.int64(1), 2), 5), ("accept.bonus", Key(1, 2), 6), ("commit.length", Key(0, 2), 7)]
    back = from_wire(to_wire(Trace("canned", frozenset(), tuple(Observation(*one) for one in told))))
    assert [tuple(one) for one in back.observations] == told
    assert list(malformed(back)) == []


def test_nothing_else_of_ours_is_importable_there(lean):
    assert lean("Looking").name == f"{sys.version_info[0]} draftproof.engine"


@pytest.mark.parametrize(
    ("act", "kind", "said"),
    [
        ("raises", "IndexError", "page 9 is out of range"),
        ("exits", "SystemExit", "0"),
        ("leaves", "exit 0", "leaving"),
        ("segfaults", "SIGSEGV", "Segmentation fault"),
        ("garbles", "garbled answer", ""),
    ],
)
def test_what_becomes_of_it_has_a_name(lean, scenario, act, kind, said):
    subject = lean(act=act)
    answer = Executor(subject, deadline=60.0).examine(Order(number=0, scenario=scenario))
    assert (answer.outcome, answer.error) == (Outcome.CRASH, kind)
    assert said in answer.detail
    assert answer.reason.startswith(kind)
    if act == "raises":
        assert answer.message == "IndexError: page 9 is out of range"
        assert "in other/lean_subjects.py:" in answer.reason
        assert 'raise IndexError("page 9' in answer.detail
    # It is started again for the next order.
    assert subject.channels(scenario) == lean_subjects.Lean().channels(scenario)


def test_what_it_prints_and_reads_meets_no_message(lean, scenario, script):
    subject = lean(act="prints")
    assert len(subject.run(scenario, script).observations) == 3


def test_what_is_no_trace_is_a_crash(lean, scenario, script):
    with pytest.raises(RemoteError, match=r"run\(\) returned .*: expected a Trace"):
        lean("NoTrace").run(scenario, script)


def gone(pids: list[int]) -> bool:
    """Whether all of these end within a moment."""
    end = time.monotonic() + 10
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_hang_ends_it_and_what_it_started(lean, scenario, tmp_path):
    mark = tmp_path / "pids"
    subject = lean(act="hangs", mark=str(mark))
    answer = Executor(subject, deadline=2.0).examine(Order(number=0, scenario=scenario))
    assert answer.outcome is Outcome.HANG
    assert "lean_subjects.py" in answer.detail
    assert gone(list(map(int, mark.read_text().split())))


@pytest.fixture
def pool(lean_python: str, search: str, tmp_path: Path) -> Iterator[Pool]:
    settings = {"act": "hangs", "mark": str(tmp_path / "pids")}
    choice = SubjectChoice(name="lean_subjects:Lean", python=lean_python, settings=settings)
    with Pool(SubjectSpec(subject=choice, search=search), 1, tmp_path / "workers", deadline=3.0) as started:
        yield started


def test_in_a_worker_it_has_a_place_and_a_deadline(pool, scenario, tmp_path):
    (answer,) = pool.run([Order(number=0, scenario=scenario)])
    assert answer.outcome is Outcome.HANG
    assert (answer.place.step, answer.place.launch) == (3, "verify")
    assert "lean_subjects.py" in answer.detail, "the stacks of the process itself"
    assert gone(list(map(int, (tmp_path / "pids").read_text().split())))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lean_subjects:failing", "not RuntimeError: no engine today, at other/lean_subjects.py:"),
        ("lean_subjects:needing", "expected a Python in which no_such_engine is installed, which subject"),
        ("lean_subjects:dying", "its process ended before that (exit 70): out of memory, or so"),
        ("lean_subjects:nobody", "invalid subject object: expected name, limits"),
        ("lean_subjects:absent", "a module and a name in it: module 'lean_subjects' has no attribute 'absent'"),
        ("no_such_module:Lean", "expected a module that"),
        ("engine", "expected a Python in which torch is installed, which subject 'engine' needs"),
        ("engin", "a name that is registered here (engine, openai, sglang, "),
        ("engin", ", transformers, vllm) or in /"),
        ("engin", "bin/python (none); did you mean engine?"),
    ],
)
def test_what_cannot_be_made_there_is_told(lean_python, search, name, said):
    with pytest.raises(RemoteStartError) as caught:
        RemoteSubject(SubjectChoice(name=name, python=lean_python), search=search)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_that_it_does_not_take_is_told(lean):
    with pytest.raises(RemoteStartError, match="invalid setting 'url' of subject 'lean_subjects:Lean': expected"):
        lean(url="http://localhost")


def test_a_python_that_cannot_serve_is_told(tmp_path, bare_python):
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\nprintf \'\\054\\0\\0\\0\\0\\0\\0\\0{"python":"2.7.18","lacks":"python","why":1}\'\n')
    old.chmod(0o755)
    (tmp_path / "text").write_text("no program")
    for python, said in {
        str(tmp_path / "absent"): "there is no such file",
        "no-such-python": "there is none of this name on PATH",
        str(Path(bare_python).parent.parent): f"did you mean {bare_python}?",
        str(tmp_path / "text"): "it cannot be run: Permission denied",
        "/bin/true": "its process ended before that (exit 0): it printed nothing",
        "/bin/cat": "its process ended before that (garbled answer)",
        str(old): "expected Python 3.10 or newer, not 2.7.18",
        bare_python: f"cannot import numpy (ModuleNotFoundError: No module named 'numpy'); try: {bare_python} -m pip",
    }.items():
        with pytest.raises(RemoteStartError) as caught:
            RemoteSubject(SubjectChoice(name="engine", python=python))
        assert said in str(caught.value), python
        assert f"invalid --python {python!r}" in str(caught.value)


def test_no_file_stays_open(lean):
    before = len(os.listdir("/proc/self/fd"))
    lean().close()
    with pytest.raises(RemoteStartError):
        lean("failing")
    assert len(os.listdir("/proc/self/fd")) == before
