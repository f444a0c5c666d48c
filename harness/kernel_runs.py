"""Kernels against their naive twins: generated cases, and what the contract of an op says of an implementation."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import islice

from draftproof.harness.signals import TimeLimitError, time_limit
from draftproof.harness.workers.messages import Answer, KernelOrder
from draftproof.properties.choose import require_seeded
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.contract import Difference, check
from draftproof.properties.kernels.listed import calls, enough
from draftproof.properties.kernels.others.cases import require_op
from draftproof.properties.kernels.table import KERNEL_PREFIX
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.relations import InMemory
from draftproof.properties.values.verdict import Divergence, Outcome
from draftproof.reference import ops

Kernels = Callable[[str], Callable[..., None]]
KernelCalls = dict[str, tuple[KernelCase, ...]]
"""op -> the calls that it is held to its contract with"""
CALL_DEADLINE = 120.0
"""Seconds for one call of a kernel; on a GPU it may have to be compiled first."""


class KernelHangError(DraftproofError, TimeoutError):
    """A call of a kernel did not end in time; the message names its op."""


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
    """Return the first difference between an implementation and the twin.

    Raises InputError for an op that is none, and KernelHangError in the main thread, after CALL_DEADLINE, as soon as a
    kernel comes back to Python; one that never does is ended by `draftproof lab kernels check`.
    """
    require_op(op)
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
