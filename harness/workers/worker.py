"""The process of a worker: `python -P -m draftproof.harness.workers.worker FOLDER INDEX`.

Reads a SubjectSpec and then Orders as JSON lines from standard input, answers each with an Answer on what was standard
output; whatever the subject prints goes to standard error, which is the worker's log. It ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, Order, Ready, SubjectSpec
from draftproof.harness.workers.subject import healthy, make
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Outcome

BROKEN_DEVICE, OWN_ERROR = 113, 114
"""Exit codes: the device does not work any more in this process; our own code raised outside of an order."""
_SET_PDEATHSIG = 1
_LONGEST_LOG = 4 << 20


def main(arguments: list[str]) -> int:
    """Serve until standard input ends."""
    folder, index = Path(arguments[0]), int(arguments[1])
    orders, answers = _private_streams()
    _die_with_parent()
    _die_before_parent()
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    try:
        return _serve(folder, index, orders, answers)
    except Exception:
        traceback.print_exc()
        return OWN_ERROR


def _private_streams() -> tuple[BinaryIO, int]:
    """Standard input and output as they were; a subject that reads or prints meets neither."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return orders, answers


def _die_with_parent() -> None:
    """Where the system has no such call, the end of standard input is all that tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _die_before_parent() -> None:
    """Where memory runs out, the kernel takes a worker first; nothing depends on this."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _serve(folder: Path, index: int, orders: BinaryIO, answers: int) -> int:
    journal = Journal(folder / f"{index}.journal")
    spec = msgspec.json.decode(orders.readline(), type=SubjectSpec)
    subject = make(spec)

    import torch

    from draftproof.harness.execute import Executor

    torch.set_num_threads(1)
    executor = Executor(subject, journal=journal)
    if not healthy(spec.device):
        raise RuntimeError(f"device is {spec.device}, allowed: one that works here")
    _say(answers, Ready(pid=os.getpid()))
    for line in _lines(orders):
        order = _order(line)
        answer = order if isinstance(order, Answer) else executor.answer(order)
        answer = msgspec.structs.replace(answer, worker=index)
        broken = answer.outcome is Outcome.CRASH and not healthy(spec.device)
        journal.clear()
        _say(answers, answer)
        if broken:
            # Nothing of this process's context can be released in good order any more.
            os._exit(BROKEN_DEVICE)
    return 0


def _lines(orders: BinaryIO) -> Iterator[bytes]:
    for line in iter(orders.readline, b""):
        if os.fstat(1).st_size > _LONGEST_LOG:
            os.ftruncate(1, 0)
        yield line


class _Numbered(msgspec.Struct):
    """All that is needed of an order to answer it."""

    number: int


def _order(line: bytes) -> Order | Answer:
    """The order, or the answer that it has fields of values that no order may have."""
    try:
        return msgspec.json.decode(line, type=Order)
    except msgspec.ValidationError as error:
        number = msgspec.json.decode(line, type=_Numbered).number
        return Answer(number=number, outcome=Outcome.ERROR, error="ValidationError", detail=str(error))


def _say(answers: int, message: Value) -> None:
    data = msgspec.json.encode(message) + b"\n"
    while data:
        data = data[os.write(answers, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
