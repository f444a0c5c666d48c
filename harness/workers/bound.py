"""The process of a worker for a package's kernels: `python -P -m draftproof.harness.workers.bound FOLDER INDEX`."""

from __future__ import annotations

import sys
import time
import traceback
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, AnyOrder, BoundOrder, SubjectSpec
from draftproof.harness.workers.process import LONGEST_TAIL
from draftproof.harness.workers.worker import main
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.verdict import Divergence, Outcome

if TYPE_CHECKING:
    from draftproof.harness.bound_releases import ReleasedKernels

BOUND_MODULE = "draftproof.harness.workers.bound"
NOT_TAKEN, TAKEN, DONE = "left_out", "taken", "done"
"""What an answer counts: generated calls that the kernel does not take, those that it does, and those that passed."""


class _Kernels:
    """Kernels of one release, or of what is installed."""

    def __init__(self, spec: SubjectSpec, journal: Journal, _: Path) -> None:
        # Loaded now, since the time of an order is the kernel's.
        import torch

        from draftproof.harness import bound_kernels  # noqa: F401

        torch.set_num_threads(1)
        self._device, self._journal = spec.device, journal

    def answer(self, order: AnyOrder) -> Answer:
        """Run the calls and their twins. Never raises: what a kernel raises is a CRASH."""
        assert isinstance(order, BoundOrder), f"{type(order).__name__} is no order of this worker"
        began = time.perf_counter()
        self._journal.begin(order.number)
        counts = {TAKEN: 0, NOT_TAKEN: 0, DONE: 0}
        lacks: dict[str, str] = {}
        try:
            first = self._first(order, counts, lacks)
        except DraftproofError as error:
            return _said(order, Outcome.ERROR, error, counts)
        except Exception as error:
            return _said(order, Outcome.CRASH, error, counts)
        stubs = tuple(sorted(self._used()))
        held = counts[TAKEN] and not stubs
        outcome = Outcome.FAIL if first else Outcome.PASS if held else Outcome.INCONCLUSIVE
        return Answer(
            number=order.number,
            outcome=outcome,
            failures={first.contract: first} if first else {},
            first=first,
            counts=counts,
            stubs=stubs,
            lacks=lacks,
            seconds=round(time.perf_counter() - began, 6),
        )

    def _first(self, order: BoundOrder, counts: dict[str, int], lacks: dict[str, str]) -> Divergence | None:
        from draftproof.harness.bound_kernels import cases, found, judged

        (binding,) = found(order.implementation, order.op or None)
        # Before the kernel is imported: what a release imports makes Hypothesis slow.
        taken, counts[NOT_TAKEN] = cases(binding, order.seed, order.count)
        counts[TAKEN] = len(taken)
        self._journal.enter("import")
        kernel = self._releases.kernel(binding, order.wheel, order.fault)
        lacks.update(self._releases.lacks(kernel, order.wheel))
        self._used().clear()
        for place, case in enumerate(taken):
            self._journal.announce(place, "kernel")
            if first := judged(binding, kernel, case, self._device):
                return first
            counts[DONE] += 1
        return None

    @staticmethod
    def _used() -> set[str]:
        from draftproof.subjects.wheels.stubs import USED

        return USED

    @cached_property
    def _releases(self) -> ReleasedKernels:
        from draftproof.harness.bound_releases import ReleasedKernels
        from draftproof.harness.interpreter import untuned

        untuned()
        return ReleasedKernels()


def _said(order: BoundOrder, outcome: Outcome, error: Exception, counts: dict[str, int]) -> Answer:
    kind, told = type(error).__name__, "".join(traceback.format_exception(error))
    reason = str(error) if outcome is Outcome.ERROR else f"{kind}: {error}"
    return Answer(
        number=order.number,
        outcome=outcome,
        counts=counts,
        error=kind,
        message=str(error),
        reason=reason,
        detail=told[-LONGEST_TAIL:],
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), make=_Kernels))
