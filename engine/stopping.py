"""What ends a request, and the stop tokens that may not come before its minimum of tokens.

A stop token is one of the request's own ids, or of the model's unless it ignores these. As in vLLM's `check_stop` and
`MinTokensLogitsProcessor`: before the minimum no stop token can be chosen, ignored or not, and no stop sequence ends
the request. Each row of a verify is masked by the number of tokens that come before its choice.

`R` rows of a batch, `W` verify width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from interegular import InvalidSyntax
from torch import Tensor

from draftproof.engine.grammar import token_automaton
from draftproof.engine.stages import DecodeRow, GenerationRequest, Minimum, PrefillRow, Proposal

Tokens = Sequence[int]


def stops(request: GenerationRequest, emitted: Tokens, eos: frozenset[int]) -> bool:
    """Return whether the last of these tokens ends a request: by its id, or as the end of a stop sequence."""
    last = emitted[-1]
    if last in request.stop or (last in eos and not request.ignore_eos):
        return True
    if not request.stop_sequences:
        return False
    return len(emitted) > request.min_tokens and any(
        tuple(emitted[-len(sequence) :]) == sequence for sequence in request.stop_sequences
    )


def error(request: GenerationRequest, vocab: int) -> str:
    """Return why a request ends before it begins, "" if it does not.

    As in vLLM's `Processor._validate_model_input` and `FINISHED_ERROR`, and SGLang's `Req.set_finish_with_abort`.
    """
    if not all(0 <= token < vocab for token in request.prompt):
        return "token"
    try:
        if request.grammar:
            token_automaton(request.grammar)
    except (ValueError, InvalidSyntax):
        return "grammar"
    return ""


def minimum(request: GenerationRequest, emitted: int, eos: frozenset[int]) -> Minimum | None:
    """Return how many more tokens a request must emit before a stop token; None if it has no minimum."""
    return Minimum(request.min_tokens - emitted, tuple(sorted(request.stop | eos))) if request.min_tokens else None


def prompt_masks(batch: Sequence[PrefillRow], masks: Tensor) -> Tensor:
    """Return masks [R, V] of what is excluded after each text, with stop tokens before a minimum."""
    return _with_minimum(masks.unsqueeze(1), [(row.minimum, (0,)) for row in batch]).squeeze(1)


def masks(batch: Sequence[DecodeRow], proposal: Proposal, masks: Tensor) -> Tensor:
    """Return masks [R, W, V] of what is excluded after each row of a verify, with stop tokens before a minimum."""
    return _with_minimum(masks, [(row.minimum, depths(proposal, place)) for place, row in enumerate(batch)])


def depths(proposal: Proposal, place: int) -> tuple[int, ...]:
    """Return how many drafts of a round come before the choice after each of its verify rows."""
    count = proposal.num_drafts[place]
    if proposal.parents is None:
        return tuple(range(count + 1))
    found = [0]
    for parent in proposal.parents[place, :count].tolist():
        found.append(found[parent] + 1)
    return tuple(found)


def _with_minimum(masks: Tensor, rows: Sequence[tuple[Minimum | None, tuple[int, ...]]]) -> Tensor:
    """Return masks [R, W, V] with the stop tokens of each row that has too few tokens before its choice."""
    places = [
        (place, row, token)
        for place, (least, before) in enumerate(rows)
        if least is not None
        for row, depth in enumerate(before)
        if depth < least.tokens
        for token in least.ids
    ]
    if places:
        at = torch.tensor(places, dtype=torch.int64, device=masks.device)
        masks.index_put_(tuple(at.unbind(1)), torch.ones(len(places), dtype=torch.bool, device=masks.device))
    return masks
