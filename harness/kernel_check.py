"""Verdicts on the built-in kernels, whose calls run in workers; as a program it is such a worker.

That is `python -P -m draftproof.harness.kernel_check FOLDER INDEX`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path

import torch

from draftproof.harness.kernel_runs import CALL_DEADLINE, KernelCalls, answer_kernel, cases
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, AnyOrder, KernelOrder, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.harness.workers.start import fork, spawning
from draftproof.harness.workers.worker import main
from draftproof.properties.kernels.blocks import lacking
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.listed import enough
from draftproof.properties.kernels.table import KERNEL_PREFIX
from draftproof.properties.values.verdict import Outcome, Verdict

_MOST_PROCESSES, _ON_A_CPU = 8, 2
"""Processes that judge kernels on a GPU, at most, and on a CPU."""


class _Calls:
    """Calls of kernels in a worker, which has them or makes them anew."""

    def __init__(self, spec: SubjectSpec, journal: Journal, _: Path, calls: KernelCalls | None = None) -> None:
        torch.set_num_threads(1)
        self._device, self._journal = spec.device, journal
        self._listed = cache(lambda op, seed: calls[op] if calls else cases(op, seed, enough(op, seed)))

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
    # A fork starts at once and has the calls, but would take a GPU along.
    start = fork(partial(main, make=partial(_Calls, calls=calls))) if device == "cpu" else spawning(__name__)
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
