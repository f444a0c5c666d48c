"""What changes a request's logits before a token is chosen (docs/semantics/logits.md, S-PENALTY). Free of torch."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from draftproof.properties.lib.base import Value

REPETITION_UNIT = 1 / 16
"""Repetition penalties of probes are multiples of this: exact in integers."""

Amount = Annotated[int, Meta(ge=-(1 << 24), le=1 << 24)]


class TokenBias(Value, frozen=True, kw_only=True):
    """What is added to the logit of a token."""

    token: Annotated[int, Meta(ge=0)]
    amount: Amount


class Penalties(Value, frozen=True, kw_only=True):
    """What is added to and subtracted from logits, in units of a logit, and what divides them, in this order.

    `bias` has any tokens, each once. `repetition` applies to tokens of prompt and output, `frequency` (for each time)
    and `presence` (once) to tokens of the output. Without bias, with a `repetition` of 1 and 0 for the others, nothing
    changes.
    """

    bias: tuple[TokenBias, ...] = ()
    repetition: Annotated[float, Meta(gt=0, le=16)] = 1.0
    frequency: Amount = 0
    presence: Amount = 0

    def below(self, vocab: int) -> Penalties:
        """Return the penalties of a smaller vocabulary: tokens of biases modulo its size, each once."""
        biases = {one.token % vocab: one.amount for one in self.bias}
        bias = tuple(TokenBias(token=token, amount=amount) for token, amount in biases.items())
        return replace(self, bias=bias)

    def spread(self, small: int, large: int) -> Penalties:
        """Return the penalties with the tokens of biases spread over another vocabulary, each once if it is smaller."""
        biases = {one.token * large // small: one.amount for one in self.bias}
        bias = tuple(TokenBias(token=token, amount=amount) for token, amount in biases.items())
        return replace(self, bias=bias)


PENALTIES = Penalties.__struct_fields__
"""The names of the four."""
