"""Sampled verification in large batches: the op, wrong samplers, and rounds of any of them, of chains and of trees.

`R` requests, each with a text of its own; `T` rows of all; `V` vocabulary; `W` rows of a round, of which each but the
first has its parent in `parents`; `C` drafts below a row; `D` the largest depth.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from draftproof import kernels
from draftproof.engine.models.probe import ProbeTarget
from draftproof.engine.sampling import Sampled, SamplingParams, sample, sampling_columns
from draftproof.engine.upload import uploaded
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.tree import children, depths
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
"""(law, token before [T], drafts or -1 [T, C], coins) -> choice [T]"""


def engine(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """The engine's weights, filters and op."""
    params = SamplingParams(**{name: getattr(law.sampling, name) for name in law.sampling.__struct_fields__})
    inputs = uploaded(sampling_columns([params]), torch.device("cpu")) | {"seeds": torch.tensor(coins.seeds)}
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
    return _either(_first(drafts >= 0, drafts), _drawn(weights, coins(DRAW, weights.sum(1))))


def bonus_from_all(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Draw the token in the place of rejected drafts from p, and not from what is left without them."""
    weights = law.weights()[before]
    return _either(_accepted(weights, drafts, coins), _drawn(weights, coins(DRAW, weights.sum(1))))


def coin_reused(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Draw with the number that rejected the drafts."""
    weights = law.weights()[before]
    rest = _without(weights, drafts)
    number = np.where((drafts >= 0).any(1), coins(ACCEPT, rest.sum(1)), coins(DRAW, rest.sum(1)))
    return _either(_accepted(weights, drafts, coins), _drawn(rest, number))


def accepted_before_filters(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Accept with a draft's probability before the filters, draw with those behind them."""
    rest = _without(law.weights()[before], drafts)
    found = _accepted(law.weights(filters=False)[before], drafts, coins)
    return _either(found, _drawn(rest, coins(DRAW, rest.sum(1))))


def temperature_twice(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Divide by the temperature once too often."""
    return _choice(law.weights(temperature=law.sampling.temperature**2)[before], drafts, coins)


WRONG: dict[str, Sampler] = {
    one.__name__: one
    for one in (ratio_inverted, bonus_from_all, coin_reused, accepted_before_filters, temperature_twice)
}


def siblings_alone(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Ask each sibling as if it were the only one."""
    weights = law.weights()[before]
    rest = _without(weights, drafts)
    found = _first((drafts >= 0) & (_own(weights, drafts) > coins(ACCEPT, weights.sum(1))[:, None]), drafts)
    return _either(found, _drawn(rest, coins(DRAW, rest.sum(1))))


def siblings_of_what_is_left(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Ask each sibling with its share of what its elders leave, all with one number."""
    weights = law.weights()[before]
    own, rest = _own(weights, drafts), _without(weights, drafts)
    left = weights.sum(1, keepdims=True) - own.cumsum(1) + own
    numbers = np.stack([coins(ACCEPT, most) for most in left.T], 1)
    return _either(_first((drafts >= 0) & (own > numbers), drafts), _drawn(rest, coins(DRAW, rest.sum(1))))


def elders_left_in(law: Law, before: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Take only the last of the rejected siblings out before the draw."""
    weights, last = law.weights()[before], (drafts >= 0).sum(1) - 1
    youngest = np.where(last < 0, -1, np.take_along_axis(drafts, last.clip(min=0)[:, None], 1)[:, 0])
    rest = _without(weights, youngest[:, None])
    return _either(_accepted(weights, drafts, coins), _drawn(rest, coins(DRAW, rest.sum(1))))


WRONG_OF_TREES = WRONG | {one.__name__: one for one in (siblings_alone, siblings_of_what_is_left, elders_left_in)}


def _choice(weights: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    rest = _without(weights, drafts)
    return _either(_accepted(weights, drafts, coins), _drawn(rest, coins(DRAW, rest.sum(1))))


def _accepted(weights: np.ndarray, drafts: np.ndarray, coins: Coins) -> np.ndarray:
    """Return the first draft at which the sum of their weights exceeds the coin, or -1."""
    sums = _own(weights, drafts).cumsum(1)
    return _first((drafts >= 0) & (sums > coins(ACCEPT, weights.sum(1))[:, None]), drafts)


def _own(weights: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    return np.where(drafts >= 0, np.take_along_axis(weights, drafts.clip(min=0), 1), 0)


def _first(holds: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    """Return the first draft of which something holds, or -1."""
    return np.where(holds.any(1), np.take_along_axis(drafts, holds.argmax(1)[:, None], 1)[:, 0], -1)


def _either(found: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    return np.where(found >= 0, found, drawn)


def _without(weights: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    return np.where((np.arange(weights.shape[1]) == drafts[:, :, None]).any(1), 0, weights)


def _drawn(weights: np.ndarray, number: np.ndarray) -> np.ndarray:
    return (weights.cumsum(1) > number[:, None]).argmax(1)


def drafts_of(drafter: np.ndarray, parents: tuple[int, ...], row: int, before: np.ndarray) -> np.ndarray:
    """Return the drafts [R, C] below a row whose tokens are `before` [R]: the first of drafter [V, C], then -1."""
    count = len(children(parents, row))
    return np.where(np.arange(drafter.shape[1]) < count, drafter[before], -1)


def round_of(
    sampler: Sampler,
    law: Law,
    drafter: np.ndarray,
    before: np.ndarray,
    seeds: np.ndarray,
    at: np.ndarray,
    parents: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Verify one round of requests whose last tokens [R] are `before`, at [R].

    Return the choices along the walk [R, D + 1] and correct_len [R]. Below token v the drafts are those of drafter[v].
    """
    rows = len(parents) + 1
    ids = np.zeros((len(before), rows), np.int64)
    ids[:, 0] = before
    for row, parent in enumerate(parents, start=1):
        ids[:, row] = drafter[ids[:, parent], children(parents, parent).index(row)]
    proposed = np.stack([drafts_of(drafter, parents, row, ids[:, row]) for row in range(rows)], 1)
    positions = at[:, None] + np.array(depths(parents))
    coins = Coins(seeds.repeat(rows), positions.ravel())
    choices = sampler(law, ids.ravel(), proposed.reshape(-1, proposed.shape[2]), coins).reshape(ids.shape)
    correct_len, bonus = torch.empty(len(ids), dtype=torch.int64), torch.empty(len(ids), dtype=torch.int64)
    index = torch.empty((len(ids), max(depths(parents)) + 1), dtype=torch.int64)
    counts, above = torch.full((len(ids),), rows - 1), torch.tensor(parents).expand(len(ids), -1)
    kernels.accept_tree(correct_len, bonus, index, torch.tensor(ids), torch.tensor(choices), above, counts)
    return np.take_along_axis(choices, index.numpy().clip(min=0), 1), correct_len.numpy()


def texts(
    sampler: Sampler,
    law: Law,
    drafter: np.ndarray,
    first: int,
    seeds: np.ndarray,
    length: int,
    parents: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each request emits after a first token [R, length], and how many rounds that took [R]."""
    deepest = max(depths(parents))
    emitted, rounds = np.full((len(seeds), length + deepest + 1), -1), np.zeros(len(seeds), int)
    emitted[:, 0], count = first, np.zeros(len(seeds), int)
    while (open_ := (count < length).nonzero()[0]).size:
        before = emitted[open_, count[open_]]
        choices, correct = round_of(sampler, law, drafter, before, seeds[open_], FIRST + count[open_], parents)
        for column in range(deepest + 1):
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


def row_law(sampler: Sampler, law: Law, before: int, drafts: np.ndarray) -> list[Fraction]:
    """Return the exact probabilities [V] of a choice, given drafts [1, C], from every value of its coins.

    Weights are in their own unit.
    """
    tables = (law.weights(), law.weights(filters=False), law.weights(temperature=law.sampling.temperature**2))
    unit, met = int(np.gcd.reduce(np.array(tables), axis=None)), _Enumerated()
    sampler(law, np.array([before]), drafts, met)
    every = _Enumerated(tuple(math.lcm(*(most // unit for most in sums)) for sums in met.met))
    chosen = sampler(law, np.full(every.count, before), drafts.repeat(every.count, 0), every)
    return [Fraction(int(n), every.count) for n in np.bincount(chosen, minlength=law.logits.shape[1])]


def text_law(
    sampler: Sampler, law: Law, drafter: np.ndarray, first: int, length: int, parents: tuple[int, ...]
) -> dict[tuple[int, ...], Fraction]:
    """Return the exact probability of each text that is emitted after a token; rounds follow one another."""

    @cache
    def row(before: int, at: int) -> tuple[list[Fraction], dict[int, int]]:
        """The law behind a token in a row of the tree, and to which row each of its drafts leads."""
        drafts, below = drafts_of(drafter, parents, at, np.array([before])), children(parents, at)
        return row_law(sampler, law, before, drafts), dict(zip(drafts[0].tolist(), below, strict=False))

    def after(text: tuple[int, ...], at: int) -> dict[tuple[int, ...], Fraction]:
        """The rest of the text behind a row of a round."""
        if len(text) == length + 1:
            return {text[1:]: Fraction(1)}
        law_here, below = row(text[-1], at)
        found: dict[tuple[int, ...], Fraction] = {}
        for token, odds in enumerate(law_here):
            if odds:
                rest = after((*text, token), below.get(token, 0))
                found |= {whole: odds * share for whole, share in rest.items()}
        return found

    return after((first,), 0)
