"""Triton kernels compiled once for all processes of a machine: one compiles, the others wait and read its result.

Triton keeps what it compiled in a folder that processes share. But processes that want the same kernel at the same
moment, as the workers of a campaign do, all miss it there, and all compile it.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from triton import knobs
from triton.runtime.cache import FileCacheManager

LONGEST_WAIT = 20.0
"""Seconds after which a process compiles itself: several times what a kernel takes, less than any deadline of ours."""
_STEP = 0.01

Found = TypeVar("Found")


def compile_once() -> None:
    """Have this process use `OneCompiler` from now on, unless another of Triton's caches was chosen for it."""
    if knobs.cache.manager_class is None:
        knobs.cache.manager_class = OneCompiler


class OneCompiler(FileCacheManager):
    """Triton's own cache on disk; a process that misses an entry holds a lock on its folder until the entry is there.

    The lock is the operating system's, on an open file. It ends with this object, which lives as long as one
    compilation, or with the process, whatever becomes of either. Source of the protocol: `triton.compiler.compile` asks
    get_group and ends with put_group, the drivers ask get_file and end with put.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override, dump)
        self._locks = not override and not dump
        self._held: weakref.finalize[[int], OneCompiler] | None = None
        self._last = ""

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the files of an entry; None if they are not there and no other process is making them."""
        return self._awaited(filename, super().get_group, ends_with=f"__grp__{filename}")

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file; None if it is not there and no other process is making it."""
        return self._awaited(filename, super().get_file, ends_with=filename)

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        """Write a file; others go on if it is the last one missed. put_group, too, writes its list with this."""
        path = super().put(data, filename, binary)
        if filename == self._last:
            self._release()
        return path

    def _awaited(self, filename: str, look: Callable[[str], Found | None], ends_with: str) -> Found | None:
        found = look(filename)
        if found is not None or not self._locks or self._held is not None:
            return found
        end = time.monotonic() + LONGEST_WAIT
        file = os.open(Path(self.cache_dir) / "compiling.lock", os.O_RDWR | os.O_CREAT)
        # Also where a compilation raises, which puts nothing.
        self._held, self._last = weakref.finalize(self, os.close, file), ends_with
        while _is_locked_by_another(file) and found is None and time.monotonic() < end:
            time.sleep(_STEP)
            found = look(filename)
        # It may have been made between the last look and the lock.
        found = found or look(filename)
        if found is not None:
            self._release()
        return found

    def _release(self) -> None:
        if self._held is not None:
            self._held()
        self._held, self._last = None, ""


def _is_locked_by_another(file: int) -> bool:
    """Lock a file; return whether another process holds it. False where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
