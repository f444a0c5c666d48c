"""Hand-made wrong implementations of penalties. `B` rows of a launch, `W` verify width, `R` request rows."""

import torch

from draftproof.reference import ops
from tests.kernels.wrong import packed, takes, wrong

takes("apply_penalties", "drafts_are_in_no_text", input_ids=lambda input_ids: torch.full_like(input_ids, -1))


@wrong("apply_penalties")
def own_token_is_not_in_the_text(logits, ids, parents, rows, *tables_and_amounts):
    later = torch.where(parents > 0, ids.gather(1, parents.clamp(min=0)), -1)
    ops.apply_penalties(logits, later, parents, rows, *tables_and_amounts)


@wrong("apply_penalties")
def every_tree_is_a_chain(logits, ids, parents, rows, *tables_and_amounts):
    chain = torch.arange(-1, ids.shape[1] - 1).expand_as(ids)
    ops.apply_penalties(logits, ids, chain, rows, *tables_and_amounts)


takes("apply_penalties", "a_draft_is_counted_once", output_counts=lambda output_counts: output_counts.clamp(max=1))


@wrong("apply_penalties")
def row_zero_is_counted(logits, ids, parents, rows, prompt, output, *rest):
    for b in range(ids.shape[0]):
        counted = output.clone()
        token = int(ids[b, 0])
        if 0 <= token < output.shape[1]:
            counted[rows[b], token] += 1
        own = slice(b, b + 1)
        amounts = [each[own] for each in rest[1:]]
        ops.apply_penalties(logits[own], ids[own], parents[own], rows[own], prompt, counted, rest[0], *amounts)


@wrong("apply_penalties")
def the_prompt_is_output(logits, ids, parents, rows, prompt, output, *rest):
    ops.apply_penalties(logits, ids, parents, rows, prompt, output + prompt, *rest)


takes("apply_penalties", "the_prompt_is_forgotten", prompt_counts=lambda prompt_counts: torch.zeros_like(prompt_counts))


@wrong("apply_penalties")
def tables_by_place_in_the_batch(logits, ids, parents, rows, prompt, *rest):
    ops.apply_penalties(logits, ids, parents, torch.arange(len(rows)) % len(prompt), prompt, *rest)


takes("apply_penalties", "tables_of_the_first_row", req_rows=lambda req_rows: req_rows[:1].expand_as(req_rows))


@wrong("apply_penalties")
def bias_is_added_last(logits, ids, parents, rows, prompt, output, biases, *amounts):
    ops.apply_penalties(logits, ids, parents, rows, prompt, output, torch.zeros_like(biases), *amounts)
    logits += torch.where(amounts[0] > 0, 1, 0)[:, None, None] * biases[rows][:, None]


takes("apply_penalties", "bias_is_left_out", biases=lambda biases: torch.zeros_like(biases))


@wrong("apply_penalties")
def presence_is_frequency(logits, ids, parents, rows, prompt, output, biases, repetitions, frequencies, presences):
    own = (repetitions, frequencies + presences, torch.zeros_like(presences))
    ops.apply_penalties(logits, ids, parents, rows, prompt, output, biases, *own)


@wrong("apply_penalties")
def amounts_are_exchanged(logits, ids, parents, rows, prompt, output, biases, repetitions, frequencies, presences):
    ops.apply_penalties(logits, ids, parents, rows, prompt, output, biases, repetitions, presences, frequencies)


@wrong("apply_penalties")
def repetition_of_first_request_for_all(logits, ids, parents, rows, prompt, output, biases, repetitions, *amounts):
    first = torch.where(repetitions > 0, repetitions[:1].clamp(min=1), repetitions)
    ops.apply_penalties(logits, ids, parents, rows, prompt, output, biases, first, *amounts)


takes("apply_penalties", "rows_of_padding_are_penalized", repetitions=lambda repetitions: repetitions.clamp(min=16))


@wrong("apply_penalties")
def negative_logits_are_divided(logits, ids, parents, rows, prompt, output, biases, repetitions, *amounts):
    """As in the first processor of transformers: a reward for tokens of the text."""
    biased = logits + biases[rows][:, None]
    right, inverse = logits.clone(), logits.clone()
    ops.apply_penalties(right, ids, parents, rows, prompt, output, biases, repetitions, *amounts)
    inverted = torch.where(repetitions > 0, 256 // repetitions.clamp(min=1), repetitions)
    ops.apply_penalties(inverse, ids, parents, rows, prompt, output, biases, inverted, *amounts)
    logits.copy_(torch.where(biased < 0, inverse, right))


@wrong("apply_penalties")
def scaled_logits_are_rounded_to_zero(logits, ids, parents, rows, prompt, output, biases, repetitions, *amounts):
    nothing = [torch.zeros_like(each) for each in amounts]
    scaled, plain = logits.clone(), logits + biases[rows][:, None]
    ops.apply_penalties(scaled, ids, parents, rows, prompt, output, biases, repetitions, *nothing)
    ratio = repetitions[:, None, None]
    up = (scaled != plain) & (plain < 0) & (ratio > 0) & ((plain * ratio) % 16 != 0)
    ops.apply_penalties(logits, ids, parents, rows, prompt, output, biases, repetitions, *amounts)
    logits += up.long()


takes("apply_penalties", "packed_logits", logits=packed)
takes("apply_penalties", "packed_tables", output_counts=packed)
