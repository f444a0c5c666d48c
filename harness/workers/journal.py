"""What a worker is about to do, kept where its parent finds it after the worker was killed: one small record a worker.

A record is written in place and whole, before each step; the kernel keeps it whatever becomes of the process.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from draftproof.harness.workers.messages import Place

_FIELDS = struct.Struct("<qi12s24s")
_CHECK = struct.Struct("<I")
SIZE = _FIELDS.size + _CHECK.size
"""Bytes of a record: number, step, run, launch, and a checksum over them."""


class JournalEntry(NamedTuple):
    """The order in hand, and how far it is."""

    number: int
    place: Place


class Journal:
    """The worker's side. Each call below writes the record anew; `lost` counts those that the disk did not take.

    Raises OSError if there cannot be a file at all: later a full disk costs the journal, and never the scenario.
    """

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.lost = 0
        self._number, self._run, self._step, self._launch = -1, b"", -1, b""
        os.pwrite(self.file, bytes(SIZE), 0)

    def begin(self, number: int) -> None:
        """Note that an order is taken in hand."""
        self._number = number
        self.enter("order")

    def enter(self, run: str) -> None:
        """Note that a part of it begins: reference, base, variant, judge."""
        self._run, self._step, self._launch = run.encode(), -1, b""
        self._write()

    def announce(self, step: int, launch: str) -> None:
        """Note what the subject is about to do."""
        self._step, self._launch = step, launch.encode()
        self._write()

    def clear(self) -> None:
        """Nothing is in hand."""
        self._put(bytes(SIZE))

    @property
    def place(self) -> Place:
        return Place(run=self._run.decode(), step=self._step, launch=self._launch.decode())

    def _write(self) -> None:
        fields = _FIELDS.pack(self._number, self._step, self._run, self._launch)
        self._put(fields + _CHECK.pack(zlib.crc32(fields)))

    def _put(self, record: bytes) -> None:
        try:
            os.pwrite(self.file, record, 0)
        except OSError:
            self.lost += 1


def read(path: Path) -> JournalEntry | None:
    """Return what was last written; None if nothing is in hand, or the record is torn, or there is none."""
    try:
        record = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(record) != SIZE:
        return None
    fields, check = record[: _FIELDS.size], _CHECK.unpack(record[_FIELDS.size :])[0]
    if zlib.crc32(fields) != check or not any(fields):
        return None
    number, step, run, launch = _FIELDS.unpack(fields)
    return JournalEntry(number, Place(run=_text(run), step=step, launch=_text(launch)))


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")
