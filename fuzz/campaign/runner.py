"""Orders of a campaign in the hands of its workers."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.lib.errors import DraftproofError

_POLL = 0.2


class Workers(Protocol):
    """What a campaign needs of a pool."""

    def submit(self, order: Order) -> None: ...
    def poll(self, timeout: float) -> list[Answer]: ...
    @property
    def free(self) -> int: ...
    @property
    def replaced(self) -> int: ...
    @property
    def deadline(self) -> float: ...


class StoppedError(DraftproofError):
    """The campaign was asked to end now."""


class _Errand(NamedTuple):
    order: Order
    take: Callable[[Order, Answer], None]


class Runner:
    """Hands out orders, and each answer to the function that was given with its order.

    No two orders that are out at one time have the same number. `stopped` is why nothing more is to be run: errors,
    workers or interrupted; "" while the campaign goes on. `tick` is called after each look at the workers, `trouble`
    told of workers that do not start.
    """

    def __init__(self, pool: Workers, tick: Callable[[], None], trouble: Callable[[str], None]) -> None:
        self._pool, self._tick, self._trouble = pool, tick, trouble
        self._backlog: deque[_Errand] = deque()
        self._running: dict[int, _Errand] = {}
        self.stopped = ""

    def add(self, order: Order, take: Callable[[Order, Answer], None], *, next_: bool = False) -> None:
        """Queue an order, in front of all others with `next_`."""
        (self._backlog.appendleft if next_ else self._backlog.append)(_Errand(order, take))

    def interrupt(self, number: int, _frame: object) -> None:
        """Handle a signal: end the campaign at its next step. Ctrl-C once it is to end raises KeyboardInterrupt."""
        if self.stopped and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stopped = self.stopped or "interrupted"

    @property
    def is_busy(self) -> bool:
        return bool(self._backlog or self._running)

    def clear(self) -> None:
        """Forget the orders that are not handed out."""
        self._backlog.clear()

    def fill(self) -> None:
        """Hand out what the workers can take."""
        while self._backlog and self._pool.free > 0:
            errand = self._backlog.popleft()
            self._running[errand.order.number] = errand
            self._pool.submit(errand.order)

    def listen(self) -> None:
        """Wait a moment for answers, and pass them on."""
        self.fill()
        answers = self._poll()
        self.fill()
        for answer in answers:
            errand = self._running.pop(answer.number)
            errand.take(errand.order, answer)
        self._tick()

    def _poll(self) -> list[Answer]:
        try:
            return self._pool.poll(_POLL)
        except RuntimeError as error:
            # No worker starts any more: what is known is kept, and the reason is told.
            self.stopped = "workers"
            self._trouble(str(error))
            return []

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        """Return the answers to orders, while nothing else is out. Raises StoppedError if the campaign is to end."""
        answers: dict[int, Answer] = {}
        for order in orders:
            self.add(order, lambda order, answer: answers.update({order.number: answer}))
        while len(answers) < len(orders):
            if self.stopped:
                self.clear()
                raise StoppedError
            self.listen()
        return [answers[order.number] for order in orders]
