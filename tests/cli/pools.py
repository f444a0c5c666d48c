"""A pool without processes, whose answers a test gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.properties.values.verdict import Outcome
from tests.harness.doubles import diverging

Answering = Callable[[Order], Answer]
FIRST = diverging(got=6)
FAILS = Answer(number=0, outcome=Outcome.FAIL, first=FIRST)
GONE = Answer(number=0, outcome=Outcome.PASS)


def found_with(fault: str, case: Path) -> None:
    """Have the case file of a scenario say that a campaign with a fault found it."""
    origin = f"draftproof fuzz --seed 0 --device cpu --fault {fault}, scenario 3: draft.positions"
    case.write_text(json.dumps({"scenario": json.loads(case.read_text()), "origin": origin}))


def pool_of(answering: Answering) -> type:
    """A class to stand in for Pool. Pools of it that were left open are in `open`."""

    class Here:
        open: list[SubjectSpec] = []  # noqa: RUF012  # of the class, to be looked at by a test

        def __init__(self, spec: SubjectSpec, count: int, folder: Path, *, deadline: float | None = None) -> None:
            self._spec = spec

        def __enter__(self) -> Self:
            self.open.append(self._spec)
            return self

        def __exit__(self, *error: object) -> None:
            self.open.remove(self._spec)

        def run(self, orders: Sequence[Order]) -> list[Answer]:
            return [msgspec.structs.replace(answering(order), number=order.number) for order in orders]

    return Here
