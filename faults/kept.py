"""Results of a run over faults or mutants in a file, one JSON line each, so that a run that was cut goes on.

The first line says what the run is. A result is found again by a digest of all that it depends on: the batch, the task,
and the text of the patched files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from draftproof.faults.matrix import MadeWith, versions
from draftproof.faults.orders import WHOLE, Batch, Task, TaskResult, is_twin, most_met
from draftproof.faults.served import Serve
from draftproof.harness.own_sources import sources
from draftproof.properties.formats.case import decode
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.strategies.version import STRATEGIES_VERSION

_SHOWN = 3
"""A message names no more faults than this."""


class Kind(NamedTuple):
    """What runs, in words of messages."""

    run: str
    tried: str


FAULTS = Kind(run="`faults run`", tried="faults")
MUTANTS = Kind(run="run of the mutation score", tried="mutants")


class KeptResultsError(DraftproofError, ValueError):
    """The results of a run that was cut cannot be used or kept; the message says what to do."""


class RunSettings(Value, frozen=True, kw_only=True):
    """What has to be the same for results to count in another call.

    `model` are directories of checkpoints, the draft's last, with a digest of each one's files. `strategies` is the
    version of the scenario generator, `sources` a digest of all that runs them except the patches.
    """

    seed: int
    seeds: int
    examples: int
    device: str
    baseline: bool = False
    model: tuple[str, ...] = ()
    strategies: int = STRATEGIES_VERSION
    sources: str = msgspec.field(default_factory=sources)
    versions: tuple[MadeWith, ...] = msgspec.field(default_factory=versions)


_OPTIONS = ("seed", "seeds", "examples", "device", "baseline", "model")
_NAMES = {"strategies": "version of the strategies", "sources": "sources of Draftproof", "versions": "versions"}


class KeptResult(Value, frozen=True, kw_only=True):
    """A line of the file: the result of a task, and the digest of what it depends on."""

    key: str
    result: TaskResult


class KeptResults:
    """The results in a file, locked while it is open. Use as a context manager, which leaves no file without results.

    `ids`: what this run tries. Raises KeptResultsError for a file of another run, or one that cannot be used.
    """

    def __init__(self, path: Path, settings: RunSettings, ids: Sequence[str], kind: Kind = FAULTS) -> None:
        self.path, self._kind = path, kind
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritten(error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._found = self._read(settings, ids)
        except BlockingIOError:
            os.close(self._file)
            raise KeptResultsError(f"{path} is in use by another {kind.run}: expected a --json of its own") from None
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if not self._found:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    @property
    def tried(self) -> int:
        """How many faults or mutants have results."""
        return len({_fault(one.id) for one in self._found.values() if not is_twin(one.id)})

    def serve(self, serve: Serve) -> Serve:
        """Return what takes results from the file, and runs and keeps those that are not in it.

        Clean twins run again beside what is left, which may need examples that no fault before did.
        """

        def run(batch: Batch) -> Iterator[TaskResult]:
            of_batch = msgspec.structs.replace(batch, tasks=(), parallel=0)
            keys = {task.id: _key(msgspec.json.encode(of_batch), task) for task in batch.tasks}
            found = {name: self._found[key] for name, key in keys.items() if key in self._found}
            if any(task.id not in found and not is_twin(task.id) for task in batch.tasks):
                found = {name: result for name, result in found.items() if not is_twin(name)}
            yield from found.values()
            left = tuple(task for task in batch.tasks if task.id not in found)
            if left:
                met = most_met([one for name, one in found.items() if not is_twin(name)], len(batch.seeds))
                for result in serve(msgspec.structs.replace(batch, tasks=left, met=met)):
                    self._keep(KeptResult(key=keys[result.id], result=result))
                    yield result

        return run

    def remove(self) -> None:
        """Forget all, once the run has its end."""
        self._found.clear()

    def _read(self, settings: RunSettings, ids: Sequence[str]) -> dict[str, TaskResult]:
        text = self.path.read_bytes()
        # What a cut left of a line that was being written.
        whole = text[: text.rfind(b"\n") + 1]
        if text and not whole:
            raise KeptResultsError(f"{self.path} is not what a {self._kind.run} keeps its results in: {self._anew}")
        lines = whole.splitlines()
        try:
            kept = [decode(line, RunSettings, name=f"{self.path}, line 1") for line in lines[:1]]
            read = [
                decode(line, KeptResult, name=f"{self.path}, line {number}")
                for number, line in enumerate(lines[1:], start=2)
            ]
        except InvalidScenarioError as error:
            raise KeptResultsError(f"{error}; {self._anew}") from None
        if not read:
            os.ftruncate(self._file, 0)
            self._write(settings)
            return {}
        self._require_same(kept[0], settings)
        self._require_asked(read, ids)
        os.ftruncate(self._file, len(whole))
        return {one.key: one.result for one in read}

    @property
    def _anew(self) -> str:
        return f"remove it to begin again, or give another --json, as {self.path} keeps what a run before has found"

    def _require_same(self, kept: RunSettings, asked: RunSettings) -> None:
        for field in RunSettings.__struct_fields__:
            was, now = getattr(kept, field), getattr(asked, field)
            if was == now:
                continue
            is_option = field in _OPTIONS
            name = f"--{field}" if is_option else _NAMES[field]
            go_on = "run the command that was cut" if is_option else "go on with the Draftproof that began"
            raise KeptResultsError(
                f"invalid {name} {_shown(now)}: expected {_shown(was)}, as {self.path} has it, which keeps results of a"
                f" run that was cut; {go_on}, or remove that file to begin again, or give another --json"
            )

    def _require_asked(self, read: Sequence[KeptResult], ids: Sequence[str]) -> None:
        """Raise KeptResultsError where results would go of what this run does not try."""
        known = dict.fromkeys(_fault(one.result.id) for one in read if not is_twin(one.result.id))
        if others := [name for name in known if name not in ids]:
            more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            raise KeptResultsError(
                f"invalid choice of {len(ids)} {self._kind.tried}: expected also {', '.join(others[:_SHOWN])}{more}, of"
                f" which {self.path} keeps results of a run that was cut; run the command that was cut, or remove that"
                " file to begin again, or give another --json"
            )

    def _keep(self, kept: KeptResult) -> None:
        with self._lock:
            # Nothing waits for results that come after the end.
            if self._file >= 0:
                self._found[kept.key] = kept.result
                self._write(kept)

    def _write(self, value: Value) -> None:
        """Append a line, on the disk when this returns. Raises KeptResultsError."""
        end = os.lseek(self._file, 0, os.SEEK_END)
        line = msgspec.json.encode(value) + b"\n"
        try:
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, end)
                raise OSError(0, "there is no room")
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> KeptResultsError:
        return KeptResultsError(
            f"{self.path} cannot be written: {error.strerror}; expected to keep results there: make room, or give"
            " another --json, and run the same command again"
        )


def beside(path: Path) -> Path:
    """Return where the results of a run are kept that writes its report to `path` at its end."""
    return path.with_name(f"{path.name}.results.jsonl")


def described(directory: str) -> str:
    """Return a checkpoint's directory, with a digest of the names, sizes and times of its files."""
    found = sorted(one for one in Path(directory).rglob("*") if one.is_file())
    told = [(one.relative_to(directory).as_posix(), one.stat().st_size, one.stat().st_mtime_ns) for one in found]
    return f"{Path(directory).resolve()} ({hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:8]})"


def _fault(task: str) -> str:
    return task.removesuffix(WHOLE)


def _key(batch: bytes, task: Task) -> str:
    """Return a digest of a task in a batch: of its folder only what is patched there, as the rest is the sources."""
    digest = hashlib.sha256(batch + msgspec.json.encode(msgspec.structs.replace(task, folder="")))
    for path in sorted({name.rpartition(":")[0] for name in task.hunks}):
        digest.update((Path(task.folder) / path).read_bytes())
    return digest.hexdigest()[:32]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        words = (f"{one.package} {one.version}" if isinstance(one, MadeWith) else str(one) for one in value)
        return ", ".join(words) or "none"
    return f"'{value}'" if isinstance(value, str) else str(value).lower()
