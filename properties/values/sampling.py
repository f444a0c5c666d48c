"""How a request's tokens are drawn (docs/semantics/sampling.md, S-SAMPLE). Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from draftproof.properties.lib.base import Value

TEMPERATURE_UNIT = 1 / 16
SHARE_UNIT = 1 / 65536
"""Temperatures of probes are multiples of the first, their `top_p` and `min_p` of the second: exact in integers."""


class Sampling(Value, frozen=True, kw_only=True):
    """What weighs and filters the tokens of a sampled request, in this order, and the seed of its random numbers.

    `top_k` None, `top_p` 1 and `min_p` 0 filter nothing. With `draft` "sampled" the draft draws its tokens, too.
    """

    temperature: Annotated[float, Meta(gt=0, le=64)] = 1.0
    top_k: Annotated[int, Meta(ge=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    draft: Literal["greedy", "sampled"] = "greedy"
