"""Whether the weights that both sides read matter: the reference's trace with one tensor perturbed (S-VAC-1).

Engine and reference read the same tensors of a probe. One that changes nothing of what is compared would hide every bug
in what is done with it, in the engine and in the reference alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.drafts import DFlash, Eagle, Eagle3, Mtp, Standalone, algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.script import Finish, Script
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.weights.probe import Weights, carry_layer, draft_weights, target_weights
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.run import Models, observe

FACTOR = np.uint64(3)
"""What a perturbed tensor is multiplied by, modulo 2^64: a tensor of zeros stays as it is, and is dead."""
LEAST_BITS = 16
"""Logits of fewer bits are too coarse to tell one unembedding from another by a few choices."""
LONGEST_PROMPT = 64
_TABLES = ("own.ids", "d2t")


class WeightTensor(NamedTuple):
    """A tensor of a probe's target or draft, by the name that properties/weights/probe.py gives it."""

    model: Literal["target", "draft"]
    name: str
    draft: str = ""

    @property
    def kind(self) -> str:
        """The name without numbers of layers, after the target's or the draft's: tensors of a kind are made alike."""
        plain = re.sub(r"\.\d+", "", self.name)
        return f"{self.draft or self.model} {plain}"


class _DifferenceError(DraftproofError):
    """The perturbed run said something else."""


def is_alive(scenario: Scenario, script: Script, reference: Trace, tensor: WeightTensor, finish: Finish) -> bool:
    """Return whether perturbing a tensor changes what the reference says of a solved script, on any channel."""
    return any(
        _changes(scenario, script, reference, {f"of_{tensor.model}": weights}, finish)
        for weights in _perturbed(scenario, tensor)
    )


def _changes(
    scenario: Scenario, script: Script, reference: Trace, perturbed: Mapping[str, Weights], finish: Finish
) -> bool:
    expected = iter(reference.observations)

    def compare(one: Observation) -> None:
        if one != next(expected, None):
            raise _DifferenceError

    memo = Memo()
    made = build(scenario, memo, **perturbed)
    try:
        observe(scenario, script, Models(*made, scenario.states, finish, memo), compare)
    except _DifferenceError:
        return True
    return False


def is_fine(scenario: Scenario) -> bool:
    """Return whether a scenario can show what every tensor does, and is soon run again (S-VAC-3)."""
    model = scenario.model
    if not isinstance(model, ProbeModel) or model.logit_bits < LEAST_BITS:
        return False
    if scenario.schedule.prefix_cache:
        # Its trace lacks rows of a run that is made again from the start.
        return False
    return max(len(request.prompt) for request in scenario.requests) <= LONGEST_PROMPT


def is_telling(scenario: Scenario, script: Script) -> bool:
    """Return whether a scenario shows what every tensor does, once it is solved."""
    rounds = (round_ for request in script.requests for round_ in request.rounds)
    # The weights of positions do nothing at position 0, where a context of one token has its only entry.
    return is_fine(scenario) and any(round_.drafts > 1 and round_.context > 1 for round_ in rounds)


def tensors(scenario: Scenario) -> tuple[WeightTensor, ...]:
    """Return the tensors of a probe scenario that are alive by definition, in an order of their own (S-VAC-2)."""
    dead = frozenset(_dead(scenario))
    name = algorithm(scenario.draft)
    of_target = (WeightTensor("target", tensor) for tensor in weights_of(scenario)["target"])
    of_draft = (WeightTensor("draft", tensor, name) for tensor in weights_of(scenario)["draft"])
    return tuple(tensor for tensor in (*of_target, *of_draft) if tensor[:2] not in dead)


def _dead(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield (model, name) of the tensors that nothing can depend on."""
    model, draft = scenario.model, scenario.draft
    assert isinstance(model, ProbeModel)
    for layer in range(model.layers if model.linear and not model.linear.start else 0):
        yield from (("target", f"layers.{layer}.start.{name}") for name in ("conv", "ssm"))
    if model.mrope and not isinstance(draft, Standalone):
        # It goes by no position.
        yield "draft", "carry.position"
    if model.mrope:
        # The first number of a value, which is the carry, goes by no position; where there is no other, none does.
        if model.kv_heads * model.value_dim == 1:
            yield "target", f"layers.{carry_layer(model)}.v.position"
        if isinstance(draft, DFlash | Standalone | Eagle3) and draft.kv_heads * draft.value_dim == 1:
            yield "draft", "layers.0.v.position"
    # A layer whose only query head is gated to zero for the carry.
    gated = [("target", carry_layer(model), model.heads)]
    if isinstance(draft, DFlash | Standalone | Eagle3):
        gated.append(("draft", 0, draft.heads))
    names = ("q.weight", "q.position", "q.gate")
    yield from ((of, f"layers.{layer}.{name}") for of, layer, heads in gated if heads == 1 for name in names)
    if isinstance(draft, DFlash) and draft.heads == 1:
        # Of its keys those of the context are compared, and no others count.
        yield "draft", "layers.0.k.weight"
    if isinstance(draft, Eagle | Mtp):
        # What it has of its own replaces the target's.
        yield from [("draft", "embed")] * draft.own_embedding + [("draft", "unembed")] * draft.own_head


def _perturbed(scenario: Scenario, tensor: WeightTensor) -> Iterator[Weights]:
    """Yield the weights of the model that a tensor is of, with another one in its place.

    A table of ids leads to its first token from everywhere, then to its last: nothing proposes only either.
    """
    weights = weights_of(scenario)[tensor.model]
    old = weights[tensor.name]
    if tensor.name not in _TABLES:
        yield {**weights, tensor.name: old * FACTOR}
        return
    offset = np.arange(len(old), dtype=np.uint64) if tensor.name == "d2t" else np.zeros(len(old), np.uint64)
    for place in (0, -1):
        yield {**weights, tensor.name: (old + offset)[place] - offset}


def weights_of(scenario: Scenario) -> Mapping[str, Weights]:
    """Return the weights of a probe scenario, by model."""
    assert isinstance(scenario.model, ProbeModel)
    return {"target": target_weights(scenario.model), "draft": draft_weights(scenario.draft, scenario.model)}  # type: ignore[arg-type]
