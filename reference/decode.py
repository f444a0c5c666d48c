"""One request by definition (S-ROUND, S-LIMIT): greedy decoding, its end, and what a round commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request
from draftproof.reference.choose import Choice, best
from draftproof.reference.chooser import Chooser, TokenPlace, chooser_of, weights_of
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceTarget, last_logits
from draftproof.reference.sampling import ACCEPT, coins, probe_weights, rejected_or_not


class Greedy:
    """The target's own continuation of a prompt, one token at a time and without end; computed as far as asked."""

    def __init__(self, target: ReferenceTarget, prompt: tuple[int, ...]) -> None:
        self._target, self._prompt = target, prompt
        self._tokens: tuple[int, ...] = ()

    def token(self, number: int) -> int:
        """Return the token emitted as number 0, 1, .."""
        return self.first(number + 1)[number]

    def first(self, count: int) -> tuple[int, ...]:
        """Return the first `count` tokens."""
        while len(self._tokens) < count:
            self._tokens += (best(last_logits(self._target, self._prompt + self._tokens)),)
        return self._tokens[:count]


class RequestLimits(NamedTuple):
    """Where a request ends: after `most` emitted tokens, after the first token of `stop`, or after one of `sequences`.

    Of these sequences one counts that comes to its end behind the first `least` tokens. The tokens `eos` are stop
    tokens that the request does not ask for.
    """

    most: int
    stop: tuple[int, ...]
    max_len: int
    sequences: tuple[tuple[int, ...], ...] = ()
    eos: tuple[int, ...] = ()
    least: int = 0

    @classmethod
    def of(
        cls,
        request: Request,
        max_len: int,
        stop: tuple[int, ...],
        sequences: tuple[tuple[int, ...], ...] = (),
        eos: tuple[int, ...] = (),
    ) -> RequestLimits:
        """`max_len` bounds prompt and emitted tokens together."""
        most = min(request.budget, max_len - len(request.prompt))
        return cls(most, stop, max_len, sequences, eos, request.min_tokens)

    def cut(self, emitted: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
        """Return the beginning of `new` that a request still emits after it has emitted `emitted`."""
        ends = (place for place in range(1, len(new)) if self.ended(emitted + new[:place]))
        return new[: next(ends, len(new))]

    def ended(self, emitted: tuple[int, ...]) -> bool:
        """Whether nothing follows what has been emitted."""
        if len(emitted) >= self.most or emitted[-1] in (*self.stop, *self.eos):
            return True
        return len(emitted) > self.least and any(emitted[-len(one) :] == one for one in self.sequences)


def accept(drafts: tuple[int, ...], choices: tuple[int, ...]) -> int:
    """correct_len: how many of d_1, d_2, .. equal the choices y_0, y_1, .. before the first that does not."""
    for correct, (draft, choice) in enumerate(zip(drafts, choices, strict=False)):
        if draft != choice:
            return correct
    return len(drafts)


def choices_along(
    logits: np.ndarray, tokens: tuple[int, ...], followed: tuple[int, ...], chooser: Chooser
) -> tuple[Choice, ...]:
    """Return the choices of the last rows of a pass over `tokens`, logits [T, V].

    After tokens that `followed` begins with, the choice is the token that follows there (S-FOLLOW-8), if one does. The
    token behind a row is the draft that a sampled row accepts or rejects (S-SAMPLE-2).
    """
    first = len(tokens) - len(logits) + 1
    places = [TokenPlace(length, tokens[length : length + 1]) for length in range(first, len(tokens) + 1)]
    choices = list(chooser.choices(logits, places))
    for row, (choice, place) in enumerate(zip(choices, places, strict=True)):
        length = place.position
        if length < len(followed) and followed[length] != choice.token and followed[:length] == tokens[:length]:
            choices[row] = chooser.instead(choice, logits[row], place, followed[length])
    return tuple(choices)


class Verification(NamedTuple):
    """The rows of one round: `whole` is the pass over t_0 .. t_n and at least the drafts that are accepted.

    Of each row: its choice, and a pass in which it is, with its position there. `accepted` are the rows that are, row 0
    first.
    """

    whole: Pass
    choices: tuple[Choice, ...]
    rows: tuple[tuple[Pass, int], ...]
    accepted: tuple[int, ...]

    @property
    def correct_len(self) -> int:
        """How many drafts are accepted."""
        return len(self.accepted) - 1

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token of every row's choice."""
        return tuple(choice.token for choice in self.choices)

    @property
    def emitted(self) -> tuple[int, ...]:
        """The choices of the accepted rows, which are the accepted drafts and the bonus, before any limit cuts them."""
        return tuple(self.choices[row].token for row in self.accepted)


def verify(
    target: ReferenceTarget,
    tokens: tuple[int, ...],
    drafts: tuple[int, ...],
    followed: tuple[int, ...] = (),
    sampling: Sampling | None = None,
    drawn_by: tuple[tuple[int, ...], ...] = (),
) -> Verification:
    """Verify drafts d_1 .. d_K of a chain after tokens t_0 .. t_n, with t_n pending; the others as in `choices_along`.

    `drawn_by` are the weights that each draft was drawn by, if it was (S-SAMPLE-10). `whole` is the pass over all of
    them, and row i is at position n + i.
    """
    n = len(tokens) - 1
    whole = target.forward(tokens + drafts, n)
    choices = choices_along(whole.logits[n:], tokens + drafts, followed, chooser_of(target, sampling))
    for row, (draft, weights) in enumerate(zip(drafts, drawn_by, strict=False)):
        if sampling is not None and weights and weights[draft]:
            own = probe_weights(whole.logits[n + row], sampling)
            token = rejected_or_not(own, list(weights), draft, coins(sampling.seed, len(tokens) + row))
            choices = (*choices[:row], Choice(token, choices[row].margin), *choices[row + 1 :])
    correct_len = accept(drafts, tuple(choice.token for choice in choices))
    rows = tuple((whole, position) for position in range(n, n + len(drafts) + 1))
    return Verification(whole, choices, rows, tuple(range(correct_len + 1)))


def likeliest(
    target: ReferenceTarget,
    tokens: tuple[int, ...],
    sampling: Sampling,
    wrong: Callable[[int], int],
    siblings: tuple[int, ...] = (),
) -> tuple[int, int]:
    """Return the right draft and a wrong one that a plan forces after these tokens (S-SAMPLE-7, S-TREE-12).

    Neither is among `siblings`, the drafts already chosen for this place.

    `wrong` gives the token that a plan would put in place of a right one.
    """
    weights = weights_of(target, last_logits(target, tokens), sampling)
    free = [token for token in range(len(weights)) if token not in siblings]
    right = max(free, key=lambda token: (weights[token], -token))
    first = wrong(right)
    taken = (*siblings, right)
    others = [token for token in (*range(first, len(weights)), *range(first)) if token not in taken]
    left = coins(sampling.seed, len(tokens))(ACCEPT, sum(weights)) - sum(weights[token] for token in siblings)
    rejected = [token for token in others if weights[token] <= left]
    return right, next((token for token in rejected if weights[token]), next(iter((*rejected, *others))))
