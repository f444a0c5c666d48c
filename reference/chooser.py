"""How a request's tokens are chosen from the logits of its rows: the best, or one that is drawn (S-SAMPLE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from draftproof.properties.values.sampling import Sampling
from draftproof.reference.choose import MOST_NEAR, Choice, choose_rows, instead
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.real_sampling import FARTHEST, RealRow, real_weights
from draftproof.reference.sampling import coins, probe_weights, sample


class TokenPlace(NamedTuple):
    """Where a token stands: its position, and the drafts that were given for it."""

    position: int
    drafts: tuple[int, ...]


class Chooser(Protocol):
    """The choices of a request, of rows of logits."""

    def choices(self, logits: np.ndarray, places: Sequence[TokenPlace]) -> tuple[Choice, ...]:
        """Return the choice of each row [T, V]; for a real model with how near other tokens come."""

    def instead(self, choice: Choice, logits: np.ndarray, place: TokenPlace, token: int) -> Choice:
        """Return the choice of `token` for a row [V], with which the text of a real model goes on (S-FOLLOW-8)."""

    def gap(self, logits: np.ndarray, place: TokenPlace, token: int) -> float:
        """How far a token is from being the choice of a row [V], in logits (S-TRACE-10, S-SAMPLE-14)."""


class Best(NamedTuple):
    """Of the greedy: the highest logit. Logits may be off `widened` times as far as the model's own."""

    widened: float = 1.0

    def choices(self, logits: np.ndarray, places: Sequence[TokenPlace]) -> tuple[Choice, ...]:
        """See `Chooser`."""
        chosen = choose_rows(logits)
        return chosen if self.widened == 1 else tuple(self._narrowed(one) for one in chosen)

    def instead(self, choice: Choice, logits: np.ndarray, place: TokenPlace, token: int) -> Choice:
        """See `Chooser`."""
        return instead(choice, logits / self.widened, token)

    def gap(self, logits: np.ndarray, place: TokenPlace, token: int) -> float:
        """See `Chooser`."""
        return float(logits.max() - logits[token]) / self.widened

    def _narrowed(self, one: Choice) -> Choice:
        near = tuple((token, below / self.widened) for token, below in one.near())
        return Choice(one.token, one.margin / self.widened, lambda: near)


class ProbeDraws(NamedTuple):
    """Draws for the sampled requests of a probe: its logits are exact, so margins are of logits and nothing is near."""

    sampling: Sampling

    def choices(self, logits: np.ndarray, places: Sequence[TokenPlace]) -> tuple[Choice, ...]:
        """See `Chooser`."""
        return tuple(
            Choice(self._drawn(row, place), choice.margin)
            for choice, row, place in zip(choose_rows(logits), logits, places, strict=True)
        )

    def instead(self, choice: Choice, logits: np.ndarray, place: TokenPlace, token: int) -> Choice:
        """No text of a probe goes another way."""
        raise AssertionError("the tokens of a probe are exact")

    def gap(self, logits: np.ndarray, place: TokenPlace, token: int) -> float:
        """Nor is any token of a probe near another."""
        raise AssertionError("the tokens of a probe are exact")

    def _drawn(self, logits: np.ndarray, place: TokenPlace) -> int:
        coin = coins(self.sampling.seed, place.position)
        return sample(probe_weights(logits, self.sampling), place.drafts, coin)


class RealDraws(NamedTuple):
    """Of the sampled requests of a real model; `widened` as in `Best`."""

    sampling: Sampling
    widened: float

    def choices(self, logits: np.ndarray, places: Sequence[TokenPlace]) -> tuple[Choice, ...]:
        """See `Chooser`; a margin is the gap of the nearest other token, as far as one is looked for."""
        return tuple(self._choice(row, place) for row, place in zip(logits, places, strict=True))

    def instead(self, choice: Choice, logits: np.ndarray, place: TokenPlace, token: int) -> Choice:
        """See `Chooser`."""
        near = ((choice.token, 0.0), *(one for one in choice.near() if one[0] != token))
        return Choice(token, -self.gap(logits, place, token), lambda: near[:MOST_NEAR])

    def gap(self, logits: np.ndarray, place: TokenPlace, token: int) -> float:
        """See `Chooser`."""
        return self._row(logits, place).gap(token) / self.widened

    def _choice(self, logits: np.ndarray, place: TokenPlace) -> Choice:
        row = self._row(logits, place)
        near = tuple((token, gap / self.widened) for token, gap in row.near())
        return Choice(row.token, near[0][1] if near else FARTHEST, lambda: near[:MOST_NEAR])

    def _row(self, logits: np.ndarray, place: TokenPlace) -> RealRow:
        return RealRow(logits, self.sampling, place.drafts, place.position)


def chooser_of(target: ReferenceTarget, sampling: Sampling | None) -> Chooser:
    """Return the chooser of a request with this target and sampling."""
    if sampling is None:
        return Best(target.widened or 1.0)
    return RealDraws(sampling, target.widened) if target.widened else ProbeDraws(sampling)


def weights_of(target: ReferenceTarget, logits: np.ndarray, sampling: Sampling) -> list[int]:
    """Return the weights by which the token after a row [V] of the target is drawn."""
    return real_weights(logits, sampling) if target.widened else probe_weights(logits, sampling)
