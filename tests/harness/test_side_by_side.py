"""Forked processes share a list, and end as one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from draftproof.harness.side_by_side import SideBySide
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.process import CRASHED, run_apart


def doubled(number: int, item: str) -> tuple[int, str]:
    return number, 2 * item


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
def test_results_come_in_the_order_of_the_list(processes: int) -> None:
    assert list(SideBySide(doubled, "abcde", processes)) == [(number, 2 * item) for number, item in enumerate("abcde")]


def test_a_process_takes_the_next_item_that_is_left() -> None:
    """The first item takes as long as all others."""

    def slow_at_first(number: int, _item: str) -> int:
        time.sleep(0.0 if number else 2.0)
        return os.getpid()

    first, *others = SideBySide(slow_at_first, "abcde", 2)
    assert {*others} == {others[0]} != {first}


def test_each_of_as_many_processes_as_items_has_one() -> None:
    assert len({*SideBySide(lambda number, item: os.getpid(), "abcde", 5)}) == 5


@pytest.mark.parametrize("processes", [1, 2])
def test_a_crash_of_a_subject_comes_with_its_words(processes: int) -> None:
    class Local(Exception):
        """No other process can make one."""

    def crash(_number: int, _item: str) -> None:
        try:
            raise Local("no kernel image")
        except Local as error:
            raise SubjectCrashedError("on the prompts", error) from error

    with pytest.raises(SubjectCrashedError) as crashed:
        list(SideBySide(crash, "ab", processes))
    found = crashed.value
    assert (found.during, found.error) == ("on the prompts", "Local: no kernel image")
    assert str(found) == f"Local: no kernel image, in {found.where}, on the prompts"
    assert "Local: no kernel image" in found.trace


@pytest.mark.parametrize("processes", [1, 2])
def test_what_work_raises_is_raised(processes: int) -> None:
    def fail(number: int, _item: str) -> int:
        return 1 // (3 - number)

    with pytest.raises(ZeroDivisionError) as raised:
        list(SideBySide(fail, "abcde", processes))
    assert processes == 1 or "in fail" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("end", "shown"),
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"), (lambda: os._exit(0), "exit 0")],
)
def test_a_process_that_ends_ends_the_command(
    capfd: pytest.CaptureFixture[str], end: Callable[[], None], shown: str
) -> None:
    def work(number: int, _item: str) -> None:
        if number == 1:
            end()

    def command() -> int:
        return len(list(SideBySide(work, "abcde", 2)))

    assert run_apart(command) == CRASHED
    assert f"ended ({shown})" in capfd.readouterr().err


def test_nobody_outlives_the_process_that_forked_it(tmp_path: Path) -> None:
    """However it ended: its processes hold each other's pipes, and would wait for ever."""
    program = f"""
import os, pathlib, time
from draftproof.harness.side_by_side import SideBySide
from draftproof.harness.subject_crash import SubjectCrashedError

def work(number, item):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(60)

list(SideBySide(work, "ab", 2))
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2]) as process:
        while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    gone = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=20)[1]
    assert gone == []
