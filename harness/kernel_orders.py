"""Hold one call of a kernel to its contract, as an order of a worker."""

from __future__ import annotations

import time

from draftproof.harness.kernel_runs import diverges
from draftproof.harness.workers.messages import Answer, KernelOrder
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.values.verdict import Outcome


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
    message = f"{order.op}: {type(error).__name__}: {error}"
    kind = type(error).__name__
    return Answer(
        number=order.number, outcome=Outcome.CRASH, error=kind, message=message, reason=message, seconds=seconds
    )
