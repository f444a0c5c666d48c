"""Eager penalties of the text so far. `B` rows of a launch, `W` verify width, `R` request rows, `V` vocabulary."""

import numpy as np
from torch import Tensor

from draftproof.kernels.registry import register


@register("logits")
def apply_penalties(
    logits: Tensor, input_ids: Tensor, parents: Tensor, req_rows: Tensor, prompt_counts: Tensor,
    output_counts: Tensor, biases: Tensor, repetitions: Tensor, frequencies: Tensor, presences: Tensor,
) -> None:  # fmt: skip
    """Penalise logits [B,W,V], whole numbers, by the counts and biases [R,V] of request row req_rows[b].

    Beside the output a row counts the input_ids [B,W] of itself, of its parents[b,w], and so on, but of row 0: a parent
    is a row before it. To each logit its bias is added; then, if its token was counted in prompt or output, one above 0
    is multiplied by 16 and divided by repetitions[b], any other multiplied by that and divided by 16, both rounded
    down; then frequencies[b] is taken off for each time in the output, and presences[b] if there was one. Rows of
    repetitions[b] <= 0 stay as they are.
    """
    live = np.flatnonzero(repetitions.numpy() > 0)
    if not live.size:
        return
    values, ids, above, rows = (each.numpy()[live] for each in (logits, input_ids, parents, req_rows))
    size, width, vocabulary = values.shape
    counts = np.repeat(output_counts.numpy()[rows][:, None], width, axis=1)
    # Every row of every b goes its way up to row 0, all of them a step at a time.
    b, of = np.divmod(np.arange(size * width), width)
    row = of
    for _ in range(1, width):
        drafted = row > 0
        b, of, row = b[drafted], of[drafted], row[drafted]
        token = ids[b, row]
        known = token.view(np.uint64) < vocabulary
        counts[b[known], of[known], token[known]] += 1
        row = above[b, row]
    ratio, frequency, presence = (each.numpy()[live, None, None] for each in (repetitions, frequencies, presences))
    biased = values + biases.numpy()[rows][:, None]
    scaled = np.where(biased > 0, biased * 16 // ratio, biased * ratio >> 4)
    seen = (counts > 0) | (prompt_counts.numpy()[rows][:, None] > 0)
    logits.numpy()[live] = np.where(seen, scaled, biased) - frequency * counts - presence * (counts > 0)
