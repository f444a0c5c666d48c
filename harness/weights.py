"""The guard over what both sides read: no weight tensor of a probe is without effect (S-VAC-1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.limits import finish_of
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.reference.vacuity import WeightTensor, is_alive, is_fine, is_telling, tensors

WEIGHTS_CONTRACT = "oracle.weights"
EACH = 4
"""Tensors that are perturbed in a scenario."""


@dataclass
class WeightTurns:
    """How often each kind of tensor was perturbed, in how many scenarios, and a sentence for each without effect."""

    tried: Counter[str] = field(default_factory=Counter)
    scenarios: int = 0
    dead: list[str] = field(default_factory=list)

    def __add__(self, other: WeightTurns) -> WeightTurns:
        return WeightTurns(self.tried + other.tried, self.scenarios + other.scenarios, self.dead + other.dead)

    def verdict(self) -> Verdict:
        """Return ERROR for a dead tensor, which is a mistake of ours, and INCONCLUSIVE if none had its turn."""
        if self.dead:
            reason = f"{len(self.dead)} of {self.tried.total()} weight tensors are dead; the first: {self.dead[0]}"
            return Verdict(name=WEIGHTS_CONTRACT, verdict=Outcome.ERROR, scenarios=self.scenarios, reason=reason)
        missing = () if self.tried else ("weights perturbed >= 1",)
        outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
        return Verdict(name=WEIGHTS_CONTRACT, verdict=outcome, scenarios=self.scenarios, missing=missing)


class WeightGuard:
    """Perturbs some tensors of every scenario that shows what tensors do.

    Which ones is settled for the whole list: of each scenario those of the kinds that had the fewest turns before it; a
    seed decides between equals.
    """

    def __init__(self, subject: Subject, seed: int, scenarios: Sequence[Scenario]) -> None:
        self._subject, self._seed = subject, seed
        self._turns: dict[int, tuple[WeightTensor, ...]] = {}
        given = Counter[str]()
        for number, scenario in enumerate(scenarios):
            if is_fine(scenario):
                left = random.Random(f"{seed} weights {number}").sample(every := tensors(scenario), len(every))
                self._turns[number] = tuple(_next_turns(left, given))

    def perturb(self, number: int, ran: Evidence) -> WeightTurns:
        """Run the reference again on scenario `number`, once for each tensor that has its turn."""
        turns = WeightTurns()
        if number not in self._turns or not is_telling(ran.scenario, ran.script):
            return turns
        turns.scenarios += 1
        finish = finish_of(ran.scenario, self._subject.limits)
        reference = ran.beside.whole if ran.beside else ran.reference
        for tensor in self._turns[number]:
            turns.tried[tensor.kind] += 1
            if not is_alive(ran.scenario, ran.script, reference, tensor, finish):
                turns.dead.append(self._sentence(number, ran, tensor))
        return turns

    def _sentence(self, number: int, ran: Evidence, tensor: WeightTensor) -> str:
        return (
            f"{tensor.name} of the {tensor.model} has no effect in scenario {number} of seed {self._seed} (draft "
            f"{algorithm(ran.scenario.draft)}): perturbed, it changes nothing that is compared, so neither side can be "
            "wrong about it. Mend its values in properties/weights/probe.py, or compare what depends on it; if nothing "
            "can, list it with the reason (S-VAC-2)"
        )


def _next_turns(left: list[WeightTensor], given: Counter[str]) -> Iterator[WeightTensor]:
    """Take the next tensors of a scenario, and count their turns."""
    for _ in range(min(EACH, len(left))):
        left.remove(tensor := min(left, key=lambda one: given[one.kind]))
        given[tensor.kind] += 1
        yield tensor
