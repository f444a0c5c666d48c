"""Memo of causal passes: a row of a pass is a function of the model and of the inputs up to it, and of nothing else.

The memo is never needed: a disabled one makes every pass start at token zero and changes no result (a test shows it).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from draftproof.reference.stored import Following

ALL_SURE = 1 << 30
"""A position that no pass has."""


class Pass(NamedTuple):
    """One causal pass over T inputs.

    `hidden` [T, L], `logits` [T, V] float64, `kv` [T, entry] for each full attention layer and `states` [T, size] for
    each linear one, both in the order of the model's layers. Of a target `layers` [T, L] are the outputs of all its
    layers, residual included; an output that was not asked for is empty.

    Values are uint64 for probes, float64 for real models. `before_norm` [T, L] is a target's `hidden` before its final
    norm. For a head `hidden` stands in for the next hidden state. Row p of `states` is the state after inputs 0 .. p:
    the window of the convolution, oldest first, then the recurrent state. `gap` is the least margin by which an expert
    was chosen over one that was not. `unsure` is the first row whose values may rightly differ in a subject, because
    how it rounded an entry is not known (S-KV-6).
    """

    hidden: np.ndarray
    logits: np.ndarray
    kv: tuple[np.ndarray, ...]
    states: tuple[np.ndarray, ...] = ()
    layers: tuple[np.ndarray, ...] = ()
    before_norm: np.ndarray = np.empty((0, 0))
    gap: float = math.inf
    unsure: int = ALL_SURE

    def logits_from(self, first: int) -> np.ndarray:
        """Return a copy of the logits; rows before `first` have none (NaN)."""
        logits = self.logits.copy()
        logits[:first] = np.nan
        return logits

    def first(self, count: int) -> Pass:
        """Return the pass over the first `count` inputs: by causality its rows are the first rows of the longer one."""
        if count == len(self.hidden):
            return self
        return Pass(
            hidden=self.hidden[:count],
            logits=self.logits[:count],
            kv=tuple(layer[:count] for layer in self.kv),
            states=tuple(layer[:count] for layer in self.states),
            layers=tuple(layer[:count] for layer in self.layers),
            before_norm=self.before_norm[:count],
            gap=self.gap,
            unsure=self.unsure,
        )


class Prefixes:
    """What one model is known to compute, by the inputs so far."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._known: dict[tuple[Hashable, ...], tuple[Pass, int]] = {}

    def longest(self, inputs: tuple[Hashable, ...], empty: Pass) -> Pass:
        """Return the pass over the longest known prefix of the inputs; `empty` if there is none."""
        for length in range(len(inputs) if self._known else 0, 0, -1):
            if (found := self._known.get(inputs[:length])) is not None:
                return found[0].first(found[1])
        return empty

    def keep(self, inputs: tuple[Hashable, ...], whole: Pass, start: int) -> None:
        """Remember the pass for every prefix longer than `start`."""
        if self._enabled:
            for length in range(start + 1, len(inputs) + 1):
                self._known[inputs[:length]] = (whole, length)

    def exact(self, inputs: tuple[Hashable, ...]) -> Pass | None:
        """Return the pass over exactly these inputs, as it was computed: a longer pass may differ in the last bits."""
        found = self._known.get(inputs)
        return found[0] if found else None

    def keep_exact(self, inputs: tuple[Hashable, ...], whole: Pass) -> None:
        """Remember the pass under all its inputs only."""
        if self._enabled:
            self._known[inputs] = (whole, len(inputs))


class Memo:
    """A table of prefixes for each model. `solve` and `run` given the same memo do not repeat each other's work.

    Passes of models with entries in FP8 are `following` a subject, if one has run.
    """

    def __init__(self, enabled: bool = True, following: Following | None = None) -> None:
        self.following = following
        self._enabled = enabled
        self._tables: dict[Hashable, Prefixes] = {}
        self._closest = math.inf

    def follow(self, request: int, *round_: int) -> None:
        """Follow a request from now on, as it was after a round (else its last)."""
        if self.following is not None:
            self.following.move(request, *round_)

    def note(self, whole: Pass) -> Pass:
        """Return a pass of a real model, which was asked for."""
        self._closest = min(self._closest, whole.gap)
        return whole

    def take_closest(self) -> float:
        """Return the least `gap` of the passes noted since the last call."""
        closest, self._closest = self._closest, math.inf
        return closest

    def of(self, model: Hashable) -> Prefixes:
        """Return the table of a model; its key names everything that the model is made of."""
        if model not in self._tables:
            self._tables[model] = Prefixes(self._enabled)
        return self._tables[model]
