"""Sampled verification in large batches: the op, the five wrong samplers that are named, and rounds of any of them.

`R` requests, each with a text of its own; `T` rows of all; `V` vocabulary; `K` drafts of a round; `W` = K + 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from draftproof import kernels
from draftproof.engine.models.probe import ProbeTarget
from draftproof.engine.sampling import Sampled, SamplingParams, sample, sampling_inputs
from draftproof.properties.values.sampling import Sampling
from draftproof.reference import ops
from draftproof.reference.sampling import ACCEPT, DRAW, philox, probe_weights

FIRST = 5
"""The position of the first token that is drawn."""


class Law(NamedTuple):
    """What follows each token: logits [V, V] by the token before, and how they are drawn from."""

    logits: np.ndarray
    sampling: Sampling

    def weights(self, *, temperature: float | None = None, filters: bool = True) -> np.ndarray:
        """Return the weights [V, V] by definition, with another temperature or without filters if asked."""
        how = {"temperature": temperature or self.sampling.temperature}
        if filters:
            how |= {"top_k": self.sampling.top_k, "top_p": self.sampling.top_p, "min_p": self.sampling.min_p}
        return np.array([probe_weights(row, Sampling(**how)) for row in self.logits])

    def text(self, first: int, length: int) -> np.ndarray:
        """Return the probabilities [V ** length] of the texts of this length that follow a token."""
        weights = self.weights()
        odds = weights / weights.sum(1, keepdims=True)
        texts = itertools.product(range(len(weights)), repeat=length)
        return np.array([math.prod(odds[a, b] for a, b in itertools.pairwise((first, *text))) for text in texts])


class Coins(NamedTuple):
    """The coins of rows [T] (S-SAMPLE-4)."""

    seeds: np.ndarray
    positions: np.ndarray

    def __call__(self, draw: int, most: np.ndarray) -> np.ndarray:
        key = self.seeds.astype(np.uint64)
        high, low, *_ = philox((self.positions.astype(np.uint64), draw, 0, 0), (key & 0xFFFFFFFF, key >> 32))
        return ((high * most.astype(np.uint64) + (low * most.astype(np.uint64) >> 32)) >> 32).astype(np.int64)


Sampler = Callable[[Law, np.ndarray, np.ndarray, Coins], np.ndarray]
"""(law, token before [T], draft or -1 [T], coins) -> choice [T]"""


def engine(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """The engine's weights, filters and op."""
    params = SamplingParams(**{name: getattr(law.sampling, name) for name in law.sampling.__struct_fields__})
    inputs = sampling_inputs([params], torch.device("cpu")) | {"seeds": torch.tensor(coins.seeds)}
    inputs = {name: value.expand(len(before)) for name, value in inputs.items()}
    target = SimpleNamespace(token_weights=partial(ProbeTarget.token_weights, None))
    chosen = torch.full((len(before),), -1)
    logits = torch.tensor(law.logits[before])
    sample(target, chosen, logits, torch.tensor(drafts), torch.tensor(coins.positions), Sampled.of(inputs))
    return chosen.numpy()


def defined(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """The definition, row by row: slow."""
    chosen = torch.full((len(before),), -1)
    weights = torch.tensor(law.weights()[before])
    ops.sampled_choice(chosen, weights, *map(torch.tensor, (drafts, coins.seeds, coins.positions)))
    return chosen.numpy()


def right(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """The definition, in numpy."""
    return _choice(law.weights()[before], drafts, coins)


def ratio_inverted(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Accept with q / p, which is at least 1 where q is 1."""
    weights = law.weights()[before]
    return np.where(drafts >= 0, drafts, _drawn(weights, coins(DRAW, weights.sum(1))))


def bonus_from_all(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Draw the token in the place of a rejected draft from p, and not from what is left without the draft."""
    weights = law.weights()[before]
    drawn = _drawn(weights, coins(DRAW, weights.sum(1)))
    return np.where(_accepts(weights, drafts, coins), drafts, drawn)


def coin_reused(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Draw with the number that rejected the draft."""
    weights = law.weights()[before]
    rest = _without(weights, drafts)
    number = np.where(drafts >= 0, coins(ACCEPT, rest.sum(1)), coins(DRAW, rest.sum(1)))
    return np.where(_accepts(weights, drafts, coins), drafts, _drawn(rest, number))


def accepted_before_filters(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Accept with the draft's probability before the filters, draw with those behind them."""
    rest = _without(law.weights()[before], drafts)
    accepts = _accepts(law.weights(filters=False)[before], drafts, coins)
    return np.where(accepts, drafts, _drawn(rest, coins(DRAW, rest.sum(1))))


def temperature_twice(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Divide by the temperature once too often."""
    return _choice(law.weights(temperature=law.sampling.temperature**2)[before], drafts, coins)


WRONG: dict[str, Sampler] = {
    one.__name__: one
    for one in (ratio_inverted, bonus_from_all, coin_reused, accepted_before_filters, temperature_twice)
}


def _choice(weights: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    rest = _without(weights, drafts)
    return np.where(_accepts(weights, drafts, coins), drafts, _drawn(rest, coins(DRAW, rest.sum(1))))


def _accepts(weights: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    own = np.take_along_axis(weights, drafts.clip(min=0)[:, None], 1)[:, 0]
    return (drafts >= 0) & (coins(ACCEPT, weights.sum(1)) < own)


def _without(weights: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    return np.where(np.arange(weights.shape[1]) == drafts[:, None], 0, weights)


def _drawn(weights: np.ndarray, number: np.ndarray) -> np.ndarray:
    return (weights.cumsum(1) > number[:, None]).argmax(1)


def round_of(
    sampler: Sampler, law: Law, drafter: np.ndarray, before: np.ndarray, seeds: np.ndarray, at: np.ndarray, drafts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Verify one round of requests whose last tokens [R] are `before`, at [R]; return choices [R, W] and correct_len.

    After token v the draft is drafter[v].
    """
    ids = np.stack(list(itertools.accumulate(range(drafts), lambda one, _: drafter[one], initial=before)), 1)
    proposed = np.concatenate((ids[:, 1:], np.full((len(ids), 1), -1)), 1)
    positions = at[:, None] + np.arange(drafts + 1)
    coins = Coins(seeds.repeat(drafts + 1), positions.ravel())
    choices = sampler(law, ids.ravel(), proposed.ravel(), coins).reshape(ids.shape)
    correct_len, bonus = torch.empty(len(ids), dtype=torch.int64), torch.empty(len(ids), dtype=torch.int64)
    counts = torch.full((len(ids),), drafts)
    kernels.greedy_accept(correct_len, bonus, torch.tensor(ids), torch.tensor(choices), counts)
    return choices, correct_len.numpy()


def texts(
    sampler: Sampler, law: Law, drafter: np.ndarray, first: int, seeds: np.ndarray, length: int, drafts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each request emits after a first token [R, length], and how many rounds that took [R]."""
    emitted, rounds = np.full((len(seeds), length + drafts + 1), -1), np.zeros(len(seeds), int)
    emitted[:, 0], count = first, np.zeros(len(seeds), int)
    while (open_ := (count < length).nonzero()[0]).size:
        before = emitted[open_, count[open_]]
        choices, correct = round_of(sampler, law, drafter, before, seeds[open_], FIRST + count[open_], drafts)
        for column in range(drafts + 1):
            rows = open_[(correct >= column) & (count[open_] + column < length)]
            emitted[rows, count[rows] + column + 1] = choices[np.isin(open_, rows), column]
        count[open_] += correct + 1
        rounds[open_] += 1
    return emitted[:, 1 : length + 1], rounds


class _Enumerated:
    """Every value that matters of the coins of one row: `sizes` of each draw, which all sums met divide."""

    def __init__(self, sizes: tuple[int, int] = (1, 1)) -> None:
        self.sizes, self.met = sizes, ([], [])
        self._values = [values.ravel() for values in np.indices(sizes)]

    def __call__(self, draw: int, most: np.ndarray) -> np.ndarray:
        self.met[draw].extend(np.unique(most[most > 0]).tolist())
        return self._values[draw] * most // self.sizes[draw]

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def row_law(sampler: Sampler, law: Law, before: int, draft: int) -> list[Fraction]:
    """Return the exact probabilities [V] of a choice, from every value of its coins; weights are in their own unit."""
    tables = (law.weights(), law.weights(filters=False), law.weights(temperature=law.sampling.temperature**2))
    unit, met = int(np.gcd.reduce(np.array(tables), axis=None)), _Enumerated()
    sampler(law, np.array([before]), np.array([draft]), met)
    every = _Enumerated(tuple(math.lcm(*(most // unit for most in sums)) for sums in met.met))
    chosen = sampler(law, np.full(every.count, before), np.full(every.count, draft), every)
    return [Fraction(int(n), every.count) for n in np.bincount(chosen, minlength=law.logits.shape[1])]


def text_law(
    sampler: Sampler, law: Law, drafter: np.ndarray, first: int, length: int, drafts: int
) -> dict[tuple[int, ...], Fraction]:
    """Return the exact probability of each text that is emitted after a token; rounds follow one another."""
    rows = {
        (before, draft): row_law(sampler, law, before, draft)
        for before in range(len(law.logits))
        for draft in {-1, int(drafter[before])}
    }

    def after(text: tuple[int, ...], left: int) -> dict[tuple[int, ...], Fraction]:
        """The rest of the text, where a round has `left` drafts to come."""
        if len(text) == length + 1:
            return {text[1:]: Fraction(1)}
        draft = int(drafter[text[-1]]) if left else -1
        found: dict[tuple[int, ...], Fraction] = {}
        for token, odds in enumerate(rows[text[-1], draft]):
            if odds:
                rest = after((*text, token), left - 1 if token == draft else drafts)
                found |= {whole: odds * share for whole, share in rest.items()}
        return found

    return after((first,), drafts)
