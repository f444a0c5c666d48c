"""A process with all that descends from it, whatever sessions these made."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from draftproof.subjects.remote import bootstrap


def kill_tree(pid: int) -> None:
    """Kill a process, its group and its descendants; reaps nothing."""
    below = _below(pid)
    # A process that was forked just now may not have its own session yet.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    for one in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process and its descendants hold; 0 if it is gone."""
    total = 0
    for number in (pid, *(one.pid for one in _below(pid))):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += int(psutil.Process(number).memory_info().rss)
    return total


def print_stacks(pid: int) -> None:
    """Have a worker print the stacks of its threads, and then the subject that it has in another Python."""
    os.kill(pid, signal.SIGUSR1)
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(pid).children():
            if bootstrap.__file__ in one.cmdline():
                one.send_signal(signal.SIGUSR1)


def _below(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []
