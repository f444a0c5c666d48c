"""Kernels against their naive twins: generated cases, and what the contract of an op says of an implementation.

A worker answers for one call at a time, a check has a verdict for all calls of an op. As a program, `python -P -m
draftproof.harness.kernel_runs FOLDER INDEX`, it is such a worker.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path

import torch

from draftproof.harness.signals import TimeLimitError, time_limit
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, AnyOrder, KernelOrder, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.harness.workers.start import fork, spawning
from draftproof.harness.workers.worker import main
from draftproof.properties.kernels.blocks import lacking
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.contract import Difference, check
from draftproof.properties.kernels.listed import calls, enough
from draftproof.properties.kernels.table import KERNEL_PREFIX
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.relations import InMemory
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict
from draftproof.reference import ops

Kernels = Callable[[str], Callable[..., None]]
KernelCalls = dict[str, tuple[KernelCase, ...]]
"""op -> the calls that it is held to its contract with"""
CALL_DEADLINE = 120.0
"""Seconds for one call of a kernel; on a GPU it may have to be compiled first."""
_MOST_PROCESSES, _ON_A_CPU = 8, 2
"""Processes that judge kernels on a GPU, at most, and on a CPU."""


class KernelHangError(DraftproofError, TimeoutError):
    """A call of a kernel did not end in time; the message names its op."""


def cases(op: str, seed: int, count: int) -> tuple[KernelCase, ...]:
    """Return the first `count` calls of an op's list; see properties/kernels/listed.py."""
    return tuple(islice(calls(op, seed), count))


def kernel_calls(names: Iterable[str], seed: int, count: int) -> KernelCalls:
    """Return calls for contracts of kernels, up to as many as come to all that is wanted of each."""
    ops = [name.removeprefix(KERNEL_PREFIX) for name in names]
    return {op: cases(op, seed, min(count, enough(op, seed))) for op in ops}


def ours(op: str) -> Callable[..., None]:
    """Return the op of draftproof.kernels, imported now: in a fault's process that is the patched one."""
    implementation: Callable[..., None] = getattr(importlib.import_module("draftproof.kernels"), op)
    return implementation


def diverges(op: str, case: KernelCase, device: str, kernels: Kernels = ours) -> Divergence | None:
    """Return the first difference between an implementation and the twin.

    Raises KernelHangError in the main thread, after CALL_DEADLINE, as soon as a kernel comes back to Python; one that
    never does is ended by `draftproof lab kernels check`.
    """
    try:
        with time_limit(CALL_DEADLINE):
            return _diverges(op, case, device, kernels)
    except TimeLimitError:
        raise KernelHangError(f"a call of {op} took longer than {CALL_DEADLINE:g} s: expected an end") from None


def _diverges(op: str, case: KernelCase, device: str, kernels: Kernels = ours) -> Divergence | None:
    differences = check(op, kernels(op), getattr(ops, op), case, device)
    return divergence(differences[0]) if differences else None


def divergence(found: Difference) -> Divergence:
    """Return a difference as the first one of the op's contract."""
    expected, got = f"{found.argument}{list(found.index)} = {found.expected}", str(found.got)
    if found.place == "outside":
        expected, got = f"reads of elements of {found.argument}", f"a read {found.index[0]} elements from its start"
    return Divergence(
        contract=f"{KERNEL_PREFIX}{found.op}",
        channel=f"{KERNEL_PREFIX}{found.argument}",
        phase="kernel",
        request=-1,
        round=-1,
        step=-1,
        layer=-1,
        row=found.index[0] if found.index else -1,
        index=-1,
        expected=expected,
        got=got,
        relation=found.relation or InMemory(found.place),
        margin=found.margin,
        count=found.count,
    )


def answer_kernel(order: KernelOrder, case: KernelCase, device: str) -> Answer:
    """Run the kernel and its twin. Never raises: what a kernel raises is a CRASH."""
    began = time.perf_counter()
    try:
        found = _diverges(case.op, case, device)
    except (Exception, SystemExit) as error:
        return crashed(order, error, time.perf_counter() - began)
    return Answer(
        number=order.number,
        outcome=Outcome.FAIL if found else Outcome.PASS,
        failures={found.contract: found} if found else {},
        first=found,
        seconds=round(time.perf_counter() - began, 6),
    )


def crashed(order: KernelOrder, error: BaseException, seconds: float = 0.0) -> Answer:
    """Return the answer for an error of the kernel, or of importing it."""
    kind = type(error).__name__
    message = f"{order.op}: {kind}: {error}"
    return Answer(
        number=order.number,
        outcome=Outcome.CRASH,
        error=kind,
        message=message,
        reason=message,
        detail="".join(traceback.format_exception(error)),
        seconds=seconds,
    )


class _Calls:
    """Calls of kernels in a worker."""

    def __init__(self, spec: SubjectSpec, journal: Journal, _: Path) -> None:
        torch.set_num_threads(1)
        self._device, self._journal = spec.device, journal
        self._listed = cache(lambda op, seed: cases(op, seed, enough(op, seed)))

    def answer(self, order: AnyOrder) -> Answer:
        """Never raises."""
        assert isinstance(order, KernelOrder), f"{type(order).__name__} is no order of this worker"
        self._journal.begin(order.number)
        case = self._listed(order.op, order.seed)[order.place]
        self._journal.enter("kernel")
        return answer_kernel(order, case, self._device)


def kernel_verdicts(calls: KernelCalls, seed: int, device: str) -> Iterator[Verdict]:
    """Yield the verdict of each op, whose calls of `seed` run one after the other in a worker, as those of others do.

    A call that ends its worker, or takes longer than CALL_DEADLINE, is a CRASH or a HANG of its op.
    """
    if not calls:
        return
    count = min(len(calls), _ON_A_CPU if device == "cpu" else min(_MOST_PROCESSES, os.cpu_count() or 1))
    # A fork starts at once, but would take a GPU along.
    start = fork(partial(main, make=_Calls)) if device == "cpu" else spawning(__name__)
    spec, names, left = SubjectSpec(device="cpu" if device == "cpu" else "cuda"), list(calls), iter(calls)
    verdicts, places = dict[str, Verdict](), dict.fromkeys(calls, 0)
    with (
        tempfile.TemporaryDirectory(prefix="draftproof-") as folder,
        Pool(spec, count, Path(folder), deadline=CALL_DEADLINE, start=start) as pool,
    ):

        def ask(op: str) -> None:
            pool.submit(KernelOrder(number=names.index(op), op=op, seed=seed, place=places[op]))

        for op in islice(left, count):
            ask(op)
        for op in calls:
            while op not in verdicts:
                for answer in pool.poll(1.0):
                    asked = names[answer.number]
                    places[asked] += 1
                    if answer.outcome is Outcome.PASS and places[asked] < len(calls[asked]):
                        ask(asked)
                        continue
                    verdicts[asked] = _verdict(asked, calls[asked], places[asked], answer)
                    for other in islice(left, 1):
                        ask(other)
            yield verdicts[op]


def _verdict(op: str, of_op: tuple[KernelCase, ...], call: int, last: Answer) -> Verdict:
    """Return the verdict on an op by the last answer: INCONCLUSIVE without all sizes that are wanted."""
    passed = last.outcome is Outcome.PASS
    missing = tuple(f"{name} >= 1" for name in lacking(op, of_op)) if passed else ()
    reason = f"call {call} of {len(of_op)}: {last.reason.splitlines()[0]}" if last.reason else ""
    outcome = Outcome.INCONCLUSIVE if missing else last.outcome
    name, count = f"{KERNEL_PREFIX}{op}", len(of_op)
    return Verdict(name=name, verdict=outcome, scenarios=count, divergence=last.first, missing=missing, reason=reason)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), make=_Calls))
