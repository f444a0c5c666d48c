"""Logits of a request with penalties (docs/semantics/logits.md, S-PENALTY), of probes in whole numbers of any size.

What a text is penalised for is read off the text, row by row; nothing is counted along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from draftproof.properties.values.penalties import Penalties
from draftproof.properties.values.scenario import Request
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceTarget

LOGIT_UNIT = 2.0**-20
"""What one of an amount is in logits of a real model."""


class OfToken(NamedTuple):
    """What a text says of one token: whether it is in prompt or output, and how often in the output."""

    seen: bool
    times: int


def penalized(logit: int, bias: int, sixteenths: int, frequency: int, presence: int, token: OfToken) -> int:
    """Return the penalised logit of a probe's token (S-PENALTY-2), for a repetition penalty in sixteenths."""
    logit += bias
    if token.seen:
        logit = 16 * logit // sixteenths if logit > 0 else logit * sixteenths // 16
    return logit - frequency * token.times - presence * (token.times > 0)


def really_penalized(logit: float, bias: int, ratio: float, frequency: int, presence: int, token: OfToken) -> float:
    """Return the penalised logit of a real model's token (S-PENALTY-6); `ratio` is its repetition penalty."""
    logit += LOGIT_UNIT * bias
    if token.seen:
        logit = logit / ratio if logit > 0 else logit * ratio
    return logit - LOGIT_UNIT * (frequency * token.times + presence * (token.times > 0))


def _changed(logits: np.ndarray, text: tuple[int, ...], prompt: int, own: Penalties, *, is_real: bool) -> np.ndarray:
    """Return the penalised logits [V] of a row after a text that begins with `prompt` tokens of prompt."""
    logits = logits.copy()
    biases, counts, seen = {one.token: one.amount for one in own.bias}, Counter(text[prompt:]), frozenset(text)
    for token in seen.union(biases):
        amounts = own.frequency, own.presence, OfToken(token in seen, counts[token])
        logit, bias = logits[token], biases.get(token, 0)
        logits[token] = (
            really_penalized(float(logit), bias, own.repetition, *amounts)
            if is_real
            else penalized(int(logit), bias, int(own.repetition * 16), *amounts)
        )
    return logits


@lru_cache(maxsize=1 << 12)
def _changed_of_probe(row: bytes, text: tuple[int, ...], prompt: int, own: Penalties) -> np.ndarray:
    """Return the penalised logits of a probe's row, float64 as bytes, which can be a key of the cache."""
    changed = _changed(np.frombuffer(row), text, prompt, own, is_real=False)
    changed.setflags(write=False)
    return changed


class PenalizedTarget:
    """A target for one request: each row's logits are changed by the text up to the row, and nothing else is.

    The first `prompt` tokens are the prompt. With `known` the text ends after that many tokens for all rows.
    """

    def __init__(self, target: ReferenceTarget, prompt: int, penalties: Penalties, known: int | None = None) -> None:
        self._target, self._prompt, self._penalties, self._known = target, prompt, penalties, known
        self.layer_types = target.layer_types
        ratio = penalties.repetition
        self.widened = target.widened * max(ratio, 1 / ratio)

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Return the target's pass with its logits penalised; rows before the end of the prompt stay."""
        whole = self._target.forward(tokens, first)
        logits = whole.logits_from(first)
        for row in range(max(first, self._prompt - 1), len(tokens)):
            text = tokens[: row + 1][: self._known]
            if self.widened:
                logits[row] = _changed(logits[row], text, self._prompt, self._penalties, is_real=True)
            else:
                logits[row] = _changed_of_probe(logits[row].tobytes(), text, self._prompt, self._penalties)
        return whole._replace(logits=logits)


def with_penalties(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    """Return the target of a request with its penalties; the given one, if it has none."""
    return PenalizedTarget(target, len(request.prompt), request.penalties) if request.penalties else target


def weakened_targets(target: ReferenceTarget, request: Request, pending: int) -> Iterator[tuple[str, ReferenceTarget]]:
    """Yield targets that lack a part of the request's penalties, each with the count of choices that this changes.

    They are for a round with `pending` tokens committed and pending before it.
    """
    own = request.penalties
    if own is None:
        return
    parts = {
        "penalty_changed_choice": Penalties(),
        "bias_changed_choice": replace(own, bias=()),
        "repetition_changed_choice": replace(own, repetition=1.0),
        "frequency_changed_choice": replace(own, frequency=0),
        "presence_changed_choice": replace(own, presence=0),
    }
    for name, less in parts.items():
        if less != own:
            yield name, PenalizedTarget(target, len(request.prompt), less)
    yield "penalty_by_draft_in_window", PenalizedTarget(target, len(request.prompt), own, known=pending)
