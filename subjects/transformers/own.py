"""Transformers' own candidate generators, asked for as many drafts as the scenario says.

A forced draft that is accepted was not proposed by the generator that goes on from it. Whatever it has kept of its own
proposals in such a place is taken away here, as no run of the engine itself could have left it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.generation import CandidateGenerator

from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.transformers.taps import StepTaps, choice

_NO_LIMIT = 1 << 30
"""How long a sequence may become is limited by the scenario already, to the last token."""
Steps = tuple[tuple[int, int, tuple[int, float]], ...]


def cache_of(arguments: Mapping[str, Any]) -> Cache | None:
    """Return the cache that a model is called with, None if there is none yet; it has another name before 5.24."""
    cache: Cache | None = arguments.get("cache", arguments.get("past_key_values"))
    return cache


class OwnGenerator:
    """A generator of the installed release; `inner` is it, `steps` what its model ran with in the last round."""

    def __init__(self, inner: CandidateGenerator) -> None:
        self.inner: Any = inner
        self.steps: Steps = ()

    def propose(self, input_ids: Tensor, count: int, given: dict[str, Any]) -> tuple[int, ...]:
        """Return up to `count` drafts."""
        if not count:
            return ()
        found = self.inner.get_candidates(input_ids, **given)[0]
        return tuple(found[0, input_ids.shape[1] :].tolist()[:count])

    def detach(self) -> None:
        """Take hooks away."""


class LookupGenerator(OwnGenerator):
    """Prompt lookup. A stop token may be proposed, as by every other draft."""

    def __init__(self, inner: CandidateGenerator) -> None:
        super().__init__(inner)
        self.inner.max_length, self.inner.eos_token_id = _NO_LIMIT, None


class AssistantGenerator(OwnGenerator):
    """A smaller model: always `count` drafts, however sure it is of them, and stop tokens among them."""

    def __init__(self, inner: CandidateGenerator) -> None:
        super().__init__(inner)
        self.inner.main_model_max_length = _NO_LIMIT
        self.inner.assistant_generation_config.num_assistant_tokens_schedule = "constant"
        for config in (self.inner.assistant_generation_config, self.inner.generation_config):
            config.assistant_confidence_threshold = 0.0
            # None would mean the value of the model's own configuration.
            config.eos_token_id = [self.inner.assistant_model.config.vocab_size]
        self._taps = StepTaps(self.inner.assistant_model)
        self._held: tuple[int, ...] = ()

    def propose(self, input_ids: Tensor, count: int, given: dict[str, Any]) -> tuple[int, ...]:
        self.steps = ()
        if not count:
            return ()
        self._forget(tuple(input_ids[0].tolist()))
        self._taps.clear()
        self.inner.num_assistant_tokens = count
        # It was made for the prompt, and was not asked in prefill.
        self.inner.assistant_kwargs |= {
            "attention_mask": torch.ones_like(input_ids),
            "position_ids": torch.arange(input_ids.shape[1])[None],
        }
        found, logits = self.inner.get_candidates(input_ids)
        assert logits is not None
        self._held = tuple(found[0].tolist())
        choices = map(choice, logits[0])
        self.steps = tuple(zip(self._taps.ids, self._taps.positions, choices, strict=True))
        return self._held[input_ids.shape[1] :]

    def _forget(self, tokens: tuple[int, ...]) -> None:
        """Crop its cache to the entries of tokens that are there."""
        cache = cache_of(self.inner.assistant_kwargs)
        if cache is None:
            return
        same = next((at for at, (a, b) in enumerate(zip(tokens, self._held, strict=False)) if a != b), len(self._held))
        beyond = cache.get_seq_length() - same
        if beyond > 0:
            cache.crop(-beyond)

    def detach(self) -> None:
        self._taps.detach()


class MtpGenerator(OwnGenerator):
    """MTP layers. Where other drafts than theirs were accepted they begin again with the first token."""

    def __init__(self, inner: CandidateGenerator) -> None:
        super().__init__(inner)
        self._hidden: Tensor | None = None
        self._proposed: tuple[int, ...] = ()

    def propose(self, input_ids: Tensor, count: int, given: dict[str, Any]) -> tuple[int, ...]:
        self._keep(input_ids, given)
        accepted = tuple(input_ids[0, -given["n_last_matches"] - 1 :].tolist())[: given["n_last_matches"]]
        guessed = self._proposed[: len(accepted)]
        if self.inner.num_mtp_layers > 1 and accepted != guessed:
            given = self._from_the_start(given)
        found = self.inner.get_candidates(input_ids, **given)[0]
        self._proposed = tuple(found[0, input_ids.shape[1] :].tolist())
        return self._proposed[:count]

    def _keep(self, input_ids: Tensor, given: dict[str, Any]) -> None:
        """Keep the target's hidden states of all committed tokens."""
        new = given["model_outputs"].hidden_states[-1]
        if self._hidden is None:
            self._hidden = new
            return
        kept = input_ids.shape[1] - 1 - self._hidden.shape[1]
        self._hidden = torch.cat((self._hidden, new[:, :kept]), dim=1)

    def _from_the_start(self, given: dict[str, Any]) -> dict[str, Any]:
        self.inner.is_main_model_prefill = True
        self.inner.mtp_cache.crop(-self.inner.mtp_cache.get_seq_length())
        return {**given, "model_outputs": SimpleNamespace(hidden_states=(self._hidden,))}


class BlockGenerator(OwnGenerator):
    """A DFlash draft, whose block is as long as the round's drafts ask for (docs/semantics/dflash.md, S-DFLASH-2)."""

    def __init__(self, inner: CandidateGenerator) -> None:
        super().__init__(inner)
        self.inner.main_model_max_length = _NO_LIMIT
        self._mask, self._last = self.inner.noise_ids_mask, 0
        crop = self.inner.cache.crop
        # What it takes off its cache is the block before, not the one to come.
        self.inner.cache.crop = lambda _: crop(-self._last)

    def propose(self, input_ids: Tensor, count: int, given: dict[str, Any]) -> tuple[int, ...]:
        self.inner.block_size = count + 1
        self.inner.noise_ids_mask = self._mask[:, :1].expand(1, count)
        found = self.inner.get_candidates(input_ids, **given)[0]
        self._last = count + 1
        return tuple(found[0, input_ids.shape[1] :].tolist())


_OF: dict[str, type[OwnGenerator]] = {
    "ngram": LookupGenerator,
    "standalone": AssistantGenerator,
    "mtp": MtpGenerator,
    "dflash": BlockGenerator,
}


def own_generator(scenario: Scenario, inner: CandidateGenerator) -> OwnGenerator:
    """Return the generator that `generate` has made, asked as the scenario's draft has to be."""
    return _OF[algorithm(scenario.draft)](inner)
