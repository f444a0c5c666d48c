"""The weights from which emitted tokens were chosen; logprobs are made of them.

`B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary. Temperature and filters are the request's, as with
vLLM's `processed_logprobs`; a greedy request has temperature 1 and no filters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from draftproof.engine.models.base import SampledTarget, Target
from draftproof.engine.sampling import Sampled, filtered
from draftproof.engine.stages import PrefillRow

WEIGHTS = ("own_weights", "total_weights", "top_ids", "top_weights")
"""What a verify returns of each row, if any request asks."""
TokenLogprob = tuple[int, ...]
"""The weight of a token, the sum of all, and the likeliest tokens, each with its weight."""


def chosen_from(target: Target, logits: Tensor, token_ids: Tensor, most: int, on: Sampled | None) -> dict[str, Tensor]:
    """Return own_weights and total_weights [T] of token_ids [T], chosen by logits [T, V]; top_ids and top_weights.

    The last two [T, most] are the likeliest tokens, of equals the lowest first.
    """
    temperatures = torch.ones_like(token_ids, dtype=torch.float64)
    if on is not None:
        temperatures = torch.where(on.temperatures > 0, on.temperatures, temperatures)
    weights = cast("SampledTarget", target).token_weights(logits, temperatures)
    if on is not None:
        weights = filtered(weights, on.top_ks, on.top_ps, on.min_ps)
    ordered, order = weights.sort(dim=1, descending=True, stable=True)
    own = weights.gather(1, token_ids[:, None])[:, 0]
    return dict(zip(WEIGHTS, (own, weights.sum(1), order[:, :most], ordered[:, :most]), strict=True))


def of_prompts(target: Target, logits: Tensor, token_ids: Tensor, most: int) -> dict[str, Tensor]:
    """Return the weights for prompt tokens token_ids [T], by logits [T, V] of the tokens before them."""
    weights = chosen_from(target, logits, token_ids, most, None)
    return {f"prompt_{name}": value for name, value in weights.items()}


def logprobs(
    outputs: Mapping[str, Tensor], rows: Sequence[Sequence[int]], tops: Sequence[int | None]
) -> tuple[tuple[TokenLogprob, ...], ...]:
    """Return the logprobs of each request for its `rows` of outputs [B, W, ..].

    It gets as many likeliest tokens as `tops` says; a token without weight is not among them.
    """
    if not outputs:
        return ((),) * len(tops)
    own, total, ids, weights = (outputs[name].tolist() for name in WEIGHTS)
    return tuple(
        tuple(
            (own[place][row], total[place][row], *_likeliest(ids[place][row][:top], weights[place][row][:top]))
            for row in rows[place]
        )
        if top is not None
        else ()
        for place, top in enumerate(tops)
    )


def prompt_logprobs(
    weights: Mapping[str, Tensor], batch: Sequence[PrefillRow]
) -> tuple[tuple[tuple[int, TokenLogprob], ...], ...]:
    """Return the prompt logprobs of each row by position, from packed weights [T, ..] of all rows."""
    told, first = [], 0
    values = [weights[f"prompt_{name}"].tolist() for name in WEIGHTS] if weights else []
    for row in batch:
        asked, of_row = row.prompt_logprobs, []
        for place, position in enumerate(range(row.start + 1, min(row.end + 1, len(row.request.prompt))), start=first):
            if asked is not None and position > asked.start:
                own, total, ids, heaviest = (value[place] for value in values)
                of_row.append((position, (own, total, *_likeliest(ids[: asked.top], heaviest[: asked.top]))))
        told.append(tuple(of_row))
        first += row.end - row.start
    return tuple(told)


def _likeliest(ids: Sequence[int], weights: Sequence[int]) -> tuple[int, ...]:
    pairs = zip(ids, weights, strict=True)
    return tuple(number for token, weight in pairs if weight for number in (token, weight))
