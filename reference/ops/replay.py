"""Naive twins of the ops of replayed state: a base state, and the raw inputs of tokens that are still to be folded in.

Letters as in delta.py. Slot s has m pending tokens in half h, cursor [S,2] = (m, h): the window before the first of
them is inputs[h,s,0:C-1], they themselves are inputs[h,s,C-1:C-1+m], their raw gates (a, b) are gates[h,s,0:m].
"""

import torch
from torch import Tensor

from draftproof.reference.ops.delta import State, convolve, delta_rule, exact, path_to


def _pending(cursor: Tensor, slot: int, steps: int) -> tuple[int, int] | None:
    """Return (m, h) of a slot, None if the slot does not exist or its cursor is impossible with A allocated steps."""
    if not 0 <= slot < cursor.shape[0]:
        return None
    count, half = cursor[slot].tolist()
    return (count, half) if 0 <= count <= steps and half in (0, 1) else None


def _fold(state: Tensor, inputs: Tensor, gates: Tensor, weight: Tensor, a_log: Tensor, dt_bias: Tensor) -> State:
    """Return state [U,H,E] after the tokens of inputs [C-1+m,Q], which begins with the window, and gates [m,2,U]."""
    tokens = convolve(inputs, weight), gates[:, 0].tolist(), gates[:, 1].tolist()
    after = [state.tolist(), *(one for _, one in delta_rule(state.tolist(), *tokens, a_log, dt_bias))]
    return after[-1]


def gdn_replay(
    out: Tensor,
    ssm: Tensor,
    inputs: Tensor,
    gates: Tensor,
    x: Tensor,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    cursor: Tensor,
    state_slots: Tensor,
) -> None:
    """Fold what is pending into ssm [S,U,H,E], then go on over x [B,W,Q] with a, b [B,W,U] to give out [B,W,U,E].

    The other half of inputs [2,S,C-1+A,Q] and gates [2,S,A,2,U] gets the window after the fold and the new tokens; the
    state after those is not kept, and the cursor stays.
    """
    before, width = weight.shape[1] - 1, x.shape[1]
    for row, slot in enumerate(state_slots.tolist()):
        pending = _pending(cursor, slot, gates.shape[2])
        if pending is None:
            out[row] = 0
            continue
        m, h = pending
        state = _fold(ssm[slot], inputs[h, slot, : before + m], gates[h, slot, :m], weight, a_log, dt_bias)
        if m > 0:
            ssm[slot] = exact(state, ssm)
        new = torch.cat((inputs[h, slot, m : m + before], x[row]))
        steps = delta_rule(state, convolve(new, weight), a[row].tolist(), b[row].tolist(), a_log, dt_bias)
        for t, (o, _) in enumerate(steps):
            out[row, t] = exact(o, out)
        inputs[1 - h, slot, : before + width] = new
        gates[1 - h, slot, :width] = torch.stack((a[row], b[row]), 1)


def gdn_replay_tree(
    out: Tensor,
    ssm: Tensor,
    inputs: Tensor,
    gates: Tensor,
    x: Tensor,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    cursor: Tensor,
    state_slots: Tensor,
    parents: Tensor,
) -> None:
    """Fold and keep as gdn_replay; each row runs after those on the way to it by the parents [B,W-1] of rows 1 .."""
    gdn_replay(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, state_slots)
    before = weight.shape[1] - 1
    for row, slot in enumerate(state_slots.tolist()):
        known = _pending(cursor, slot, gates.shape[2])
        if known is None:
            continue
        window = inputs[1 - known[1], slot, :before]
        for t in range(x.shape[1]):
            path = path_to(parents[row].tolist(), t)
            tokens = convolve(torch.cat((window, x[row, path])), weight), a[row, path].tolist(), b[row, path].tolist()
            *_, (o, _) = delta_rule(ssm[slot].tolist(), *tokens, a_log, dt_bias)
            out[row, t] = exact(o, out)


def replay_move(inputs: Tensor, gates: Tensor, cursor: Tensor, state_slots: Tensor, accept_index: Tensor) -> None:
    """Put what the half beside a slot's has of rows accept_index[b] one after the other, in every layer."""
    for slot, rows in zip(state_slots.tolist(), accept_index.tolist(), strict=True):
        if not 0 <= slot < cursor.shape[0] or int(cursor[slot, 1]) not in (0, 1):
            continue
        half, before = 1 - int(cursor[slot, 1]), inputs.shape[3] - gates.shape[3]
        for place, row in enumerate(rows):
            if 0 <= row < gates.shape[3]:
                inputs[:, half, slot, before + place] = inputs[:, half, slot, before + row]
                gates[:, half, slot, place] = gates[:, half, slot, row]


def replay_commit(cursor: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Make the rows up to an index >= 0 pending, in the half that they were written to."""
    for slot, index in zip(state_slots.tolist(), last_correct_step_indices.tolist(), strict=True):
        if 0 <= slot < cursor.shape[0] and index >= 0:
            cursor[slot] = torch.tensor([index + 1, 1 - int(cursor[slot, 1])])


def replay_rewind(cursor: Tensor, state_slots: Tensor) -> None:
    """Leave nothing pending, after a flush of every layer, in the half to which the window was moved."""
    for slot in state_slots.tolist():
        if 0 <= slot < cursor.shape[0] and cursor[slot, 0] > 0:
            cursor[slot] = torch.tensor([0, 1 - int(cursor[slot, 1])])


def gdn_flush(
    ssm: Tensor,
    inputs: Tensor,
    cursor: Tensor,
    gates: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state_slots: Tensor,
) -> None:
    """Fold what is pending into ssm and move the window after it to the other half; the cursor stays."""
    before = weight.shape[1] - 1
    for slot in state_slots.tolist():
        m, h = _pending(cursor, slot, gates.shape[2]) or (0, 0)
        if m > 0:
            state = _fold(ssm[slot], inputs[h, slot, : before + m], gates[h, slot, :m], weight, a_log, dt_bias)
            ssm[slot] = exact(state, ssm)
            inputs[1 - h, slot, :before] = inputs[h, slot, m : m + before]


def gdn_checkpoint(
    checkpoint_ssm: Tensor,
    checkpoint_conv: Tensor,
    ssm: Tensor,
    inputs: Tensor,
    gates: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    cursor: Tensor,
    state_slots: Tensor,
    checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:
    """Write state and window after the first checkpoint_steps[b]+1 pending tokens to checkpoint_slots[b]."""
    before = weight.shape[1] - 1
    for slot, target, step in zip(
        state_slots.tolist(), checkpoint_slots.tolist(), checkpoint_steps.tolist(), strict=True
    ):
        m, h = _pending(cursor, slot, gates.shape[2]) or (0, 0)
        if not 0 <= step < m or not 0 <= target < checkpoint_ssm.shape[0]:
            continue
        folded = step + 1
        state = _fold(ssm[slot], inputs[h, slot, : before + folded], gates[h, slot, :folded], weight, a_log, dt_bias)
        checkpoint_ssm[target] = exact(state, checkpoint_ssm)
        checkpoint_conv[target] = inputs[h, slot, folded : folded + before]
