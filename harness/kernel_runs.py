"""Kernels against their naive twins: generated cases, and what the contract of an op says of an implementation.

A worker answers for one call at a time, a check has a verdict for all calls of an op.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from draftproof.harness.workers.messages import Answer, KernelOrder
from draftproof.properties.choose import require_seeded
from draftproof.properties.kernels.blocks import lacking
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.contract import Difference, check
from draftproof.properties.kernels.listed import calls, enough
from draftproof.properties.kernels.others.cases import require_op
from draftproof.properties.kernels.table import KERNEL_PREFIX
from draftproof.properties.values.relations import InMemory
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict
from draftproof.reference import ops

Kernels = Callable[[str], Callable[..., None]]
KernelCalls = dict[str, tuple[KernelCase, ...]]
"""op -> the calls that it is held to its contract with"""
_MOST_PROCESSES, _ON_A_CPU = 8, 2
"""Processes that judge kernels on a GPU, at most, and on a CPU."""


def cases(op: str, seed: int, count: int) -> tuple[KernelCase, ...]:
    """Return the first `count` calls of an op's list; see properties/kernels/listed.py. Raises InputError."""
    require_seeded(seed, count)
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
    """Return the first difference between an implementation and the twin. Raises InputError for an op that is none."""
    require_op(op)
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
        found = diverges(case.op, case, device)
    except Exception as error:
        return crashed(order, error, time.perf_counter() - began)
    return Answer(
        number=order.number,
        outcome=Outcome.FAIL if found else Outcome.PASS,
        failures={found.contract: found} if found else {},
        first=found,
        seconds=round(time.perf_counter() - began, 6),
    )


def crashed(order: KernelOrder, error: Exception, seconds: float = 0.0) -> Answer:
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


def kernel_verdict(op: str, of_op: tuple[KernelCase, ...], device: str) -> Verdict:
    """Return the verdict of the contract of an op, over its cases: INCONCLUSIVE without all sizes that are wanted."""
    name, count = f"{KERNEL_PREFIX}{op}", len(of_op)
    try:
        first = next((one for case in of_op if (one := diverges(op, case, device)) is not None), None)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Verdict(name=name, verdict=Outcome.CRASH, scenarios=count, reason=reason)
    missing = () if first else tuple(f"{name} >= 1" for name in lacking(op, of_op))
    outcome = Outcome.FAIL if first else Outcome.INCONCLUSIVE if missing or not of_op else Outcome.PASS
    return Verdict(name=name, verdict=outcome, scenarios=count, divergence=first, missing=missing)


def kernel_verdicts(calls: KernelCalls, device: str, processes: int | None = None) -> Iterator[Verdict]:
    """Yield the verdict of each op, in several `processes`: nearly all time on a GPU goes into compiling each call."""
    count = processes or (_ON_A_CPU if device == "cpu" else min(_MOST_PROCESSES, os.cpu_count() or 1))
    if count == 1 or len(calls) < 2:
        yield from (kernel_verdict(op, of_op, device) for op, of_op in calls.items())
        return
    # A fork starts at once, but would take a GPU along.
    how = "fork" if device == "cpu" else "spawn"
    with ProcessPoolExecutor(count, multiprocessing.get_context(how)) as pool:
        asked = [(op, of_op, pool.submit(kernel_verdict, op, of_op, device)) for op, of_op in calls.items()]
        yield from (_answered(*one) for one in asked)


def _answered(op: str, of_op: tuple[KernelCase, ...], asked: Future[Verdict]) -> Verdict:
    try:
        return asked.result()
    except BrokenProcessPool:
        reason = "a process that judged kernels ended, this one or another; expected an answer for every op"
        return Verdict(name=f"{KERNEL_PREFIX}{op}", verdict=Outcome.CRASH, scenarios=len(of_op), reason=reason)
