"""From a scenario's specifications to the engine's models and configuration."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig, SlotConfig
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts import probe_model
from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.base import LinearSizes, Network, NgramSettings
from draftproof.engine.models.config_fields import fingerprint
from draftproof.engine.models.probe import NO_HEADS, ProbeParts, ProbeShape, ProbeTarget
from draftproof.engine.models.probe_shards import heads_of, shard
from draftproof.engine.penalty_params import PenaltyParams
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.sampling import SamplingParams
from draftproof.engine.stages import GenerationRequest, GrammarParams, ImageSpan, PromptLogprobParams
from draftproof.engine.subject.pair import Pair
from draftproof.engine.subject.reachable import RequestId
from draftproof.engine.tensor_ranks import TensorGroup
from draftproof.engine.tree import TreeConfig
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.drafts import CheckpointDraft, Draft, Ngram, ProbeDraft, algorithm
from draftproof.properties.values.grammar import end_token, token_texts
from draftproof.properties.values.handed import handed
from draftproof.properties.values.scenario import Checkpoint, Linear, ProbeModel, Request, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.weights.probe import draft_weights, target_weights


def models(scenario: Scenario, device: torch.device, group: Solo = SOLO) -> Pair:
    """Build what a scenario names, for one rank of a group; scenarios of the same models share them."""
    if isinstance(scenario.model, Checkpoint):
        assert isinstance(scenario.draft, CheckpointDraft | Ngram)
        return _checkpoint(scenario.model, scenario.draft, device)
    is_whole = isinstance(group, TensorGroup) and scenario.ranks.draft_tensor == 1
    return _probe(scenario.model, scenario.draft, device, group, SOLO if is_whole else group)


@lru_cache(maxsize=32)
def _probe(model: ProbeModel, draft: Draft, device: torch.device, group: Solo, of_draft: Solo) -> Pair:
    shared = {
        "num_hidden_layers": model.layers,
        "layer_types": list(model.types),
        "sliding_window": model.window,
        "vocab_size": model.vocab,
        "rope_parameters": {"rope_type": "default"},
        "draft": msgspec.structs.asdict(draft),
    }
    seen = [fingerprint(shared)]
    whole = _linear(model.linear)
    weights = shard(_tensors(target_weights(model), device), group, whole)
    sizes = heads_of(whole, group, "key_heads", "value_heads") if whole else None
    target = ProbeTarget(weights, shared, _shape(model, group), sizes, model.logit_bits, model.agreement, group)
    seen.append(fingerprint(shared))
    built = DraftModel(algorithm(draft), _draft(draft, model, shared, device, of_draft))
    seen.append(fingerprint(shared))
    return Pair(target, built, shared, tuple(seen))


def _draft(
    draft: Draft, model: ProbeModel, shared: dict[str, Any], device: torch.device, group: Solo
) -> Network | NgramSettings:
    """Return the model that the draft's algorithm runs. Raises ValueError for a draft of a real model."""
    if isinstance(draft, CheckpointDraft):
        raise ValueError("invalid draft.kind 'checkpoint': expected the draft of a probe, as the model is one")
    shape = _shape(draft, group) if not isinstance(draft, Ngram) and hasattr(draft, "heads") else NO_HEADS
    weights = shard(_tensors(draft_weights(draft, model), device), group)
    parts = ProbeParts(weights, shape, shared, model.logit_bits, group)
    return probe_model(algorithm(draft), parts)


def _tensors(weights: dict[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array.view("int64").copy()).to(device) for name, array in weights.items()}


def _shape(spec: ProbeModel | ProbeDraft, group: Solo) -> ProbeShape:
    shape = ProbeShape(spec.heads, spec.kv_heads, spec.key_dim, spec.value_dim, spec.kv_bits)
    return heads_of(shape, group, "heads", "kv_heads")


def _linear(sizes: Linear | None) -> LinearSizes | None:
    if sizes is None:
        return None
    return LinearSizes(sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim, sizes.conv)


@lru_cache(maxsize=1)
def _checkpoint(model: Checkpoint, draft: CheckpointDraft | Ngram, device: torch.device) -> Pair:
    from draftproof.engine.subject.checkpoints import load

    return load(model, draft, device)


def _adaptive(spec: Adaptive | AdaptiveByBatch) -> AdaptiveConfig | BatchAdaptiveConfig:
    fields = msgspec.structs.asdict(spec)
    if isinstance(spec, Adaptive):
        return AdaptiveConfig(**fields)
    slots = tuple(SlotConfig(**msgspec.structs.asdict(slot)) for slot in spec.slots)
    return BatchAdaptiveConfig(**{**fields, "slots": slots})


def prefill_config(scenario: Scenario) -> EngineConfig:
    """Return the configuration of an engine of the same sizes that runs prompts for another.

    It takes pages and state slots in the opposite order, so that a request has other numbers in both. A prefix cache is
    its own.
    """
    made = config(scenario)
    pages = made.page_order or tuple(range(1, made.pages + 1))
    states = made.state_order or tuple(range(1, made.request_slots + 1))
    return replace(
        made,
        prefill_only=True,
        preemption=False,
        sizes=(),
        token_sizes=scenario.graphs.tokens,
        page_order=pages[::-1],
        state_order=states[::-1],
        prefix_cache=scenario.schedule.prefix_cache,
        checkpoint_slots=scenario.memory.checkpoint_slots,
    )


def config(scenario: Scenario) -> EngineConfig:
    memory, schedule = scenario.memory, scenario.schedule
    keeps = schedule.prefix_cache and not schedule.disaggregation
    order, states = list[int](), list[int]()
    if memory.page_seed:
        # Else the engine takes them in its own order.
        order, states = list(range(1, memory.pages + 1)), list(range(1, memory.request_slots + 1))
        random.Random(memory.page_seed).shuffle(order)
        random.Random(-memory.page_seed).shuffle(states)
    return EngineConfig(
        steps=scenario.adaptive_steps.initial if scenario.adaptive_steps else scenario.steps,
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
        adaptive_steps=_adaptive(scenario.adaptive_steps) if scenario.adaptive_steps else None,
        draft_batch=schedule.draft_batch,
        preemption=schedule.preemption,
        prefix_cache=keeps,
        token_budget=schedule.token_budget,
        checkpoint_slots=memory.checkpoint_slots if keeps else 0,
        commit=scenario.states.commit,
        checkpoint=scenario.states.checkpoint,
        sampled=scenario.is_sampled,
        drafts_sampled=scenario.drafts_sampled,
        penalized=scenario.is_penalized,
        constrained=scenario.is_constrained or scenario.has_minimum,
        most_logprobs=scenario.most_logprobs,
        most_prompt_logprobs=scenario.most_prompt_logprobs,
        tree=TreeConfig(scenario.tree.topk, scenario.tree.nodes) if scenario.tree else None,
        eos=frozenset(scenario.eos),
        mrope=isinstance(scenario.model, ProbeModel) and scenario.model.mrope,
        mixed=schedule.mixed,
        token_sizes=() if schedule.disaggregation else scenario.graphs.tokens,
        overlap=schedule.overlap,
    )


def _penalties(request: Request) -> PenaltyParams | None:
    asked = request.penalties
    if asked is None:
        return None
    biases = tuple((one.token, one.amount) for one in asked.bias)
    return PenaltyParams(biases, asked.repetition, asked.frequency, asked.presence)


def _grammar(request: Request, vocab: int) -> GrammarParams | None:
    asked = request.grammar
    return GrammarParams(asked.pattern, token_texts(vocab), end_token(vocab)) if asked else None


def _prompt_logprobs(request: Request) -> PromptLogprobParams | None:
    asked = request.prompt_logprobs
    return PromptLogprobParams(asked.top, asked.start) if asked else None


def first_step_again(scenario: Scenario, steps: int) -> int:
    """Return in which step the requests come again when `steps` have run: delays of results are then as before."""
    period = len(scenario.schedule.overlap) or 1
    return -(-steps // period) * period


def requests(scenario: Scenario, script: Script, first_step: int = 0, first_id: int = 0) -> list[GenerationRequest]:
    """Return the scenario's requests in order of arrival, with stop tokens and sequences as the script resolved them.

    Arrivals and aborts count from engine step `first_step` on, requests from `first_id`.
    """
    made = [
        GenerationRequest(
            id=RequestId(first_id + number),
            arrival=first_step + request.arrival,
            prompt=request.prompt,
            budget=request.budget,
            stop=frozenset(script.requests[number].stop),
            num_drafts_wanted=tuple(plan.num_drafts for plan in request.rounds),
            sampling=SamplingParams(**msgspec.structs.asdict(request.sampling)) if request.sampling else None,
            penalties=_penalties(request),
            grammar=_grammar(request, scenario.model.vocab),
            logprobs=request.logprobs,
            abort_at=None if request.abort_at is None else first_step + request.abort_at,
            stop_sequences=script.requests[number].sequences,
            min_tokens=request.min_tokens,
            ignore_eos=request.ignore_eos,
            prompt_logprobs=_prompt_logprobs(request),
            images=tuple(ImageSpan(one.start, one.frames, one.height, one.width) for one in request.images),
        )
        for number, request in enumerate(handed(scenario, one) for one in scenario.requests)
    ]
    return sorted(made, key=lambda request: (request.arrival, request.id))
