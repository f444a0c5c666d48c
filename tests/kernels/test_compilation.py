"""A kernel that several processes want at once is compiled by one of them."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from triton import knobs
from triton.runtime.cache import FileCacheManager

from draftproof.harness.workers.pool import LEAST_DEADLINE
from draftproof.kernels import compilation
from draftproof.kernels.compilation import OneCompiler, compile_once

NAME = "kernel.json"
HOLDER = f"""
import time
from draftproof.kernels.compilation import OneCompiler
manager = OneCompiler("key")
print(manager.get_group({NAME!r}), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    return tmp_path


@contextmanager
def asking(look: Callable[[], object]) -> Iterator[Future[object]]:
    """Look in another thread, which has opened the lock for itself as another process would."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look)
        time.sleep(0.1)
        yield asked


def finish(manager: FileCacheManager) -> str:
    """Write what a compilation leaves, in its order; return the path of the file."""
    path = manager.put("{}", NAME, binary=False)
    manager.put_group(NAME, {NAME: path})
    return path


def test_who_comes_second_gets_what_the_first_made():
    first = OneCompiler("key")
    assert first.get_group(NAME) is None
    with asking(lambda: OneCompiler("key").get_group(NAME)) as asked:
        assert not asked.done()
        path = finish(first)
        assert asked.result(5) == {NAME: path}


def test_the_cache_of_triton_lets_both_compile():
    """What the tests here would not notice if nobody waited."""
    assert FileCacheManager("key").get_group(NAME) is None
    with asking(lambda: FileCacheManager("key").get_group(NAME)) as asked:
        assert asked.result(5) is None


def test_an_entry_that_is_not_listed_yet_is_waited_for():
    first = OneCompiler("key")
    first.get_group(NAME)
    with asking(lambda: OneCompiler("key").get_group(NAME)) as asked:
        path = first.put("{}", NAME, binary=False)
        time.sleep(0.1)
        assert not asked.done()
        first.put_group(NAME, {NAME: path})
        assert asked.result(5) == {NAME: path}


def test_single_files_of_drivers_are_waited_for_too():
    first = OneCompiler("key")
    assert first.get_file("launcher.so") is None
    with asking(lambda: OneCompiler("key").get_file("launcher.so")) as asked:
        assert not asked.done()
        path = first.put(b"code", "launcher.so")
        assert asked.result(5) == path


def test_other_kernels_are_compiled_meanwhile():
    first = OneCompiler("key")
    first.get_group(NAME)
    with asking(lambda: OneCompiler("other").get_group(NAME)) as asked:
        assert asked.result(5) is None


def test_a_compilation_that_fails_is_the_next_ones():
    def failing() -> None:
        OneCompiler("key").get_group(NAME)
        raise ValueError("no such instruction")

    with pytest.raises(ValueError, match="no such"):
        failing()
    with asking(lambda: OneCompiler("key").get_group(NAME)) as asked:
        assert asked.result(5) is None


def test_a_process_that_dies_compiling_stops_nobody(folder: Path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder)}
    command = [sys.executable, "-P", "-c", HOLDER]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "None\n"
        with asking(lambda: OneCompiler("key").get_group(NAME)) as asked:
            assert not asked.done()
            holder.send_signal(signal.SIGKILL)
            assert asked.result(5) is None


def test_a_wait_ends_long_before_a_worker_counts_as_hung():
    assert LEAST_DEADLINE["cuda"] > 2 * compilation.LONGEST_WAIT


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compilation, "LONGEST_WAIT", 0.2)
    first = OneCompiler("key")
    first.get_group(NAME)
    with asking(lambda: OneCompiler("key").get_group(NAME)) as asked:
        assert asked.result(5) is None


def test_a_file_system_without_locks_compiles_as_triton_does(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = OneCompiler("key"), OneCompiler("key")
    assert first.get_group(NAME) is None
    assert second.get_group(NAME) is None
    path = finish(second)
    assert first.get_group(NAME) == {NAME: path}


def test_a_cache_that_somebody_chose_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(knobs.cache, "manager_class", FileCacheManager)
    compile_once()
    assert knobs.cache.manager_class is FileCacheManager
    monkeypatch.setattr(knobs.cache, "manager_class", None)
    compile_once()
    assert knobs.cache.manager_class is OneCompiler
