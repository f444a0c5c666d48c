"""Stand-ins for what a campaign works with: workers without processes, and a plan of one list."""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from draftproof.harness.workers.messages import Answer, Order, Place
from draftproof.properties.validate import validate
from draftproof.properties.values.relations import OffBy, Relation
from draftproof.properties.values.scenario import Scenario, Variant
from draftproof.properties.values.verdict import Divergence, Outcome
from tests.named import named

BLOCK = 8
SCENARIOS = ("five_in_graphs", "eagle_padded", "mixed_eagle", "ends", "five_in_graphs")
VARIED: tuple[Variant, ...] = ("none", "other_memory", "other_batches")
PAGES = (1, 2, 4, 5, 6)
"""Bugs of these tests need a page size of 3, which is what they are shrunk to."""
POSSIBLE = tuple(f"draft: draft={name}" for name in ("eagle", "mtp")) + tuple(
    f"page size x batch: page={page}, batch={batch}" for page in range(1, 7) for batch in range(1, 5)
)


class Planned(NamedTuple):
    scenario: Scenario
    origin: str


@lru_cache
def drawn(seed: int) -> tuple[Scenario, ...]:
    """Return 40 scenarios with other pages, batches and variants."""
    rng = random.Random(seed)
    made = []
    for place in range(40):
        one = named(SCENARIOS[place % len(SCENARIOS)])
        slots = len(one.requests)
        memory = msgspec.structs.replace(one.memory, page_size=rng.choice(PAGES), pages=99, request_slots=slots)
        schedule = msgspec.structs.replace(one.schedule, max_batch=rng.randint(1, min(slots, 4)))
        variant = VARIED[place % len(VARIED)]
        made.append(validate(msgspec.structs.replace(one, memory=memory, schedule=schedule, variant=variant)))
    return tuple(made)


class Plain:
    """Blocks of what is drawn, whatever was seen, no two alike; tells what it was asked with."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.asked: list[int] = []

    def block(self, number: int) -> list[Planned]:
        self.asked.append(number)
        return [self._planned(number * BLOCK + place) for place in range(BLOCK)]

    def _planned(self, number: int) -> Planned:
        made = drawn(self._seed)
        scenario = made[number % len(made)]
        memory = msgspec.structs.replace(scenario.memory, page_seed=number)
        return Planned(msgspec.structs.replace(scenario, memory=memory), f"shape {number % len(made)}")


def covering(scenario: Scenario) -> tuple[str, ...]:
    """Bins that need no run."""
    page, batch = scenario.memory.page_size, scenario.schedule.max_batch
    name = scenario.draft.__struct_config__.tag
    return tuple(
        bin for bin in (f"draft: draft={name}", f"page size x batch: page={page}, batch={batch}") if bin in POSSIBLE
    )


def passing(order: Order) -> Answer:
    """What a healthy subject says."""
    return Answer(
        number=order.number,
        outcome=Outcome.PASS,
        judged=("draft.positions", "verify.positions"),
        counts={"scenarios": 1, "rounds": 2},
        bins=covering(order.scenario),
        seconds=0.01,
        digest="d" if order.digest else "",
    )


ONE_AHEAD = OffBy(1)


def diverging(contract: str = "draft.positions", relation: Relation = ONE_AHEAD, *, got: int = 4) -> Divergence:
    """A position of a draft's first step that is one too high."""
    return Divergence(
        contract=contract,
        channel="draft.step.positions",
        phase="draft",
        request=0,
        round=1,
        step=1,
        layer=-1,
        row=-1,
        index=-1,
        expected=str(got - 1),
        got=str(got),
        relation=relation,
    )


def failing(order: Order, contract: str = "draft.positions", relation: Relation = ONE_AHEAD) -> Answer:
    """What a subject with one bug says."""
    first = diverging(contract, relation)
    return msgspec.structs.replace(passing(order), outcome=Outcome.FAIL, failures={contract: first}, first=first)


def crashing(order: Order, outcome: Outcome = Outcome.CRASH) -> Answer:
    return Answer(
        number=order.number,
        outcome=outcome,
        place=Place(run="base", step=3, launch="verify"),
        error="IndexError" if outcome is Outcome.CRASH else "",
        detail="Traceback\nIndexError: page 9 is out of range",
    )


class Pool:
    """Workers that answer at once, the last order first: answers come in any order."""

    def __init__(self, answer: Callable[[Order], Answer] = passing, width: int = 3) -> None:
        self._answer, self._width = answer, width
        self._orders: list[Order] = []
        self.given: list[Order] = []
        self.replaced = 0
        self.deadline = 1.0

    def submit(self, order: Order) -> None:
        self._orders.append(order)
        self.given.append(order)

    @property
    def free(self) -> int:
        return self._width - len(self._orders)

    def poll(self, timeout: float) -> list[Answer]:
        orders, self._orders = self._orders[::-1], []
        return [self._answer(order) for order in orders]
