"""Accepted drafts as numbers: a row for each prompt, since rounds of one text depend on each other.

`R` rows, one a prompt; `K` drafts of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")


class OneRound(NamedTuple):
    """How many drafts a round verified, and how many were right."""

    drafts: int
    accepted: int


class Tally(NamedTuple):
    """By prompt: `rounds` [R] that count, and `accepted` [R, K], in how many of them at least 1 .. K drafts were."""

    rounds: np.ndarray
    accepted: np.ndarray

    @property
    def rates(self) -> np.ndarray:
        """Return [K]: the share of rounds in which each position is accepted."""
        return np.asarray(self.accepted.sum(axis=0) / max(1, self.rounds.sum()))

    @property
    def mean(self) -> float:
        """Return the drafts accepted in a round."""
        return float(self.rates.sum())

    def drawn(self, rows: np.ndarray) -> np.ndarray:
        """Return the rates [n, K] of n samples of prompts, rows [n, R]."""
        rounds = self.rounds[rows].sum(axis=1)
        return np.asarray(self.accepted[rows].sum(axis=1) / np.maximum(1, rounds)[:, None])


def by_prompt(prompts: Sequence[tuple[int, ...]], texts: Sequence[Sequence[T]]) -> list[list[T]]:
    """Return the rounds of each prompt, in the order of the first text of each: two texts of one prompt are one."""
    rounds: dict[tuple[int, ...], list[T]] = {}
    for prompt, text in zip(prompts, texts, strict=True):
        rounds.setdefault(prompt, []).extend(text)
    return list(rounds.values())


def tally(texts: Sequence[Sequence[OneRound]], positions: int, *, idle_count: bool) -> Tally:
    """Return the tally of rounds by prompt; rounds without drafts count only where that is asked for."""
    rounds = [[one for one in text if one.drafts or idle_count] for text in texts]
    reached = [[sum(one.accepted > k for one in text) for k in range(positions)] for text in rounds]
    return Tally(np.array([len(text) for text in rounds]), np.array(reached).reshape(len(rounds), positions))
