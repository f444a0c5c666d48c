"""How workers end, and what that says of the order that they had in hand."""

from __future__ import annotations

from typing import NamedTuple

from draftproof.harness.workers.journal import JournalEntry
from draftproof.harness.workers.messages import Answer, AnyOrder, BoundOrder, Place
from draftproof.harness.workers.worker import BROKEN_DEVICE, OWN_ERROR
from draftproof.properties.values.verdict import Outcome

DEADLINE_PASSED, MEMORY, GARBLED = "deadline", "memory", "garbled answer"
BY_PARENT = (DEADLINE_PASSED, MEMORY, GARBLED)
"""Ends that the parent brings about."""
OUTSIDE = ("SIGKILL", "SIGTERM")
"""What comes from a person or from the kernel, and need not be the subject's doing."""
_OURS = ("order", "reference", "judge")


class WorkerEnd(NamedTuple):
    """`how` it ended ("SIGSEGV", "exit 70", or one of BY_PARENT), the journal's last entry, the end of the log.

    `ran`: how many orders it had answered before; `seconds`: how long it had the last one.
    """

    how: str
    entry: JournalEntry | None
    log: str
    ran: int
    seconds: float

    @property
    def is_begun(self) -> bool:
        """Return whether the worker got to its order at all: it does not if its device broke in the order before."""
        return self.entry is not None or self.how != f"exit {BROKEN_DEVICE}"

    def is_doubtful(self, order: AnyOrder) -> bool:
        """Return whether the order need not be what ended the worker: a second worker tells.

        A kernel may die of what another one wrote over in the same process.
        """
        of_before = self.ran > 0 and (self.how == MEMORY or isinstance(order, BoundOrder))
        return self.entry is None or self.how in OUTSIDE or of_before

    def verdict(self, order: AnyOrder, *, again: bool) -> Answer:
        """Return what the end means for an order; `again`: it was tried before, with a like end.

        A hang in our own code is an error of ours, not one of the subject.
        """
        place = self.entry.place if self.entry else Place(run="order")
        ours = self.how == f"exit {OWN_ERROR}" or (self.how == DEADLINE_PASSED and place.run in _OURS)
        outcome = Outcome.HANG if self.how == DEADLINE_PASSED else Outcome.CRASH
        second = "; the second worker to end on this order" if again else ""
        reason = f"{self.how} after {self.seconds:.1f} s, {place}{second}"
        return Answer(
            number=order.number,
            outcome=Outcome.ERROR if ours else outcome,
            place=place,
            error=self.how,
            reason=reason,
            detail=f"{reason}\n{self.log}".strip(),
            seconds=self.seconds,
        )
