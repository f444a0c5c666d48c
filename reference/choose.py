"""The greedy choice: the highest logit, the lowest id on ties."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

_CLOSE = 1 / 16
MOST_NEAR = 16
NearTokens = tuple[tuple[int, float], ...]


class _TokenAndMargin(NamedTuple):
    token: int
    margin: float


class Choice(_TokenAndMargin):
    """A token and its margin: its logit minus the highest of the others, 0 on a tie.

    `near` returns, where the margin is small beside the largest logit, the 16 other tokens that come nearest to the
    best, with how far each is below it.
    """

    near: Callable[[], NearTokens]

    def __new__(cls, token: int, margin: float, near: Callable[[], NearTokens] = tuple) -> Choice:
        made = super().__new__(cls, token, margin)
        made.near = near
        return made


def best(logits: np.ndarray) -> int:
    """Return the token with the highest of logits [V]; argmax returns the first of equals."""
    return int(logits.argmax())


def choose(logits: np.ndarray, ids: tuple[int, ...] | None = None) -> Choice:
    """Return the choice of one row of logits [V]; `ids` maps its places to tokens, if these are not equal."""
    choice = choose_rows(logits[None])[0]
    if ids is None:
        return choice
    return Choice(
        ids[choice.token], choice.margin, lambda: tuple((ids[token], below) for token, below in choice.near())
    )


def choose_rows(logits: np.ndarray) -> tuple[Choice, ...]:
    """Return the choices of rows of logits [T, V]; ties are broken as in `best`."""
    tokens = logits.argmax(axis=1)
    top = np.partition(logits, -2, axis=1)[:, -2:]
    margins = top[:, 1] - top[:, 0]
    near = [partial(_near, row) for row in logits]
    return tuple(map(Choice, tokens.tolist(), margins.tolist(), near))


def instead(choice: Choice, logits: np.ndarray, token: int) -> Choice:
    """Return a choice of `token` in place of the best one; its margin is 0 or less."""
    below = float(logits.max() - logits[token])
    near = ((choice.token, 0.0), *(one for one in choice.near() if one[0] != token))
    return Choice(token, -below, lambda: near[:MOST_NEAR])


def _near(row: np.ndarray) -> NearTokens:
    top = np.partition(row, -2)[-2:]
    if top[1] - top[0] > _CLOSE * np.abs(row).max():
        return ()
    count = min(MOST_NEAR + 1, len(row))
    # Ascending ids before a sort that leaves equals as they are: of these the lowest id comes first.
    some = np.sort(np.argpartition(-row, count - 1)[:count])
    ranked = some[np.argsort(-row[some], kind="stable")]
    below = row[ranked[0]] - row[ranked[1:]]
    return tuple(zip(ranked[1:].tolist(), below.tolist(), strict=True))
