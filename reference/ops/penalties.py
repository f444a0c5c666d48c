"""Naive twin of penalties. `B` rows of a launch, `W` verify width, `R` request rows, `V` vocabulary."""

import torch
from torch import Tensor

from draftproof.reference.penalties import OfToken, penalized


def apply_penalties(
    logits: Tensor,
    input_ids: Tensor,
    parents: Tensor,
    req_rows: Tensor,
    prompt_counts: Tensor,
    output_counts: Tensor,
    biases: Tensor,
    repetitions: Tensor,
    frequencies: Tensor,
    presences: Tensor,
) -> None:
    """Set logits [B,W,V] to the penalised ones (S-PENALTY-2), each row with the tokens on its path.

    Rows of repetitions[b] <= 0 stay.
    """
    own = zip(*(each.tolist() for each in (req_rows, repetitions, frequencies, presences)), strict=True)
    for b, (at, sixteenths, frequency, presence) in enumerate(own):
        ids, above = input_ids[b].tolist(), parents[b].tolist()
        before = [counts[at].tolist() for counts in (prompt_counts, output_counts, biases)]
        for w in range(logits.shape[1] if sixteenths > 0 else 0):
            path, row = list[int](), w
            while row > 0:
                path.append(ids[row])
                row = above[row]
            given = zip(logits[b, w].tolist(), *before, strict=True)
            changed = list[int]()
            for token, (logit, in_prompt, in_output, bias) in enumerate(given):
                count = in_output + path.count(token)
                of_token = OfToken(in_prompt > 0 or count > 0, count)
                changed.append(penalized(logit, bias, sixteenths, frequency, presence, of_token))
            logits[b, w] = torch.tensor(changed)
