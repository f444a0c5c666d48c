"""The directory of a campaign: its paths, its lock, and files that are whole or not there."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import msgspec

from draftproof.faults.catalogue import FaultFile
from draftproof.faults.patched_sources import write_fault
from draftproof.fuzz.campaign.settings import (
    CampaignError,
    DiskError,
    RequestedSettings,
    Settings,
    fresh,
    read,
    resumed,
)
from draftproof.properties.formats.case import encode
from draftproof.properties.lib.files import write_whole

SETTINGS_FILE = "campaign.json"
_OURS = frozenset({SETTINGS_FILE, "lock", "results.sqlite", "subject", "subject.new", "fault.patch", "workers"})


def save(path: Path, text: str) -> None:
    """Write a file of a campaign. Raises DiskError."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise DiskError(path.name, error.strerror or str(error)) from None


def remove(path: Path) -> None:
    """Remove a file that is no longer needed, if it is there. Raises DiskError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError(path.name, error.strerror or str(error)) from None


class RunDir:
    """A campaign's directory, locked for as long as the value is open. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Make the directory if it is missing, and lock it.

        Raises CampaignError if it cannot be made, is another campaign's at the moment, or holds other things.
        """
        self.path = path
        self.database = path / "results.sqlite"
        self.workers, self.subject = path / "workers", path / "subject"
        self._lock = -1
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in path.iterdir()}
            if not names & {SETTINGS_FILE, "lock"} and names - _OURS:
                raise CampaignError(
                    f"invalid --run '{path}': expected a campaign's directory or a new one; this holds other things"
                )
            self._lock = self._locked()
        except OSError as error:
            raise CampaignError(
                f"invalid --run '{path}': expected a directory that can be made and written ({error.strerror})"
            ) from None

    def _locked(self) -> int:
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise CampaignError(
                f"invalid --run '{self.path}': process {owner} runs a campaign there; expected a directory of its own"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return handle

    def __enter__(self) -> RunDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the directory free. The lock also falls with the process."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def finding(self, slug: str) -> Path:
        return self.path / "findings" / slug

    @property
    def settings(self) -> Settings | None:
        """What the campaign in it is; None if it has not begun. Raises CampaignError for a broken file."""
        path = self.path / SETTINGS_FILE
        return read(path) if path.exists() else None

    def begin(self, asked: RequestedSettings, sources: dict[str, str], fault: FaultFile | None = None) -> Settings:
        """Return the settings of the campaign that goes on here, or of a new one, for which they are written.

        A fault is brought into a copy of the sources once, so that a campaign that goes on has the same subject
        whatever became of the sources. Raises CampaignError, and StalePatchError or PatchError for a fault that
        does not fit the sources.
        """
        kept = self.settings
        if kept is not None:
            if kept.fault and not self.subject.is_dir():
                raise CampaignError(
                    f"{self.subject} is missing: expected the copy of the sources with the fault {kept.fault}"
                )
            return resumed(kept, asked)
        names = self._copy(sources, fault) if fault else ()
        settings = msgspec.structs.replace(fresh(asked), hunks=names)
        save(self.path / SETTINGS_FILE, encode(settings) + "\n")
        return settings

    def _copy(self, sources: dict[str, str], fault: FaultFile) -> tuple[str, ...]:
        new = self.path / "subject.new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(self.subject, ignore_errors=True)
        try:
            names = write_fault(new, sources, fault).hunks
            os.replace(new, self.subject)
            # What was brought in, as a file for `--patch`.
            write_whole(self.path / "fault.patch", Path(fault.path).read_text(encoding="utf-8"))
        except OSError as error:
            raise CampaignError(f"{self.subject} cannot be written: {error.strerror}") from None
        return names
