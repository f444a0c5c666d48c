"""`model.generate` with candidates, one request after another, as a subject."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel
from transformers.generation import candidate_generator as generators
from transformers.utils import logging

from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.drafts import Algorithm, CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import RequestScript, Script
from draftproof.properties.values.subject import Hook, Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.subjects.transformers import hooks
from draftproof.subjects.transformers.steered import RoundSeen, SteeredRequest
from draftproof.subjects.transformers.taps import TargetTaps, entries_of

_CLASSES: dict[Algorithm, str] = {
    "ngram": "PromptLookupCandidateGenerator",
    "standalone": "AssistedCandidateGenerator",
    "mtp": "MTPCandidateGenerator",
    "dflash": "DFlashTokenCandidateGenerator",
}
_ROUND = ("accept.emitted", "commit.length")
_DECODE = ("propose.tokens", "accept.correct_len", "accept.index", "accept.bonus", "verify.ids", "verify.choice")
_STEPS = ("draft.step.ids", "draft.step.positions", "draft.step.proposal")


class TransformersSubject(Subject):
    """Assisted generation of the installed release: prompt lookup, assistant model, MTP, DFlash; each can be forced."""

    name = "transformers"
    packages = ("transformers", "torch", "safetensors", "tokenizers")

    def __init__(self) -> None:
        torch.set_num_threads(1)
        logging.disable_progress_bar()
        drafts = tuple(name for name, kind in _CLASSES.items() if hasattr(generators, kind))
        self.limits = Limits(
            models=("checkpoint",),
            drafts=drafts,
            arrivals="serial",
            unchained=False,
            matches=("earliest",),
            variants=(),
        )

    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return what can be seen of a run with this model and this draft."""
        model = _target(scenario)
        names = {*_ROUND, *_DECODE, *TargetTaps.of(model)}
        if algorithm(scenario.draft) == "standalone":
            names |= {*_STEPS}
        if entries_of(model):
            names |= {"commit.kv"}
        return frozenset(names) - hooks.lost(self.hooks())

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Generate for each request in turn, and report its rounds."""
        seen = list[Observation]()
        for number, steered in enumerate(script.requests):
            for round_, one in enumerate(_decoded(scenario, number, steered)):
                seen += _observed(number, round_, one)
        channels = self.channels(scenario)
        return Trace(self.name, channels, tuple(one for one in seen if one.channel in channels))

    def hooks(self) -> tuple[Hook, ...]:
        """Return the classes, methods and modules that it looks for in the installed release."""
        return hooks.found(_CLASSES, (*_ROUND, *_DECODE, *_STEPS))


def _decoded(scenario: Scenario, number: int, script: RequestScript) -> list[RoundSeen]:
    """Return rounds 0, 1, ... of one request."""
    model: Any = _target(scenario)
    request = scenario.requests[number]
    steered = SteeredRequest(scenario, request, script, model)
    prompt = torch.tensor([request.prompt])
    steered.attach()
    try:
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=min(request.budget, scenario.memory.max_len - len(request.prompt)),
            # None would be the token that the checkpoint itself names.
            eos_token_id=list(script.stop) or [model.config.get_text_config().vocab_size],
            pad_token_id=0,
            **_proposing(scenario),
        )
    finally:
        steered.detach()
    return steered.rounds


def _proposing(scenario: Scenario) -> dict[str, object]:
    """Return the arguments of `generate` that choose what proposes."""
    draft = scenario.draft
    if isinstance(draft, Ngram):
        return {"prompt_lookup_num_tokens": scenario.steps, "max_matching_ngram_size": draft.max_n}
    if not isinstance(draft, CheckpointDraft):
        raise InvalidScenarioError(f"invalid draft {draft!r}: expected one of a checkpoint")
    if draft.algorithm == "mtp":
        return {"use_mtp": True}
    model = _assistant(draft.path, _dtype(scenario), draft.algorithm == "dflash")
    return {"assistant_model": model, **({"speculation_type": "dflash"} if draft.algorithm == "dflash" else {})}


def _observed(request: int, round_: int, seen: RoundSeen) -> Iterator[Observation]:
    key = Key(request, round_)
    yield Observation("accept.emitted", key, seen.emitted)
    yield Observation("commit.length", key, seen.length)
    for (layer, position), entry in seen.entries.items():
        yield Observation("commit.kv", key._replace(layer=layer, row=position), entry)
    if not round_:
        yield Observation("verify.choice", key._replace(row=0), seen.choices[-1])
        return
    correct = seen.correct_len
    yield Observation("propose.tokens", key, seen.proposed)
    yield Observation("accept.correct_len", key, correct)
    yield Observation("accept.index", key, tuple(range(correct + 1)))
    yield Observation("accept.bonus", key, seen.choices[correct][0])
    for row, choice in enumerate(seen.choices):
        yield Observation("verify.choice", key._replace(row=row), choice)
    for channel, values in seen.rows.items():
        for row, value in enumerate(values):
            yield Observation(channel, key._replace(row=row), value)
    for step, of_step in enumerate(seen.steps, start=1):
        reported: tuple[Any, ...] = of_step
        for channel, value in zip(_STEPS, reported, strict=True):
            yield Observation(channel, key._replace(step=step), value)


def _dtype(scenario: Scenario) -> torch.dtype:
    model = scenario.model
    assert isinstance(model, Checkpoint)
    dtype: torch.dtype = getattr(torch, model.dtype)
    return dtype


def _target(scenario: Scenario) -> PreTrainedModel:
    model = scenario.model
    if not isinstance(model, Checkpoint):
        raise InvalidScenarioError("invalid model: expected a checkpoint, which transformers can load")
    return _loaded(model.path, _dtype(scenario))


@cache
def _loaded(path: str, dtype: torch.dtype) -> PreTrainedModel:
    # Fused kernels of experts need sizes that tiny checkpoints do not have.
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, experts_implementation="eager").eval()
    config = model.config.get_text_config()
    if layers := getattr(config, "num_mtp_layers", 0):
        # The class has the numbers of MTP layers for the published sizes only.
        first = config.num_hidden_layers
        numbers = "|".join(map(str, range(first, first + layers)))
        model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.({numbers})\."]
    return model


@cache
def _assistant(path: str, dtype: torch.dtype, block: bool) -> PreTrainedModel:
    return (AutoModel if block else AutoModelForCausalLM).from_pretrained(path, dtype=dtype).eval()
