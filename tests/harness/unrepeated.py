"""A subject that does not do the same twice, in the way that its setting says; it needs numpy and msgspec only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace

TEXT, DRAFTS, CHANNEL = "accept.emitted", "propose.tokens", "draft.step.positions"


def _value(seen: list[Observation], channel: str, key: Key, value: Datum) -> list[Observation]:
    return [one._replace(value=value) if one[:2] == (channel, key) else one for one in seen]


def _raise(_seen: list[Observation]) -> list[Observation]:
    raise RuntimeError("out of memory at 0x7f00")


CHANGES: dict[str, Callable[[list[Observation]], list[Observation]]] = {
    "nothing": lambda seen: seen,
    "a value": lambda seen: _value(seen, CHANNEL, Key(1, 2, 2), 99),
    "two values": lambda seen: _value(_value(seen, TEXT, Key(0, 3), (9,)), DRAFTS, Key(1, 2), (3, 4)),
    "one less": lambda seen: [one for one in seen if one[:2] != (CHANNEL, Key(0, 3, 1))],
    "order": lambda seen: [seen[0], seen[2], seen[1], *seen[3:]],
    "error": _raise,
}


class Unrepeated(Subject):
    """Reports a made-up run, and from its second run on what `what` makes of it.

    With `when` "in another process" it does so from the first run on in every process but the one that it was made
    in first, whose number is in the file `marker`.
    """

    name = "unrepeated"
    limits = Limits(models=("probe",), arrivals="serial", steering="none", persistent=False)

    def __init__(self, what: str = "nothing", when: str = "again", marker: str = "") -> None:
        self._change, self._elsewhere = CHANGES[what], False
        self._runs: Iterator[int] = count()
        if when == "in another process":
            with open(marker, "a+", encoding="utf-8") as file:
                file.seek(0)
                self._elsewhere = bool(before := file.read()) and before != str(os.getpid())
                file.write("" if before else str(os.getpid()))
            self._runs = count() if self._elsewhere else iter([0] * 1000)

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({TEXT, DRAFTS, CHANNEL})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        seen = []
        for request in range(2):
            for number in range(4):
                seen.append(Observation(TEXT, Key(request, number), (number,)))
                if number:
                    seen.append(Observation(DRAFTS, Key(request, number), (1, 2)))
                    seen += [Observation(CHANNEL, Key(request, number, step), step) for step in (1, 2)]
        if next(self._runs) or self._elsewhere:
            seen = self._change(seen)
        return Trace(self.name, self.channels(scenario), tuple(seen))


class Raising(Unrepeated):
    """Raises the same in every run: of each scenario, or with `what` "a half" of every second one."""

    def __init__(self, what: str = "no run at all") -> None:
        super().__init__()
        self._every = 2 if what == "a half" else 1

    def run(self, scenario: Scenario, script: Script) -> Trace:
        if next(self._runs) % self._every == 0:
            raise RuntimeError("no kernel for this size")
        self._runs, kept = iter([0]), self._runs
        trace = super().run(scenario, script)
        self._runs = kept
        return trace
