"""The process of a worker: `python -P -m draftproof.harness.workers.worker FOLDER INDEX`.

Reads a SubjectSpec and then Orders as JSON lines from standard input, answers each with an Answer on what was standard
output; whatever the subject prints goes to standard error, which is the worker's log. It ends with its parent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from draftproof.harness.collector import tune_gc
from draftproof.harness.hunk_counters import HunkCounters, replays
from draftproof.harness.ranks.world import anew
from draftproof.harness.subjects import Unmade, make_from
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, AnyOrder, KernelOrder, Order, PlainOrder, Ready, SubjectSpec
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.verdict import Outcome
from draftproof.subjects.process import die_with_parent

if TYPE_CHECKING:
    from draftproof.properties.kernels.case import KernelCase
    from draftproof.reference.solved import Solved

BROKEN_DEVICE, OWN_ERROR = 113, 114
"""Exit codes: the device does not work any more in this process; our own code raised outside of an order."""
_LONGEST_LOG = 4 << 20


@dataclass(frozen=True)
class Preloaded:
    """What a forked worker finds in memory: solved scenarios, and calls of kernels by op and seed.

    Its subject may fail to be made: that is a crash in every order, and not a worker that cannot start.
    """

    solved: Mapping[Scenario, Solved] = field(default_factory=dict)
    cases: Mapping[tuple[str, int], Sequence[KernelCase]] = field(default_factory=dict)


class Work(Protocol):
    """What answers the orders of a worker."""

    def answer(self, order: AnyOrder) -> Answer:
        """Never raises."""


Make = Callable[[SubjectSpec, Journal, Path], Work]
"""make(spec, journal, file for the names of kernels)."""


def main(folder: Path, index: int, preloaded: Preloaded | None = None, make: Make | None = None) -> int:
    """Serve until standard input ends; return the exit code. `make`: something else than a subject answers."""
    orders, answers = private_streams()
    die_with_parent()
    _die_before_parent()
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    try:
        return _serve(folder, index, orders, answers, make or partial(_Work, preloaded=preloaded))
    except Exception:
        traceback.print_exc()
        return OWN_ERROR


def private_streams() -> tuple[BinaryIO, int]:
    """Return standard input and output as they were; a subject that reads or prints meets neither."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return orders, answers


def _die_before_parent() -> None:
    """Where memory runs out, the kernel takes a worker first; nothing depends on this."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _serve(folder: Path, index: int, orders: BinaryIO, answers: int, make: Make) -> int:
    journal = Journal(folder / f"{index}.journal")
    spec = msgspec.json.decode(orders.readline(), type=SubjectSpec)
    work = make(spec, journal, folder / f"{index}.kernels")
    if not _is_healthy(spec.device):
        raise RuntimeError(f"invalid device {spec.device!r}: expected one that works; try draftproof doctor")
    if spec.device == "cuda":
        _share_kernels()
    tune_gc()  # what was loaded stays
    say(answers, Ready(pid=os.getpid()))
    for line in _lines(orders):
        order = _order(line)
        answer = order if isinstance(order, Answer) else work.answer(order)
        broken = answer.outcome is Outcome.CRASH and not _is_healthy(spec.device)
        journal.clear()
        say(answers, msgspec.structs.replace(answer, worker=index))
        if broken:
            # Nothing of this process's context can be released in good order any more.
            os._exit(BROKEN_DEVICE)
    return 0


def _share_kernels() -> None:
    """Compile what no other worker has compiled, and wait for what one compiles just now."""
    from draftproof.kernels.compilation import compile_once

    compile_once()


def _is_healthy(device: str) -> bool:
    """Return whether the device still works: an illegal access makes every later call of its process fail."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize()
        return int((torch.ones(2, device=device) + 1).sum().item()) == 4
    except RuntimeError:
        return False


class _Work:
    """The subject of a worker, and what answers its orders. Raises what making the subject raises."""

    def __init__(self, spec: SubjectSpec, journal: Journal, kernels: Path, preloaded: Preloaded | None) -> None:
        self._device, self._kernels, self._preloaded = spec.device, kernels, preloaded or Preloaded()
        self._counters = HunkCounters(spec.hunks)
        subject = self._made(spec, kernels.with_suffix(".log"), tolerant=preloaded is not None)

        import torch

        from draftproof.harness.execute import Executor

        torch.set_num_threads(1)
        self._executor = Executor(
            subject,
            journal=journal,
            reference=self._solved,
            observe=lambda ran, _judged: self._counters.end_run(replays=replays(ran)),
        )

    def _made(self, spec: SubjectSpec, log: Path, *, tolerant: bool) -> Subject:
        self._broken: Exception | None = None
        try:
            return make_from(spec, self._counters, log)
        except Exception as error:
            if not tolerant:
                raise
            self._broken = error
            return Unmade(error)

    def _solved(self, scenario: Scenario) -> Solved:
        from draftproof.reference.solved import solved

        return self._preloaded.solved.get(scenario) or solved(scenario)

    def answer(self, order: AnyOrder) -> Answer:
        """Never raises."""
        if isinstance(order, KernelOrder):
            answer = self._kernel(order)
        elif isinstance(order, Order) and order.kernels:
            answer = self._watched(order)
        elif isinstance(order, Order) and order.twins:
            answer = self._with_twins(order)
        else:
            assert isinstance(order, Order | PlainOrder), f"{type(order).__name__} is no order of this worker"
            answer = self._executor.answer(order)
        return msgspec.structs.replace(answer, hunks=self._counters.effective)

    def _kernel(self, order: KernelOrder) -> Answer:
        from draftproof.harness.kernel_runs import answer_kernel, crashed

        if self._broken is not None:
            return crashed(order, self._broken)
        answer = answer_kernel(order, self._preloaded.cases[order.op, order.seed][order.place], self._device)
        if answer.outcome is not Outcome.CRASH:
            self._counters.end_run(replays=0)
        return answer

    def _watched(self, order: Order) -> Answer:
        """Note each kernel before its first call, in a file: a run that dies has noted it, too."""
        from draftproof.harness.twins import watched

        with (
            self._kernels.open("w", encoding="utf-8") as file,
            watched(lambda name: print(name, file=file, flush=True)),
            anew(),
        ):
            return self._executor.answer(order)

    def _with_twins(self, order: Order) -> Answer:
        from draftproof.harness.twins import twins

        with twins(order.twins, self._device), anew():
            return self._executor.answer(order)


def _lines(orders: BinaryIO) -> Iterator[bytes]:
    for line in iter(orders.readline, b""):
        if os.fstat(1).st_size > _LONGEST_LOG:
            os.ftruncate(1, 0)
        yield line


class _Numbered(msgspec.Struct):
    """All that is needed of an order to answer it."""

    number: int


def _order(line: bytes) -> AnyOrder | Answer:
    """Return the order, or the answer that it has fields of values that no order may have."""
    try:
        order: AnyOrder = msgspec.json.decode(line, type=AnyOrder)
        return order
    except msgspec.ValidationError as error:
        number = msgspec.json.decode(line, type=_Numbered).number
        return Answer(number=number, outcome=Outcome.ERROR, error="ValidationError", detail=str(error))


def say(answers: int, message: Value) -> None:
    """Write a message as one line."""
    data = msgspec.json.encode(message) + b"\n"
    while data:
        data = data[os.write(answers, data) :]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
