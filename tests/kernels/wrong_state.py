"""Hand-made wrong implementations of the ops on recurrent state; letters as in reference/ops/delta.py."""

import torch

from draftproof.reference import ops
from tests.kernels.wrong import after, packed, strided, takes, then, wrong


def as_if(tensor: torch.Tensor, steps: int) -> torch.Tensor:
    """Return [R,A,..] as a kernel sees it that takes `steps` steps for allocated ones."""
    return strided(tensor, (steps * tensor.stride(1), *tensor.stride()[1:]))


def exchanged(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with the strides of its last two dimensions taken for one another."""
    *rest, first, second = tensor.stride()
    return strided(tensor, (*rest, second, first))


takes("conv_verify", "window_stride_of_the_width", windows=lambda windows, x: as_if(windows, x.shape[1]))


@then("conv_verify")
def window_before_the_token(windows, x, conv, state_slots):
    held = windows.clone()
    for b, slot in enumerate(state_slots.tolist()):
        if 0 <= slot < len(conv):
            windows[b, 1 : x.shape[1]] = held[b, : x.shape[1] - 1]
            windows[b, 0] = conv[slot]


@then("conv_verify")
def committed_window_moves_on(windows, x, conv, state_slots):
    for b, slot in enumerate(state_slots.tolist()):
        if 0 <= slot < len(conv):
            conv[slot] = windows[b, x.shape[1] - 1]


takes("conv_verify", "taps_newest_first", weight=lambda weight: weight.flip(1))


@wrong("gdn_verify")
def state_stride_of_the_width(out, states, qkv, a, b, a_log, dt_bias, ssm, slots):
    ops.gdn_verify(out, as_if(states, qkv.shape[1]), qkv, a, b, a_log, dt_bias, ssm, slots)


@wrong("gdn_verify")
def states_transposed(out, states, qkv, a, b, a_log, dt_bias, ssm, slots):
    ops.gdn_verify(out, exchanged(states), qkv, a, b, a_log, dt_bias, ssm, slots)


@then("gdn_verify")
def committed_state_moves_on(states, qkv, ssm, state_slots):
    for row, slot in enumerate(state_slots.tolist()):
        if 0 <= slot < len(ssm):
            ssm[slot] = states[row, qkv.shape[1] - 1]


takes("gdn_verify", "starts_from_zero", ssm=lambda ssm: torch.zeros_like(ssm))


@wrong("gdn_verify")
def key_heads_interleaved(out, states, qkv, a, b, a_log, dt_bias, ssm, slots):
    heads, height, width = ssm.shape[-3:]
    keys = (qkv.shape[2] - heads * width) // (2 * height)
    # As if value head u used key head u modulo N.
    order = torch.arange(heads).reshape(-1, keys).T.flatten()
    v = qkv[..., 2 * keys * height :].unflatten(-1, (heads, width))[:, :, order].flatten(2)
    held = out.clone(), states.clone()
    mixed = torch.cat((qkv[..., : 2 * keys * height], v), -1)
    gates = a[..., order], b[..., order], a_log[order], dt_bias[order]
    ops.gdn_verify(*held, mixed, *gates, ssm[:, order], slots)
    ops.gdn_verify(out, states, qkv, a, b, a_log, dt_bias, ssm, slots)
    for row, slot in enumerate(slots.tolist()):
        if 0 <= slot < len(ssm):
            out[row][:, order] = held[0][row]


@wrong("conv_update")
def window_keeps_one_token_too_many(out, conv, track, x, weight, slots, starts, track_slots, track_steps):
    before = conv.clone()
    ops.conv_update(out, conv, track, x, weight, slots, starts, track_slots, track_steps)
    for r, slot in enumerate(slots.tolist()):
        first, last = starts[r : r + 2].tolist()
        if 0 <= slot < len(conv) and last > first:
            conv[slot] = torch.cat((before[slot], x[first:last]))[last - first - 1 : -1]


@then("conv_update")
def window_forgets_what_came_before_the_chunk(conv, state_slots, cu_seqlens):
    for r, slot in enumerate(state_slots.tolist()):
        count = int(cu_seqlens[r + 1] - cu_seqlens[r])
        if 0 <= slot < len(conv) and 0 < count < conv.shape[1]:
            conv[slot, : conv.shape[1] - count] = 0


@wrong("conv_update")
def track_step_unclamped(out, conv, track, x, weight, slots, starts, track_slots, track_steps):
    lengths = starts[1:] - starts[:-1]
    clamped = torch.minimum(track_steps, lengths - 1)
    ops.conv_update(out, conv, track, x, weight, slots, starts, track_slots, clamped)


takes("gdn_update", "tracks_the_state_before_the_step", checkpoint_steps=lambda checkpoint_steps: checkpoint_steps - 1)


@wrong("gdn_update")
def the_last_state_is_transposed(out, ssm, track, qkv, a, b, a_log, dt_bias, slots, starts, track_slots, track_steps):
    before, rest = ssm.clone(), (slots, starts, track_slots, track_steps)
    ops.gdn_update(out, before, track, qkv, a, b, a_log, dt_bias, *rest)
    view = exchanged(ssm)
    for r, slot in enumerate(slots.tolist()):
        if 0 <= slot < len(ssm) and starts[r + 1] > starts[r]:
            view[slot] = before[slot]


@wrong("gdn_update")
def last_step_beyond_the_end_is_tracked(
    out, ssm, track, qkv, a, b, a_log, dt_bias, slots, starts, track_slots, track_steps
):
    clamped = torch.minimum(track_steps, starts[1:] - starts[:-1] - 1)
    ops.gdn_update(out, ssm, track, qkv, a, b, a_log, dt_bias, slots, starts, track_slots, clamped)


@wrong("state_scatter")
def step_index_off_by_one(pool, steps, slots, last_correct_step_indices):
    ops.state_scatter(pool, steps, slots, last_correct_step_indices - 1)


takes("state_scatter", "pool_row_stride_is_packed", pool=packed)


@wrong("state_scatter")
def reads_with_one_step_fewer(pool, steps, slots, last_correct_step_indices):
    fewer = max(1, steps.shape[2] - 1)
    view = strided(steps, (steps.stride(0), fewer * steps.stride(2), *steps.stride()[2:]))
    ops.state_scatter(pool, view, slots, last_correct_step_indices)


takes("state_scatter", "first_layer_only", pool=lambda pool: pool[:1], steps=lambda steps: steps[:1])


@wrong("state_scatter")
def nothing_accepted_takes_the_first_step(pool, steps, slots, last_correct_step_indices):
    ops.state_scatter(pool, steps, slots, last_correct_step_indices.clamp(min=0))


@then("checkpoint_steps")
def the_first_multiple(steps, seq_lens, interval):
    first = seq_lens // interval * interval + interval - seq_lens - 1
    steps.copy_(torch.where(steps < 0, steps, first))


after("checkpoint_steps", "one_row_late", lambda steps: steps.copy_(torch.where(steps < 0, steps, steps + 1)))


@wrong("checkpoint_steps")
def a_multiple_reached_before_counts(steps, lengths, counts, interval):
    ops.checkpoint_steps(steps, lengths - 1, counts + 1, interval)


@wrong("gdn_replay")
def fold_skips_the_last_pending(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, slots):
    shorter = cursor.clone()
    shorter[:, 0] = torch.where(cursor[:, 0] > gates.shape[2], cursor[:, 0], cursor[:, 0] - (cursor[:, 0] > 0).long())
    ops.gdn_replay(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, shorter, slots)


takes("gdn_replay", "wrong_half", cursor=lambda cursor: torch.stack((cursor[:, 0], 1 - cursor[:, 1]), 1))


@then("gdn_replay")
def keeps_the_state_after_the_new_rows(out, ssm, inputs, gates, x, a, b, weight, a_log, dt_bias, cursor, state_slots):
    before = weight.shape[1] - 1
    for row, slot in enumerate(state_slots.tolist()):
        valid = 0 <= slot < len(ssm) and 0 <= cursor[slot, 0] <= gates.shape[2] and 0 <= cursor[slot, 1] < 2
        if valid:
            half = 1 - int(cursor[slot, 1])
            y, held = torch.empty_like(x[:1]), ssm[None, slot : slot + 1].clone()
            windows = x.new_empty(1, x.shape[1], before, x.shape[2])
            zero = torch.tensor([0])
            ops.conv_verify(y, windows, x[row : row + 1], inputs[half, slot, :before][None], weight, zero)
            states = ssm.new_empty(1, x.shape[1], *ssm.shape[1:])
            gate = a[row : row + 1], b[row : row + 1], a_log, dt_bias
            ops.gdn_verify(out[:1].clone(), states, y, *gate, held[0], zero)
            ssm[slot] = states[0, -1]


after("gdn_replay", "rewinds_the_cursor", lambda cursor, state_slots: ops.replay_rewind(cursor, state_slots))


@then("gdn_replay")
def keeps_the_window_before_the_fold(ssm, inputs, gates, weight, cursor, state_slots):
    before = weight.shape[1] - 1
    for slot in state_slots.tolist():
        if 0 <= slot < len(ssm) and 0 <= cursor[slot, 0] <= gates.shape[2] and 0 <= cursor[slot, 1] < 2:
            half = int(cursor[slot, 1])
            inputs[1 - half, slot, :before] = inputs[half, slot, :before]


@wrong("replay_commit")
def index_is_the_count(cursor, slots, last_correct_step_indices):
    before = cursor.clone()
    ops.replay_commit(cursor, slots, last_correct_step_indices)
    changed = (cursor[:, 1] != before[:, 1]).long()
    cursor[:, 0] -= changed


@wrong("replay_commit")
def half_stays(cursor, slots, last_correct_step_indices):
    before = cursor[:, 1].clone()
    ops.replay_commit(cursor, slots, last_correct_step_indices)
    cursor[:, 1] = before


@wrong("replay_commit")
def a_row_without_tokens_is_committed(cursor, slots, last_correct_step_indices):
    ops.replay_commit(cursor, slots, last_correct_step_indices.clamp(min=0))


@wrong("replay_rewind")
def half_changes_with_nothing_pending(cursor, slots):
    for slot in slots.tolist():
        if 0 <= slot < len(cursor):
            cursor[slot] = torch.tensor([0, 1 - int(cursor[slot, 1])])


@wrong("replay_rewind")
def half_is_kept(cursor, slots):
    before = cursor[:, 1].clone()
    ops.replay_rewind(cursor, slots)
    cursor[:, 1] = before


@wrong("gdn_flush")
def flush_skips_the_last_pending(ssm, inputs, cursor, gates, weight, a_log, dt_bias, slots):
    shorter = torch.where(cursor > gates.shape[2], cursor, cursor - torch.tensor([1, 0]))
    ops.gdn_flush(ssm, inputs, shorter, gates, weight, a_log, dt_bias, slots)


after("gdn_flush", "flush_rewinds_the_cursor", lambda cursor, state_slots: ops.replay_rewind(cursor, state_slots))
takes("gdn_flush", "window_not_moved", inputs=lambda inputs: inputs.clone())
takes("gdn_flush", "every_slot_is_flushed", state_slots=lambda ssm: torch.arange(len(ssm)))
takes("gdn_checkpoint", "one_pending_token_too_few", checkpoint_steps=lambda checkpoint_steps: checkpoint_steps - 1)


@wrong("gdn_checkpoint")
def rejected_rows_are_folded_in(
    track_ssm, track_conv, ssm, inputs, gates, weight, a_log, dt_bias, cursor, slots, track_slots, steps
):
    everything = torch.tensor([int(cursor[s, 0]) - 1 if 0 <= s < len(cursor) else -1 for s in slots.tolist()])
    last = torch.where(steps < 0, steps, everything)
    ops.gdn_checkpoint(
        track_ssm, track_conv, ssm, inputs, gates, weight, a_log, dt_bias, cursor, slots, track_slots, last
    )


@wrong("gdn_checkpoint")
def the_base_moves_on(
    track_ssm, track_conv, ssm, inputs, gates, weight, a_log, dt_bias, cursor, slots, track_slots, steps
):
    rest = weight, a_log, dt_bias, cursor, slots, track_slots, steps
    before = track_ssm.clone()
    ops.gdn_checkpoint(track_ssm, track_conv, ssm, inputs, gates, *rest)
    for slot, target in zip(slots.tolist(), track_slots.tolist(), strict=True):
        exist = 0 <= slot < len(ssm) and 0 <= target < len(before)
        if exist and not torch.equal(before[target].nan_to_num(0), track_ssm[target].nan_to_num(0)):
            ssm[slot] = track_ssm[target]


@wrong("gated_norm")
def gate_not_activated(out, x, z, weight, eps):
    ops.gated_norm(out, x, torch.zeros_like(z), weight, eps)
    if out.is_floating_point():
        ops.rms_norm(out, x, weight, eps)
        out.mul_(z)


takes("gated_norm", "gate_and_input_exchanged", x=lambda z: z, z=lambda x: x)
