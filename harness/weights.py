"""The guard over what both sides read: no weight tensor of a probe is without effect (S-VAC-1)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.limits import finish_of
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.reference.vacuity import WeightTensor, is_alive, is_telling, tensors

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
    """Perturbs some tensors of every scenario that shows what tensors do, of the kinds that had the fewest turns.

    A seed decides between equals.
    """

    def __init__(self, subject: Subject, seed: int) -> None:
        self._subject, self._seed = subject, seed
        self.turns = WeightTurns()

    def perturb(self, number: int, ran: Evidence) -> None:
        """Run the reference again on scenario `number`, once for each tensor."""
        if not is_telling(ran.scenario, ran.script):
            return
        self.turns.scenarios += 1
        finish, of_seed = finish_of(ran.scenario, self._subject.limits), random.Random(f"{self._seed} weights {number}")
        reference = ran.beside.whole if ran.beside else ran.reference
        left = of_seed.sample(every := tensors(ran.scenario), len(every))
        for _ in range(min(EACH, len(left))):
            left.remove(tensor := min(left, key=lambda one: self.turns.tried[one.kind]))
            self.turns.tried[tensor.kind] += 1
            if not is_alive(ran.scenario, ran.script, reference, tensor, finish):
                self.turns.dead.append(self._sentence(number, ran, tensor))

    def _sentence(self, number: int, ran: Evidence, tensor: WeightTensor) -> str:
        return (
            f"{tensor.name} of the {tensor.model} has no effect in scenario {number} of seed {self._seed} (draft "
            f"{algorithm(ran.scenario.draft)}): perturbed, it changes nothing that is compared, so neither side can be "
            "wrong about it. Mend its values in properties/weights/probe.py, or compare what depends on it; if nothing "
            "can, list it with the reason (S-VAC-2)"
        )
