"""Hand-made wrong implementations of the ops on states along draft trees; letters as in reference/ops/delta.py."""

import torch

from draftproof.reference import ops
from tests.kernels.wrong import wrong


def chained(parents: torch.Tensor) -> torch.Tensor:
    """Return the parents of chains of as many rows."""
    return torch.arange(parents.shape[1]).expand_as(parents)


def first_of(parents: torch.Tensor) -> torch.Tensor:
    """Return the parents that the first row of the launch has, for all."""
    return parents[:1].expand_as(parents)


def one_late(parents: torch.Tensor) -> torch.Tensor:
    """Return parents with those of row m at m, where they are read that count from row 0."""
    return torch.cat((torch.zeros_like(parents[:, :1]), parents[:, :-1]), dim=1)


@wrong("conv_verify_tree")
def windows_of_the_rows_before(out, windows, x, conv, weight, slots, parents):
    ops.conv_verify(out, windows, x, conv, weight, slots)


@wrong("conv_verify_tree")
def windows_by_parents_of_the_first(out, windows, x, conv, weight, slots, parents):
    ops.conv_verify_tree(out, windows, x, conv, weight, slots, first_of(parents))


@wrong("conv_verify_tree")
def windows_of_siblings_run_on(out, windows, x, conv, weight, slots, parents):
    ops.conv_verify_tree(out, windows, x, conv, weight, slots, one_late(parents))


@wrong("gdn_verify_tree")
def states_of_the_rows_before(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    ops.gdn_verify(out, states, qkv, a, b, a_log, dt_bias, ssm, slots)


@wrong("gdn_verify_tree")
def states_from_the_committed_one(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    ops.gdn_verify_tree(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, torch.full_like(parents, -1))


@wrong("gdn_verify_tree")
def states_by_parents_of_the_first(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    ops.gdn_verify_tree(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, first_of(parents))


@wrong("gdn_verify_tree")
def parent_that_is_none_is_row_0(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, parents):
    before = (parents >= 0) & (parents <= torch.arange(parents.shape[1]))
    ops.gdn_verify_tree(out, states, qkv, a, b, a_log, dt_bias, ssm, slots, torch.where(before, parents, 0))


@wrong("gdn_replay_tree")
def replayed_rows_are_a_chain(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots, parents):
    ops.gdn_replay(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots)


@wrong("gdn_replay_tree")
def replayed_by_parents_of_the_first(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots, parents):
    model = (weight, a_log, dt_bias)
    ops.gdn_replay_tree(out, ssm, inputs, gates, x, a, b, *model, cursor, slots, first_of(parents))


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


@wrong("replay_move")
def only_in_the_first_layer(inputs, gates, cursor, slots, path):
    ops.replay_move(inputs[:1], gates[:1], cursor, slots, path)


@wrong("replay_move")
def last_of_the_path_is_left_out(inputs, gates, cursor, slots, path):
    last = (path >= 0).sum(dim=1, keepdim=True) - 1
    ops.replay_move(inputs, gates, cursor, slots, torch.where(torch.arange(path.shape[1]) == last, -1, path))
