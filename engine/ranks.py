"""Ranks beside each other: the collectives that engines of one world issue, each the same ones in the same order.

On CUDA devices numbers of the host go over gloo and tensors over NCCL; on a CPU all go over sockets (host_mesh.py). `T`
packed tokens of a rank, as many on each after padding, `D` lanes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from draftproof.engine.host_mesh import HostMesh
from draftproof.properties.lib.errors import DraftproofError


class RankOp(IntEnum):
    """What ranks do together: agree on numbers, give each other rows, or add up rows."""

    AGREE = 1
    GATHER = 2
    SUM = 3


JOURNAL_DTYPES = {torch.int64: 1, torch.float32: 2}
"""Of what is sent, as numbers in the journal."""


class Issued(NamedTuple):
    """A collective as this rank issues it; shape and dtype are those that all ranks have to have.

    `dtype` is a number of DTYPES, 0 for another.
    """

    op: int
    rows: int
    lanes: int
    dtype: int = 1

    def __str__(self) -> str:
        sent = {1: "", 2: " of float32"}.get(self.dtype, " of another dtype")
        return f"{RankOp(self.op).name.lower()} [{self.rows}, {self.lanes}]{sent}"


class IssueLog(Protocol):
    """Where every rank records each collective before it enters it."""

    def enter(self, rank: int, entered: tuple[int, int, int, int]) -> int:
        """Record it; return which of the rank's collectives it is."""
        ...

    def parting(self) -> int | None:
        """Return the first that two ranks recorded as different ones."""
        ...

    def others_at(self, rank: int, number: int) -> Sequence[tuple[int, tuple[int, int, int, int]]]:
        """Return what other ranks have recorded as their collective of this number."""
        ...

    def give_up(self, rank: int) -> None:
        """Record that a rank waits for ever."""
        ...


Observe = Callable[[Issued], None]
_TIMEOUT = timedelta(minutes=10)
"""Longer than the parent of the ranks waits for them."""


class LockstepError(DraftproofError, RuntimeError):
    """Two ranks entered collectives of one kind with different shapes, which no backend promises to survive."""


class Solo:
    """An engine of its own: it agrees with itself, and shares nothing."""

    size, rank = 1, 0
    mismatch: str = ""

    def watch(self, observe: Observe) -> None:
        """Have every collective of this rank reported from now on."""

    def agree(self, *own: int) -> tuple[int, ...]:
        """Return the largest of each number over all ranks."""
        return own

    @contextmanager
    def padded_to(self, rows: int) -> Iterator[None]:
        """Pad what is gathered meanwhile to `rows`, as all ranks do."""
        yield

    @contextmanager
    def recording(self) -> Iterator[list[Issued]]:
        """Collect the collectives that are issued meanwhile, as a capture does that replays them."""
        yield []

    def enter(self, collectives: Sequence[Issued]) -> None:
        """Note collectives that are about to run: a replay runs the collectives of its capture."""


SOLO = Solo()


class DataParallelGroup(Solo):
    """One data-parallel rank of several, and the backend of all. `meeting` is a folder that all of them share.

    What a rank enters is in its journal before. A rank that finds another in a different operation waits for ever, as a
    backend would; one that finds another shape raises LockstepError, and so does the other.
    """

    def __init__(self, rank: int, size: int, meeting: Path, journal: IssueLog, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._journal = journal
        self._mesh = None if device.type == "cuda" else HostMesh(rank, size, meeting)
        if self._mesh is None:
            store = dist.FileStore(str(meeting / "store"), size)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
            self._tensors = dist.new_group(backend="nccl")
        self._rows = 0
        self._observe: Observe = _say_nothing
        self._noted: list[Issued] | None = None
        self.handle = len(_GROUPS)
        _GROUPS.append(self)

    def watch(self, observe: Observe) -> None:
        """See Solo."""
        self._observe, self.mismatch = observe, ""

    def agree(self, *own: int) -> tuple[int, ...]:
        """See Solo."""
        everyone, numbers = (torch.empty(self.size * len(own), dtype=torch.int64), torch.tensor(own))
        self.enter((Issued(RankOp.AGREE, 1, len(own)),))
        self.run(lambda: self.all_gather(everyone, numbers, of_host=True))
        return tuple(everyone.view(self.size, -1).amax(0).tolist())

    @contextmanager
    def padded_to(self, rows: int) -> Iterator[None]:
        """See Solo."""
        before, self._rows = self._rows, rows
        try:
            yield
        finally:
            self._rows = before

    @contextmanager
    def recording(self) -> Iterator[list[Issued]]:
        """See Solo."""
        self._noted = noted = list[Issued]()
        try:
            yield noted
        finally:
            self._noted = None

    def enter(self, collectives: Sequence[Issued]) -> None:
        """See Solo. Raises LockstepError."""
        for entered in collectives:
            if self._noted is not None:
                self._noted.append(entered)
            self._observe(entered)
            self._compare(self._journal.enter(self.rank, entered), entered)

    def _compare(self, number: int, entered: Issued) -> None:
        for other, theirs in self._journal.others_at(self.rank, number):
            if theirs[0] != entered.op:
                self._journal.give_up(self.rank)
                while True:
                    time.sleep(1)
            if theirs != entered:
                self.mismatch = f"rank {self.rank} entered {entered}, rank {other} {Issued(*theirs)}"
                self._leave()
                raise LockstepError(self.mismatch)

    def _leave(self) -> None:
        if self._mesh:
            self._mesh.close()
            return
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()

    def all_gather(self, everyone: Tensor, own: Tensor, *, of_host: bool = False) -> None:
        """Fill everyone, of as many rows for each rank as its `own` has, with those of all ranks."""
        if self._mesh:
            self._mesh.gather(everyone.numpy().reshape(self.size, *own.shape), own.numpy())
            return
        # One function under its old name and its new one.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(everyone, own, group=None if of_host else self._tensors)

    def all_reduce(self, parts: Tensor) -> None:
        """Set parts to the sum over all ranks."""
        if self._mesh:
            self._mesh.sum(parts.numpy())
        else:
            dist.all_reduce(parts, group=self._tensors)

    def run(self, collective: Callable[[], object]) -> None:
        """Run one that has been entered. Raises LockstepError where another rank left it."""
        try:
            collective()
        except RuntimeError as error:
            # A replay has entered all of its collectives before the first runs, and a third rank may not be there yet.
            number = self._journal.parting()
            if number is None:
                raise
            self.mismatch = f"two ranks entered different collectives as number {number}"
            raise LockstepError(self.mismatch) from error

    def lanes(self, count: int) -> slice:
        """Return which of `count` lanes are this rank's."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, x: Tensor) -> Tensor:
        """[T, D] -> [ranks * T, D], the rows of all ranks one after another, each padded as all are."""
        rows = max(self._rows, x.shape[0])
        own = torch.nn.functional.pad(x, (0, 0, 0, rows - x.shape[0])) if rows > x.shape[0] else x.contiguous()
        everyone = x.new_empty((self.size * rows, x.shape[1]))
        self.enter((Issued(RankOp.GATHER, rows, x.shape[1]),))
        torch.ops.draftproof_ranks.gather(everyone, own, self.handle)
        return everyone

    def sum(self, parts: Tensor, rows: int) -> Tensor:
        """Parts [ranks * T, D] of every rank -> their sum in the first `rows` of this rank's own rows."""
        self.enter((Issued(RankOp.SUM, *parts.shape),))
        torch.ops.draftproof_ranks.sum(parts, self.handle)
        first = parts.shape[0] // self.size * self.rank
        return parts[first : first + rows]


_GROUPS: list[DataParallelGroup] = []
"""By handle: an op takes no object."""


def _say_nothing(entered: Issued) -> None:
    """Do nothing."""


def _gather(everyone: Tensor, own: Tensor, handle: int) -> None:
    group = _GROUPS[handle]
    group.run(lambda: group.all_gather(everyone, own))


def _sum(parts: Tensor, handle: int) -> None:
    group = _GROUPS[handle]
    group.run(lambda: group.all_reduce(parts))


_LIBRARY = torch.library.Library("draftproof_ranks", "DEF")
_LIBRARY.define("gather(Tensor(a!) everyone, Tensor own, int handle) -> ()")
_LIBRARY.define("sum(Tensor(a!) parts, int handle) -> ()")
for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("gather", _gather, _device)
    _LIBRARY.impl("sum", _sum, _device)
