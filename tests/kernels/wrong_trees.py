"""Hand-made wrong implementations of decisions on draft trees, and of the ops on states along them.

`W` verify width; the other letters as in reference/ops/delta.py.
"""

import torch

from draftproof.reference import ops
from tests.kernels.wrong import after, takes, then, wrong


@wrong("best_choices")
def highest_ids_first_on_ties(token_ids, scores, logits):
    ops.best_choices(token_ids, scores, logits.flip(1))
    token_ids.copy_(logits.shape[1] - 1 - token_ids)


@then("best_choices")
def scores_below_the_one_before(scores):
    scores[:, 1:] = scores.diff(dim=1)


after("best_choices", "in_the_order_of_their_ids", lambda token_ids: token_ids.copy_(token_ids.sort(dim=1).values))


@then("best_choices")
def scores_are_logits(token_ids, scores, logits):
    scores.copy_(logits.double().gather(1, token_ids))


@wrong("accept_tree")
def only_first_children_are_looked_at(correct_len, bonus, index, ids, choice, parents, counts):
    first = parents.clone()
    for row in range(parents.shape[0]):
        seen = set()
        for place, parent in enumerate(parents[row].tolist()):
            first[row, place] = -2 if parent in seen else parent
            seen.add(parent)
    ops.accept_tree(correct_len, bonus, index, ids, choice, first, counts)


@wrong("accept_tree")
def walks_into_surplus(correct_len, bonus, index, ids, choice, parents, counts):
    everything = torch.where(counts < 0, counts, ids.shape[1])
    ops.accept_tree(correct_len, bonus, index, ids, choice, parents, everything)


takes("accept_tree", "rows_are_a_chain", parents=lambda parents: torch.arange(parents.shape[1]).expand_as(parents))


@then("accept_tree")
def bonus_after_as_many_rows_as_are_accepted(correct_len, bonus, target_tokens, num_drafts):
    bonus.copy_(torch.where(num_drafts < 0, 0, target_tokens.gather(1, correct_len.clamp(min=0)[:, None])[:, 0]))


after("accept_tree", "rows_not_walked_are_root", lambda accept_index: accept_index.clamp_(min=0))


def first_of(parents: torch.Tensor) -> torch.Tensor:
    """Return the parents that the first row of the launch has, for all."""
    return parents[:1].expand_as(parents)


def one_late(parents: torch.Tensor) -> torch.Tensor:
    """Return parents with those of row m at m, where they are read that count from row 0."""
    return torch.cat((torch.zeros_like(parents[:, :1]), parents[:, :-1]), dim=1)


@wrong("conv_verify_tree")
def windows_of_the_rows_before(out, windows, x, conv, weight, slots, parents):
    ops.conv_verify(out, windows, x, conv, weight, slots)


takes("conv_verify_tree", "windows_by_parents_of_the_first", parents=first_of)
takes("conv_verify_tree", "windows_of_siblings_run_on", parents=one_late)


@wrong("gdn_verify_tree")
def states_of_the_rows_before(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    ops.gdn_verify(out, states, qkv, a, b, a_log, dt_bias, ssm, slots)


takes("gdn_verify_tree", "states_from_the_committed_one", parents=lambda parents: torch.full_like(parents, -1))
takes("gdn_verify_tree", "states_by_parents_of_the_first", parents=first_of)


@wrong("gdn_verify_tree")
def parent_that_is_none_is_row_0(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    before = (parents >= 0) & (parents <= torch.arange(parents.shape[1]))
    ops.gdn_verify_tree(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, torch.where(before, parents, 0))


@wrong("gdn_replay_tree")
def replayed_rows_are_a_chain(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots, parents):
    ops.gdn_replay(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots)


takes("gdn_replay_tree", "replayed_by_parents_of_the_first", parents=first_of)


@wrong("replay_move")
def inputs_stay(inputs, gates, cursor, slots, path):
    held = inputs.clone()
    ops.replay_move(inputs, gates, cursor, slots, path)
    inputs.copy_(held)


@wrong("replay_move")
def gates_stay(inputs, gates, cursor, slots, path):
    held = gates.clone()
    ops.replay_move(inputs, gates, cursor, slots, path)
    gates.copy_(held)


@wrong("replay_move")
def half_that_is_pending(inputs, gates, cursor, slots, path):
    halves = cursor.clone()
    halves[:, 1] = 1 - halves[:, 1]
    ops.replay_move(inputs, gates, halves, slots, path)


takes("replay_move", "only_in_the_first_layer", inputs=lambda inputs: inputs[:1], gates=lambda gates: gates[:1])


@wrong("replay_move")
def last_of_the_path_is_left_out(inputs, gates, cursor, slots, path):
    last = (path >= 0).sum(dim=1, keepdim=True) - 1
    ops.replay_move(inputs, gates, cursor, slots, torch.where(torch.arange(path.shape[1]) == last, -1, path))
