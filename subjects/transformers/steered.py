"""A candidate generator around transformers' own: the same proposals, with the script's drafts where it forces some."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import CandidateGenerator

from draftproof.properties.values.scenario import Request, Scenario, drafts_allowed, round_plan
from draftproof.properties.values.script import RequestScript, forced
from draftproof.subjects.transformers.own import OwnGenerator, cache_of, own_generator
from draftproof.subjects.transformers.taps import TargetTaps, choice, entries, entries_of


class RoundSeen(NamedTuple):
    """One round: what it emitted, the length of the cache after it, what it proposed by itself, and what it verified.

    `choices` are the choices of the verified rows, (token, margin); `rows` what each row was run with, by channel;
    `entries` what the cache got, by (layer, position); `steps` what an assistant ran with and chose.
    """

    emitted: tuple[int, ...]
    length: int
    proposed: tuple[int, ...]
    drafts: tuple[int, ...]
    choices: tuple[tuple[int, float], ...]
    rows: dict[str, tuple[Any, ...]]
    entries: dict[tuple[int, int], np.ndarray]
    steps: tuple[tuple[int, int, tuple[int, float]], ...]

    @property
    def correct_len(self) -> int:
        """How many drafts were right, whatever was cut afterwards."""
        matches = [draft == token for draft, (token, _) in zip(self.drafts, self.choices, strict=False)]
        return [*matches, False].index(False)


class SteeredRequest(CandidateGenerator):
    """Proposes for one request, and keeps its rounds. Prefill has no drafts: it is a round of its own."""

    def __init__(self, scenario: Scenario, request: Request, script: RequestScript, model: PreTrainedModel) -> None:
        self.rounds: list[RoundSeen] = []
        self._scenario, self._request, self._script, self._model = scenario, request, script, model
        self._taps, self._layers = TargetTaps(model), entries_of(model)
        self._own: OwnGenerator | None = None
        self._cache: Any = None
        self._proposed: tuple[int, ...] = ()
        self._drafts: tuple[int, ...] = ()
        self._context = 0

    def attach(self) -> None:
        """Let the model ask this generator, and look at its passes."""
        self._taps.attach()
        model: Any = self._model
        make = type(model)._get_candidate_generator

        def get(**given: Any) -> CandidateGenerator:
            self._cache = cache_of(given["model_kwargs"])
            self._own = own_generator(self._scenario, make(self._model, **given))
            self.requires_model_outputs = self._own.inner.requires_model_outputs
            self.model_kwargs_overrides = getattr(self._own.inner, "model_kwargs_overrides", {})
            return self

        model._get_candidate_generator = get

    def detach(self) -> None:
        """Leave the model as it was."""
        self._taps.detach()
        self._model.__dict__.pop("_get_candidate_generator", None)
        if self._own is not None:
            self._own.detach()

    def get_candidates(self, input_ids: Tensor, **given: Any) -> tuple[Any, Any]:
        """Return the sequence with the drafts of the next round."""
        assert self._own is not None
        round_, self._context = len(self.rounds), input_ids.shape[1] - 1
        self._proposed = self._drafts = ()
        if round_:
            emitted = input_ids.shape[1] - len(self._request.prompt)
            count = self._count(round_, emitted)
            self._proposed = self._own.propose(input_ids, count, given)
            chosen = forced(self._script, round_, emitted, count)
            self._drafts = self._proposed if chosen is None else chosen[:count]
        return torch.cat((input_ids, input_ids.new_tensor([self._drafts], dtype=torch.long)), dim=1), None

    def _count(self, round_: int, emitted: int) -> int:
        left = self._request.budget - emitted
        wanted = round_plan(self._request, round_).num_drafts
        return drafts_allowed(wanted, context=self._context, max_len=self._scenario.memory.max_len, budget_left=left)

    def update_candidate_strategy(self, input_ids: Tensor, scores: Tensor, num_matches: int) -> None:
        """Keep the round that has just been verified."""
        assert self._own is not None
        first = self._context if self.rounds else 0
        self.rounds.append(
            RoundSeen(
                emitted=tuple(input_ids[0, self._context + 1 :].tolist()),
                length=int(self._cache.get_seq_length()),
                proposed=self._proposed,
                drafts=self._drafts,
                choices=tuple(map(choice, scores[0])),
                rows=self._taps.rows(len(self._drafts) + 1),
                entries=entries(self._cache, self._layers, first),
                steps=self._own.steps,
            )
        )
        self._own.inner.update_candidate_strategy(input_ids, scores, num_matches)
