"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash at any time leaves the old one or the new one; make its folder. Raises OSError.

    A link stays, and what it leads to is replaced; a pipe or a device is written to.
    """
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}-", suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def require_writable(path: Path) -> None:
    """Raise OSError where a file could not be written now; leaves nothing behind, and no folder."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if _is_special(path):
        return
    folder = path.resolve().parent
    while not folder.exists():
        folder = folder.parent
    handle, name = tempfile.mkstemp(dir=folder, prefix=".draftproof-", suffix=".new")
    os.close(handle)
    Path(name).unlink()


def _is_special(path: Path) -> bool:
    """Return whether a path leads to a pipe or a device, which must not be replaced by a file."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _umask() -> int:
    """Return the process's mask; there is no way to read it but to set it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _sync(folder: Path) -> None:
    """Write the folder, too: without it a rename is lost with the power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
