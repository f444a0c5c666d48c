"""From a scenario's specifications to the engine's models and configuration."""

from __future__ import annotations

import random
from functools import lru_cache

import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.models.base import Head, Target
from draftproof.engine.models.probe import ProbeHead as EngineProbeHead
from draftproof.engine.models.probe import ProbeShape, ProbeTarget
from draftproof.engine.stages import GenerationRequest
from draftproof.properties.values.probe import head_weights, target_weights
from draftproof.properties.values.scenario import Checkpoint, CheckpointHead, ProbeHead, ProbeModel, Scenario
from draftproof.properties.values.script import Script


def models(scenario: Scenario, device: torch.device) -> tuple[Target, Head]:
    """The target and head that a scenario names."""
    if isinstance(scenario.model, Checkpoint):
        assert isinstance(scenario.head, CheckpointHead)
        return _checkpoint(scenario.model, scenario.head, device)
    assert isinstance(scenario.head, ProbeHead)
    return _probe(scenario.model, scenario.head, device)


@lru_cache(maxsize=32)
def _probe(model: ProbeModel, head: ProbeHead, device: torch.device) -> tuple[Target, Head]:
    def tensors(weights: dict) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array.view("int64").copy()).to(device) for name, array in weights.items()}

    def shape(spec: ProbeModel | ProbeHead, layers: int) -> ProbeShape:
        return ProbeShape(layers, spec.heads, spec.kv_heads, spec.key_dim, spec.value_dim)

    target = ProbeTarget(tensors(target_weights(model)), shape(model, model.layers), model.logit_bits, model.agreement)
    return target, EngineProbeHead(tensors(head_weights(head, model)), shape(head, 1), model.logit_bits)


@lru_cache(maxsize=1)
def _checkpoint(model: Checkpoint, head: CheckpointHead, device: torch.device) -> tuple[Target, Head]:
    from draftproof.engine.subject.checkpoints import load

    return load(model, head, device)


def config(scenario: Scenario) -> EngineConfig:
    memory, schedule = scenario.memory, scenario.schedule
    order = list(range(1, memory.pages + 1))
    if memory.page_seed:
        random.Random(memory.page_seed).shuffle(order)
    return EngineConfig(
        steps=scenario.steps,
        page_size=memory.page_size,
        pages=memory.pages,
        request_slots=memory.request_slots,
        max_len=memory.max_len,
        max_batch=schedule.max_batch,
        chunk=schedule.chunk,
        sizes=scenario.graphs.sizes,
        capture=scenario.graphs.capture,
        row_seed=schedule.row_seed,
        page_order=tuple(order),
    )


def requests(scenario: Scenario, script: Script) -> list[GenerationRequest]:
    """The scenario's requests in order of arrival, with stop tokens as the script resolved them."""
    made = [
        GenerationRequest(
            id=number,
            arrival=request.arrival,
            prompt=request.prompt,
            budget=request.budget,
            stop=frozenset(script.requests[number].stop),
            drafts=tuple(wish.drafts for wish in request.rounds),
        )
        for number, request in enumerate(scenario.requests)
    ]
    return sorted(made, key=lambda request: (request.arrival, request.id))
