"""The greedy choice: the highest logit, the lowest id on ties."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Choice(NamedTuple):
    """A token and its margin: its logit minus the second highest, 0 on a tie."""

    token: int
    margin: float


def choose(logits: np.ndarray, ids: tuple[int, ...] | None = None) -> Choice:
    """The choice of one row of logits [V]; `ids` are the tokens that its places stand for, if they are not these."""
    choice = choose_rows(logits[None])[0]
    return choice if ids is None else choice._replace(token=ids[choice.token])


def choose_rows(logits: np.ndarray) -> tuple[Choice, ...]:
    """The choices of rows of logits [T, V]; argmax returns the first of equals."""
    tokens = logits.argmax(axis=1)
    top = np.partition(logits, -2, axis=1)[:, -2:]
    margins = top[:, 1] - top[:, 0]
    return tuple(map(Choice, tokens.tolist(), margins.tolist()))
