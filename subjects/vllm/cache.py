"""KV entries of both models, read after every step from the pages that a request's table names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftproof.properties.values.trace import Observation
from draftproof.subjects.vllm.entries import LayerEntries, layers_of
from draftproof.subjects.vllm.observing import StepTurn, entries

_JUNK = 997.0


class CacheTaps:
    """The caches of target and drafter, by layer."""

    def __init__(self, runner: Any, page_size: int) -> None:
        self._page_size = page_size
        self._target: dict[int, LayerEntries] = dict(enumerate(layers_of(runner.model, page_size).values()))
        drafter = getattr(getattr(runner, "drafter", None), "model", None)
        found = layers_of(drafter, page_size) if drafter is not None else {}
        self._drafter: dict[int, LayerEntries] = dict(enumerate(found.values()))

    def poison(self) -> None:
        """Fill all pages with what nobody may read."""
        for layer in (*self._target.values(), *self._drafter.values()):
            layer.fill(_JUNK)

    def observations(self, turns: list[StepTurn]) -> Iterator[Observation]:
        """Yield the entries of what each turn committed; of the drafter only where the request goes on."""
        for turn in turns:
            yield from entries("commit.kv", self._target, turn, self._page_size)
            if not turn.ended:
                yield from entries("extend.kv", self._drafter, turn, self._page_size)
