"""KV entries of both models, read after every step from the pages that a request's table names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftproof.properties.values.trace import Observation
from draftproof.subjects.vllm.entries import LayerEntries, cache_of, layers_of
from draftproof.subjects.vllm.observing import StepTurn, entries
from draftproof.subjects.vllm.taps import attention_layers

_JUNK = 997.0


class CacheTaps:
    """The caches of target and drafter, by layer."""

    def __init__(self, runner: Any, page_size: int) -> None:
        self._page_size = page_size
        self._caches = [cache_of(layer) for model in _models(runner) for layer in attention_layers(model)]
        self._target: dict[int, LayerEntries] = dict(enumerate(layers_of(runner.model, page_size).values()))
        found = [layers_of(model, page_size) for model in _models(runner)[1:]]
        self._drafter: dict[int, LayerEntries] = dict(enumerate(one for of in found for one in of.values()))

    def poison(self) -> None:
        """Fill all pages with values that must not be read."""
        for cache in self._caches:
            cache.fill_(_JUNK)

    def observations(self, turns: list[StepTurn]) -> Iterator[Observation]:
        """Yield the entries of what each turn committed; of the drafter only where the request goes on."""
        for turn in turns:
            yield from entries("commit.kv", self._target, turn, self._page_size)
            if not turn.ended:
                yield from entries("extend.kv", self._drafter, turn, self._page_size)


def _models(runner: Any) -> list[Any]:
    """Return the target and, if there is one, the drafter."""
    drafter = getattr(getattr(runner, "drafter", None), "model", None)
    return [runner.model, *([] if drafter is None else [drafter])]
