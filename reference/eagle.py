"""EAGLE by definition: entry i of the head is at position i and consumes (t_{i+1}, h_i).

h_i is the target's hidden state at position i, n the number of committed tokens, t_n the pending one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from draftproof.reference.choose import Choice, choose
from draftproof.reference.memo import Pass
from draftproof.reference.model import Head


class Step(NamedTuple):
    """Draft forward k = 1, 2, ..: it consumes `token` = d_k at `position`, and `choice` is d_{k+1}."""

    token: int
    position: int
    hidden_in: np.ndarray
    choice: Choice


def extend(head: Head, tokens: tuple[int, ...], hidden: np.ndarray) -> tuple[Pass, Choice]:
    """All true entries 0 .. n-1: tokens t_0 .. t_n, hidden [n, L]. Returns their pass and d_1."""
    entries = head.forward(tokens[1:], hidden)
    return entries, choose(entries.logits[-1])


class Draft(NamedTuple):
    """The head's own proposals d_1 .. d_K and the K - 1 forwards that gave d_2 .. d_K."""

    proposals: tuple[int, ...]
    steps: tuple[Step, ...]


def draft(head: Head, tokens: tuple[int, ...], hidden: np.ndarray, count: int) -> Draft:
    """`count` proposals after t_0 .. t_n, hidden [n, L]; forward k adds an entry of d_k and a stand-in."""
    if not count:
        return Draft((), ())
    entries, choice = extend(head, tokens, hidden)
    ids, steps = tokens[1:], []
    proposals = [choice.token]
    while len(proposals) < count:
        ids, stand_in = (*ids, proposals[-1]), entries.hidden[-1]
        hidden = np.concatenate((hidden, stand_in[None]))
        entries = head.forward(ids, hidden)
        choice = choose(entries.logits[-1])
        steps.append(Step(ids[-1], len(ids) - 1, stand_in, choice))
        proposals.append(choice.token)
    return Draft(tuple(proposals), tuple(steps))
