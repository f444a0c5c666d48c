"""From a scenario's specifications to the engine's models and configuration."""

from __future__ import annotations

import random
from functools import lru_cache

import torch

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.config import EngineConfig
from draftproof.engine.models.config_fields import fingerprint
from draftproof.engine.models.probe import LinearShape, ProbeShape, ProbeTarget
from draftproof.engine.models.probe import ProbeHead as EngineProbeHead
from draftproof.engine.stages import GenerationRequest
from draftproof.engine.subject.pair import Pair
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.probe import head_weights, target_weights
from draftproof.properties.values.scenario import Checkpoint, Linear, ProbeModel, Scenario
from draftproof.properties.values.script import Script


def models(scenario: Scenario, device: torch.device) -> Pair:
    """Build what a scenario names; scenarios of the same models share them."""
    if isinstance(scenario.model, Checkpoint):
        assert isinstance(scenario.draft, CheckpointDraft)
        return _checkpoint(scenario.model, scenario.draft, device)
    assert isinstance(scenario.draft, ProbeHead)
    return _probe(scenario.model, scenario.draft, device)


@lru_cache(maxsize=32)
def _probe(model: ProbeModel, head: ProbeHead, device: torch.device) -> Pair:
    def tensors(weights: dict) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array.view("int64").copy()).to(device) for name, array in weights.items()}

    def shape(spec: ProbeModel | ProbeHead) -> ProbeShape:
        return ProbeShape(spec.heads, spec.kv_heads, spec.key_dim, spec.value_dim)

    shared = {
        "num_hidden_layers": model.layers,
        "layer_types": list(model.types),
        "vocab_size": model.vocab,
        "rope_parameters": {"rope_type": "default"},
    }
    seen = [fingerprint(shared)]
    weights = tensors(target_weights(model))
    target = ProbeTarget(weights, shared, shape(model), _linear(model.linear), model.logit_bits, model.agreement)
    seen.append(fingerprint(shared))
    built = EngineProbeHead(tensors(head_weights(head, model)), shared, shape(head), model.logit_bits)
    seen.append(fingerprint(shared))
    return Pair(target, built, shared, tuple(seen))


def _linear(sizes: Linear | None) -> LinearShape | None:
    if sizes is None:
        return None
    return LinearShape(sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim, sizes.conv)


@lru_cache(maxsize=1)
def _checkpoint(model: Checkpoint, head: CheckpointDraft, device: torch.device) -> Pair:
    from draftproof.engine.subject.checkpoints import load

    return load(model, head, device)


def config(scenario: Scenario) -> EngineConfig:
    memory, schedule = scenario.memory, scenario.schedule
    order = list(range(1, memory.pages + 1))
    states = list(range(1, memory.request_slots + 1))
    if memory.page_seed:
        random.Random(memory.page_seed).shuffle(order)
        random.Random(-memory.page_seed).shuffle(states)
    return EngineConfig(
        steps=scenario.adaptive.initial if scenario.adaptive else scenario.steps,
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
        state_order=tuple(states),
        adaptive=_adaptive(scenario),
        draft_batch=schedule.draft_batch,
        commit=scenario.states.commit,
        checkpoint=scenario.states.checkpoint,
    )


def _adaptive(scenario: Scenario) -> AdaptiveConfig | None:
    given = scenario.adaptive
    if given is None:
        return None
    return AdaptiveConfig(
        initial=given.initial,
        candidates=given.candidates,
        alpha=given.alpha,
        interval=given.interval,
        warmup=given.warmup,
        down=given.down,
        up=given.up,
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
