"""Worker pools for bisection: each set of naive twins needs processes of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from draftproof.fuzz.bisect.search import Twins
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.scenario import Scenario

SLOWER = 10
"""How many times longer a scenario may take with naive twins."""
_TICK = 0.2


class TwinPools:
    """Worker pools by the set of kernels that naive twins replace: a process has its kernels for good.

    `count` workers run without twins, and one for each of the `count` sets of twins that were used last.
    """

    def __init__(self, spec: SubjectSpec, count: int, folder: Path) -> None:
        self._spec, self._count, self._folder = spec, count, folder
        self.plain = Pool(spec, count, folder / "plain")
        self._others: OrderedDict[Twins, Pool] = OrderedDict()
        self._made = 0

    def __enter__(self) -> TwinPools:
        self.plain.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (*self._others.values(), self.plain):
            pool.__exit__(None, None, None)

    def __call__(self, wanted: Sequence[tuple[Twins, Scenario]]) -> list[Answer]:
        answers: dict[int, Answer] = {}
        groups = list(dict.fromkeys(twins for twins, _ in wanted))
        for start in range(0, len(groups), self._count):
            some = {twins: self._of(twins) for twins in groups[start : start + self._count]}
            for number, (twins, scenario) in enumerate(wanted):
                if twins in some:
                    some[twins].submit(Order(number=number, scenario=scenario))
            while any(pool.busy for pool in some.values()):
                answers |= {answer.number: answer for pool in some.values() for answer in pool.poll(_TICK)}
        return [answers[number] for number in range(len(wanted))]

    @property
    def deadline(self) -> float:
        """Seconds that a scenario may take without twins."""
        return self.plain.deadline

    def _of(self, twins: Twins) -> Pool:
        if not twins:
            return self.plain
        if twins not in self._others:
            if len(self._others) == self._count:
                self._others.popitem(last=False)[1].__exit__(None, None, None)
            spec = msgspec.structs.replace(self._spec, twins=twins)
            self._made += 1
            pool = Pool(spec, 1, self._folder / str(self._made), deadline=SLOWER * self.deadline)
            self._others[twins] = pool.__enter__()
        self._others.move_to_end(twins)
        return self._others[twins]
