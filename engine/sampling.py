"""Weights of tokens to draw from, and their filters.

`B` rows of a launch, `T` tokens, `K` drafts for one place, `V` vocabulary.

A row without weights is greedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import SampledTarget, Target

SHARE = 1 << 16
"""Shares of `top_p` and `min_p` are held as this many parts."""


@dataclass(frozen=True)
class SamplingParams:
    """How a request draws its tokens: temperature above 0, filters that are off by default, and a seed."""

    temperature: float
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    draft: Literal["greedy", "sampled"] = "greedy"


SAMPLING_INPUTS = {
    "temperatures": torch.float64,
    "top_ks": torch.int64,
    "top_ps": torch.int64,
    "min_ps": torch.int64,
    "seeds": torch.int64,
    "draft_temperatures": torch.float64,
}
"""The buffers of a round that say how each row [B] draws; temperature 0: it (its draft) does not; top_k 0: of all."""


def sampling_columns(params: Sequence[SamplingParams | None]) -> dict[str, Sequence[float]]:
    """Return the values of these buffers."""
    return {
        "temperatures": [float(one.temperature) if one else 0.0 for one in params],
        "top_ks": [(one.top_k or 0) if one else 0 for one in params],
        "top_ps": [int(one.top_p * SHARE) if one else SHARE for one in params],
        "min_ps": [int(one.min_p * SHARE) if one else 0 for one in params],
        "seeds": [one.seed if one else 0 for one in params],
        "draft_temperatures": [float(one.temperature) if one and one.draft == "sampled" else 0.0 for one in params],
    }


def sample(
    target: Target,
    token_ids: Tensor,
    logits: Tensor,
    drafts: Tensor,
    positions: Tensor,
    on: Sampled,
    draft_weights: Tensor | None = None,
) -> None:
    """Draw token_ids [T] of sampled tokens from logits [T, V], given drafts [T, K] (-1: none); greedy ones stay.

    `positions` [T] are the positions of the tokens to be chosen. draft_weights [T, V] are the weights that a token's
    one draft was drawn by, if it was drawn.
    """
    weights = cast("SampledTarget", target).token_weights(logits, on.temperatures)
    weights = filtered(weights, on.top_ks, on.top_ps, on.min_ps)
    kernels.sampled_choice(token_ids, weights, drafts, on.seeds, positions)
    if draft_weights is not None:
        kernels.rejection_choice(token_ids, weights, draft_weights, drafts[:, 0], on.seeds, positions)


_DRAFT_SEED_BIT = -1 << 63
"""The bit of a seed with which drafts are drawn: no request's own has it."""


def sample_draft(
    target: Target, token_ids: Tensor, logits: Tensor, positions: Tensor, on: Sampled, target_ids: Tensor | None
) -> Tensor:
    """Draw token_ids [T] of drafts from logits [T, V'], and return the weights [T, V]; greedy ones stay, with none.

    `target_ids` [V'] are the tokens that ids of the logits stand for, if they are not these.
    """
    weights = cast("SampledTarget", target).token_weights(logits, on.draft_temperatures)
    if target_ids is not None:
        placed = weights.new_zeros((weights.shape[0], target.vocab))
        weights = placed.index_copy_(1, target_ids, weights)
    weights = filtered(weights, on.top_ks, on.top_ps, on.min_ps)
    none = torch.full_like(token_ids, -1)[:, None]
    kernels.sampled_choice(token_ids, weights, none, on.seeds | _DRAFT_SEED_BIT, positions)
    return weights


@dataclass(frozen=True)
class Sampled:
    """The inputs of a launch, one value a token [T]."""

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    seeds: Tensor
    draft_temperatures: Tensor

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], width: int = 1) -> Sampled:
        """Return the parameters of rows [B] with `width` tokens each."""
        if width == 1:
            return cls(**{name: inputs[name] for name in SAMPLING_INPUTS})
        return cls(**{name: inputs[name].repeat_interleave(width) for name in SAMPLING_INPUTS})


def filtered(weights: Tensor, top_ks: Tensor, top_ps: Tensor, min_ps: Tensor) -> Tensor:
    """Set to 0 what top_k, then top_p, then min_p leave out of weights [T, V]; one value of each a token."""
    ordered, order = weights.sort(dim=1, descending=True, stable=True)
    last = torch.where(top_ks > 0, top_ks, weights.shape[1]).clamp(max=weights.shape[1]) - 1
    least = ordered.gather(1, last[:, None])
    ordered = torch.where(ordered >= least, ordered, 0)
    before = ordered.cumsum(1) - ordered
    total = ordered.sum(1, keepdim=True)
    ordered = torch.where(before * SHARE < top_ps[:, None] * total, ordered, 0)
    ordered = torch.where(ordered * SHARE >= min_ps[:, None] * ordered[:, :1], ordered, 0)
    return torch.empty_like(weights).scatter_(1, order, ordered)
