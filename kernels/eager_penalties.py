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
    values, ids, above, rows = logits.numpy(), input_ids.numpy(), parents.numpy(), req_rows.numpy()
    size, width, vocabulary = values.shape
    token = np.arange(vocabulary)
    counts = np.repeat(output_counts.numpy()[rows][:, None], width, axis=1)
    row = np.tile(np.arange(width), (size, 1))
    for _ in range(1, width):
        known = np.maximum(row, 0)
        drafted = np.where(row > 0, np.take_along_axis(ids, known, 1), -1)
        counts += drafted[:, :, None] == token
        row = np.where(row > 0, np.take_along_axis(above, known, 1), -1)
    ratio, frequency, presence = (each.numpy()[:, None, None] for each in (repetitions, frequencies, presences))
    some = np.maximum(ratio, 1)
    biased = values + biases.numpy()[rows][:, None]
    scaled = np.where(biased > 0, biased * 16 // some, biased * some >> 4)
    seen = (counts > 0) | (prompt_counts.numpy()[rows][:, None] > 0)
    penalized = np.where(seen, scaled, biased) - frequency * counts - presence * (counts > 0)
    values[...] = np.where(ratio > 0, penalized, values)
