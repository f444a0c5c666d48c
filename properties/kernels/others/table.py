"""The table of ops that other engines have kernels for: rows as in properties/kernels/table.py.

`ALL_OPS` has the built-in engine's ops, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.properties.kernels.table import OPS, Op

# A comment above each row is the op's promise.
_ROWS = (
    # Each request's slots stand behind the slots of the request before, in the order of positions; nothing follows.
    Op("extend_slots", ("slots",)),
    # As extend_slots, with as many positions for each request.
    Op("uniform_slots", ("slots",)),
    # The bonus is the last accepted token of each request.
    Op("bonus_tokens", ("bonus",)),
    # A tree of selected candidates is laid out: positions by depth, links in node order, each node sees its ancestors.
    Op("build_tree", ("positions", "retrieve_index", "next_token", "next_sibling", "mask")),
    # The walk goes to the child that the target chose, as long as there is one, and the bonus is the choice at its end.
    Op("tree_accept", ("predict", "accept_index", "correct_len")),
    # The extend after verify runs on all rows, and the last accepted one of each request is selected.
    Op("draft_extend_inputs", ("correct_len", "select", "ids")),
    # Each window moves one to the left, with the new token at its place; nothing else moves.
    Op("rotate_ids", ("ids",)),
    # Each request is sampled at its last row that holds.
    Op("sample_indices", ("indices", "rejected")),
    # The next token is the last valid one; a discarded row has its backup.
    Op("next_tokens", ("next", "valid")),
    # Each request is one position further, at that position's slot; what is too long, and padding, has none.
    Op("step_slots", ("positions", "slots", "seq_lens")),
    # Each token has its request's value.
    Op("expand_values", ("out",)),
    # The target's tokens follow up to the first draft that is another.
    Op("rejection_greedy", ("out",)),
    # Drafts are accepted as p / q says, and a rejected one is replaced.
    Op("rejection_random", ("out",)),
    # What replaces a draft is drawn from what the target has more of.
    Op("recovered_tokens", ("out",)),
)
OTHERS: Mapping[str, Op] = {op.name: op for op in sorted(_ROWS, key=lambda op: op.name)}
"""Every op that only other engines have, by its name, sorted."""
ALL_OPS: Mapping[str, Op] = dict(sorted({**OPS, **OTHERS}.items()))
"""Every op by its name, sorted."""
INDICES: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "conv_update": {"state_slots": ("conv", 0), "checkpoint_slots": ("checkpoint_conv", 0)},
    "conv_verify": {"state_slots": ("conv", 0)},
    "gdn_update": {"state_slots": ("ssm", 0), "checkpoint_slots": ("checkpoint_ssm", 0)},
    "gdn_verify": {"state_slots": ("ssm", 0)},
    "kv_move": {"src": ("k_pool", 0), "dst": ("k_pool", 0)},
    "kv_write": {"slot_mapping": ("k_pool", 0)},
    "state_scatter": {"state_slots": ("pool", 1), "last_correct_step_indices": ("steps", 2)},
}
"""Arguments that are indices which need not exist, by op: the argument and the dimension that they index."""
