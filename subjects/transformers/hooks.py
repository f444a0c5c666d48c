"""The places of transformers that the adapter needs, looked for in the installed release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from transformers import GenerationMixin, LlamaConfig, LlamaForCausalLM
from transformers.generation import candidate_generator as generators

from draftproof.properties.values.subject import Hook

_METHOD = "_get_candidate_generator"
_GENERATORS = "transformers.generation.candidate_generator"
_MODULES = {"verify.positions": "rotary_emb", "verify.hidden": "norm"}
_CACHE = "transformers.DynamicCache.layers[].keys"


def found(generators_of: Mapping[Any, str], rounds: Iterable[str]) -> tuple[Hook, ...]:
    """Return all hooks: the class that proposes for each draft, and `rounds`, what is seen where it is asked."""
    where = f"transformers.GenerationMixin.{_METHOD}"
    steers = Hook(name="candidates", found=hasattr(GenerationMixin, _METHOD), channels=tuple(rounds), where=where)
    drafts = (
        Hook(
            name=f"draft {name}",
            found=hasattr(generators, kind),
            channels=("propose.tokens",),
            where=f"{_GENERATORS}.{kind}",
        )
        for name, kind in generators_of.items()
    )
    return (steers, *drafts, *_of_models())


def lost(hooks: Iterable[Hook]) -> frozenset[str]:
    """Return the channels that missing hooks of models cost; a draft that is missing costs the draft."""
    return frozenset(name for hook in hooks if not hook.found for name in hook.channels if hook.name in _OF_MODELS)


@cache
def _of_models() -> tuple[Hook, ...]:
    """Look at a Llama of one layer; what another architecture lacks, its own modules say."""
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))
    base = model.get_decoder()
    modules = [
        Hook(name=name, found=hasattr(base, name), channels=(channel,), where=f"{type(base).__name__}.{name}")
        for channel, name in _MODULES.items()
    ]
    with torch.no_grad():
        cache = model(torch.tensor([[1]]), use_cache=True).past_key_values
    layers = getattr(cache, "layers", [None])
    return (*modules, Hook(name="cache", found=hasattr(layers[0], "keys"), channels=("commit.kv",), where=_CACHE))


_OF_MODELS = (*_MODULES.values(), "cache")
