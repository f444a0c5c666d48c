"""Hand-made wrong implementations: each is the naive twin with one plausible mistake.

`WRONG` lists (op, what is wrong, implementation); every contract must notice each of its own.
"""

from collections.abc import Callable

import torch

from draftproof.properties.kernels.contract import Kernel
from draftproof.reference import ops

WRONG: list[tuple[str, str, Kernel]] = []


def wrong(op: str) -> Callable[[Kernel], Kernel]:
    """List a function as a wrong implementation of `op`, under its own name."""

    def listed(kernel: Kernel) -> Kernel:
        WRONG.append((op, kernel.__name__, kernel))
        return kernel

    return listed


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as a kernel sees it that assumes packed strides; as it is if it would leave the allocation."""
    last = tensor.storage_offset() + tensor.numel()
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset()) if last <= whole else tensor


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return [S,N,H] with the strides of S and N taken for one another, where that stays in the allocation."""
    strides = (tensor.stride(1), tensor.stride(0), tensor.stride(2))
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset()) if last < whole else tensor


@wrong("kv_write")
def packed_strides(k_pool, v_pool, k, v, slots):
    ops.kv_write(k_pool, packed(v_pool), k, v, slots)


@wrong("kv_write")
def swapped_strides(k_pool, v_pool, k, v, slots):
    ops.kv_write(swapped(k_pool), v_pool, k, v, slots)


@wrong("kv_write")
def negative_slot_writes_the_last(k_pool, v_pool, k, v, slots):
    ops.kv_write(k_pool, v_pool, k, v, torch.where(slots == -1, k_pool.shape[0] - 1, slots))


@wrong("kv_write")
def slot_past_the_end_wraps(k_pool, v_pool, k, v, slots):
    ops.kv_write(k_pool, v_pool, k, v, torch.where(slots == k_pool.shape[0], 1, slots))


@wrong("kv_write")
def reads_k_for_v(k_pool, v_pool, k, v, slots):
    width = min(k.shape[2], v.shape[2])
    mixed = v.clone()
    mixed[..., :width] = k[..., :width]
    ops.kv_write(k_pool, v_pool, k, mixed, slots)


@wrong("kv_move")
def in_place_one_by_one(k_pool, v_pool, src, dst):
    for t in range(len(src)):
        ops.kv_move(k_pool, v_pool, src[t : t + 1], dst[t : t + 1])


@wrong("kv_move")
def only_keys(k_pool, v_pool, src, dst):
    ops.kv_move(k_pool, v_pool.clone(), src, dst)


@wrong("kv_move")
def unknown_source_is_slot_zero(k_pool, v_pool, src, dst):
    ops.kv_move(k_pool, v_pool, torch.where((src < 0) | (src >= k_pool.shape[0]), 0, src), dst)


@wrong("quantised_write")
def scale_of_the_token_before(k_pool, v_pool, k_scales, v_scales, k, v, slots):
    held = [scales.clone() for scales in (k_scales, v_scales)]
    ops.quantised_write(k_pool, v_pool, *held, k, v, slots)
    ops.quantised_write(k_pool.clone(), v_pool.clone(), k_scales, v_scales, k.roll(1, 0), v.roll(1, 0), slots)


@wrong("quantised_write")
def codes_of_the_low_bits(k_pool, v_pool, k_scales, v_scales, k, v, slots):
    ops.quantised_write(k_pool, v_pool, k_scales, v_scales, k, v, slots)
    inside = (slots >= 0) & (slots < k_pool.shape[0])
    k_pool[slots[inside]] = k[inside].to(k_pool.dtype)


@wrong("quantised_write")
def first_code_kept(k_pool, v_pool, k_scales, v_scales, k, v, slots):
    ops.quantised_write(k_pool, v_pool, k_scales, v_scales, k, v, slots)
    inside = (slots >= 0) & (slots < k_pool.shape[0])
    k_pool[slots[inside], :, 0] = (k[inside] >> (64 - 8 * k_pool.element_size())).to(k_pool.dtype)[:, :, 0]


@wrong("quantised_attention")
def scales_of_the_slot_before(out, q, k_pool, v_pool, k_scales, v_scales, *rest):
    ops.quantised_attention(out, q, k_pool, v_pool, k_scales.roll(1, 0), v_scales, *rest)


@wrong("quantised_attention")
def scales_of_the_keys_for_values(out, q, k_pool, v_pool, k_scales, v_scales, *rest):
    ops.quantised_attention(out, q, k_pool, v_pool, k_scales, k_scales, *rest)


@wrong("quantised_attention")
def scale_of_the_first_head(out, q, k_pool, v_pool, k_scales, v_scales, *rest):
    first = v_scales[:, :1].expand_as(v_scales).contiguous()
    ops.quantised_attention(out, q, k_pool, v_pool, k_scales, first, *rest)


@wrong("fp8_write")
def scale_multiplies(k_pool, v_pool, k, v, slots, k_scale, v_scale):
    ops.fp8_write(k_pool, v_pool, k, v, slots, 1 / k_scale, 1 / v_scale)


@wrong("fp8_write")
def scale_of_values_for_keys(k_pool, v_pool, k, v, slots, k_scale, v_scale):
    ops.fp8_write(k_pool, v_pool, k, v, slots, v_scale, v_scale)


@wrong("fp8_write")
def cut_and_not_rounded(k_pool, v_pool, k, v, slots, k_scale, v_scale):
    bits = (k.double() / k_scale).float().view(torch.int32) & ~0xFFFFF
    ops.fp8_write(k_pool, v_pool, bits.view(torch.float32).double() * k_scale, v, slots, k_scale, v_scale)


@wrong("fp8_write")
def beyond_the_largest_is_nan(k_pool, v_pool, k, v, slots, k_scale, v_scale):
    ops.fp8_write(k_pool, v_pool, k.where((k / k_scale).abs() < 464, torch.nan), v, slots, k_scale, v_scale)


@wrong("fp8_attention")
def values_without_their_scale(out, q, k_pool, v_pool, *rest):
    ops.fp8_attention(out, q, k_pool, v_pool, *rest[:-1], 1.0)


@wrong("fp8_attention")
def bias_of_another_fp8(out, q, k_pool, v_pool, *rest):
    ops.fp8_attention(out, q, k_pool, v_pool, *rest[:-2], rest[-2] / 2, rest[-1] / 2)


@wrong("windowed_attention")
def window_one_too_wide(out, q, k_pool, v_pool, table, rows, first, positions, page_size, scale):
    ops.windowed_attention(out, q, k_pool, v_pool, table, rows, first - 1, positions, page_size, scale)


@wrong("windowed_attention")
def window_one_too_narrow(out, q, k_pool, v_pool, table, rows, first, positions, page_size, scale):
    ops.windowed_attention(out, q, k_pool, v_pool, table, rows, first + 1, positions, page_size, scale)


@wrong("windowed_attention")
def window_of_the_first_token(out, q, k_pool, v_pool, table, rows, first, positions, page_size, scale):
    alike = first[:1].expand_as(first).contiguous()
    ops.windowed_attention(out, q, k_pool, v_pool, table, rows, alike, positions, page_size, scale)


@wrong("windowed_attention")
def window_from_its_page_on(out, q, k_pool, v_pool, table, rows, first, positions, page_size, scale):
    whole = first // page_size * page_size
    ops.windowed_attention(out, q, k_pool, v_pool, table, rows, whole, positions, page_size, scale)


@wrong("paged_attention")
def sees_one_too_few(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, k_pool, v_pool, table, rows, positions - 1, page_size, scale)


@wrong("paged_attention")
def sees_one_too_many(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, k_pool, v_pool, table, rows, positions + 1, page_size, scale)


@wrong("paged_attention")
def page_size_is_one(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, k_pool, v_pool, table, rows, positions, 1, scale)


@wrong("paged_attention")
def swapped_pool_strides(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, swapped(k_pool), v_pool, table, rows, positions, page_size, scale)


@wrong("paged_attention")
def hole_reads_slot_zero(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, k_pool, v_pool, table.clamp(min=0), rows, positions, page_size, scale)


@wrong("paged_attention")
def page_zero_is_taken_for_a_hole(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    ops.paged_attention(out, q, k_pool, v_pool, table.where(table != 0, -1), rows, positions, page_size, scale)


@wrong("paged_attention")
def heads_interleaved(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    order = torch.arange(q.shape[1]).reshape(-1, k_pool.shape[1]).T.flatten()
    held = torch.empty_like(out)
    ops.paged_attention(held, q[:, order], k_pool, v_pool, table, rows, positions, page_size, scale)
    out[:, order] = held


@wrong("paged_attention")
def nothing_seen_leaves_the_output(out, q, k_pool, v_pool, table, rows, positions, page_size, scale):
    held = out.clone()
    ops.paged_attention(out, q, k_pool, v_pool, table, rows, positions, page_size, scale)
    out[positions < 0] = held[positions < 0]


@wrong("rms_norm")
def eps_outside_the_root(out, x, weight, eps):
    ops.rms_norm(out, x, weight, 0.0)


@wrong("rms_norm")
def writes_beside_the_row(out, x, weight, eps):
    ops.rms_norm(out, x, weight, eps)
    everything = out.as_strided((out.untyped_storage().nbytes() // out.element_size(),), (1,), 0)
    everything[-1] = 0.0


@wrong("rms_norm")
def norms_its_input_in_place(out, x, weight, eps):
    ops.rms_norm(x, x, weight, eps)
    out.copy_(x)


@wrong("add_rms_norm")
def norm_of_the_old_residual(out, residual, x, weight, eps):
    ops.rms_norm(out, residual, weight, eps)
    residual.copy_(residual.double() + x.double())


@wrong("add_rms_norm")
def residual_not_updated(out, residual, x, weight, eps):
    ops.add_rms_norm(out, residual.clone(), x, weight, eps)


@wrong("silu_mul")
def up_before_gate(out, gate_up):
    ops.silu_mul(out, torch.cat(gate_up.chunk(2, -1)[::-1], -1))


@wrong("silu_mul")
def packed_gate_up(out, gate_up):
    ops.silu_mul(out, packed(gate_up))


@wrong("rope")
def one_position_ahead(q, k, positions, inv_freq):
    ops.rope(q, k, positions + 1, inv_freq)


@wrong("rope")
def pairs_side_by_side(q, k, positions, inv_freq):
    for heads in (q[..., : 2 * inv_freq.shape[0]], k[..., : 2 * inv_freq.shape[0]]):
        halves = torch.cat((heads[..., ::2], heads[..., 1::2]), -1)
        ops.rope(halves, halves.clone(), positions, inv_freq)
        heads.copy_(torch.stack(halves.chunk(2, -1), -1).flatten(-2))


@wrong("rope")
def keys_stay(q, k, positions, inv_freq):
    ops.rope(q, k.clone(), positions, inv_freq)


@wrong("rope")
def pairs_are_halves_of_the_whole_head(q, k, positions, inv_freq):
    half, size = inv_freq.shape[0], q.shape[2]
    order = [*range(half), *(size // 2 + i for i in range(half))]
    if size >= 2 * half + 2:
        for heads in (q, k):
            turned = heads[..., order]
            ops.rope(turned, turned.clone(), positions, inv_freq)
            heads[..., order] = turned
    else:
        ops.rope(q, k, positions, inv_freq)


@wrong("rope")
def components_beyond_the_pairs_are_cleared(q, k, positions, inv_freq):
    ops.rope(q, k, positions, inv_freq)
    for heads in (q, k):
        heads[..., 2 * inv_freq.shape[0] :] = 0


@wrong("assign_slots")
def padding_is_live(positions, slots, table, rows, lengths, counts, page_size, max_len):
    ops.assign_slots(positions, slots, table, rows, lengths, counts.clamp(min=0), page_size, max_len)


@wrong("assign_slots")
def surplus_is_live(positions, slots, table, rows, lengths, counts, page_size, max_len):
    all_live = torch.where(counts < 0, counts, positions.shape[1])
    ops.assign_slots(positions, slots, table, rows, lengths, all_live, page_size, max_len)


@wrong("assign_slots")
def surplus_not_clamped(positions, slots, table, rows, lengths, counts, page_size, max_len):
    ops.assign_slots(positions, slots, table, rows, lengths, counts, page_size, 1 << 40)


@wrong("assign_slots")
def missing_page_is_slot_zero(positions, slots, table, rows, lengths, counts, page_size, max_len):
    ops.assign_slots(positions, slots, table, rows, lengths, counts, page_size, max_len)
    slots.clamp_(min=0)


@wrong("greedy_accept")
def counts_matches_after_a_mismatch(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, counts)
    agree = (ids[:, 1:] == choice[:, :-1]) & (torch.arange(ids.shape[1] - 1) < counts[:, None])
    correct_len.copy_(torch.where(counts < 0, -1, agree.sum(1)))


@wrong("greedy_accept")
def accepts_surplus(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, torch.where(counts < 0, counts, ids.shape[1]))


@wrong("greedy_accept")
def bonus_one_early(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, counts)
    before = choice.gather(1, (correct_len - 1).clamp(min=0)[:, None])[:, 0]
    bonus.copy_(torch.where(counts < 0, 0, before))


@wrong("greedy_accept")
def padding_accepts_nothing(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, counts)
    correct_len.clamp_(min=0)


@wrong("greedy_accept")
def all_rows_are_listed(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, counts)
    index.copy_(torch.arange(ids.shape[1]).expand_as(index))


@wrong("greedy_accept")
def flat_rows_are_listed(correct_len, bonus, index, ids, choice, counts):
    """Rows are counted through the batch, as in accept_index of SGLang."""
    ops.greedy_accept(correct_len, bonus, index, ids, choice, counts)
    flat = index + torch.arange(len(index))[:, None] * index.shape[1]
    index.copy_(torch.where(index < 0, index, flat))


@wrong("greedy_choice")
def highest_id_on_ties(choice, logits):
    ops.greedy_choice(choice, logits.flip(1))
    choice.copy_(logits.shape[1] - 1 - choice)


@wrong("greedy_choice")
def nan_wins(choice, logits):
    ops.greedy_choice(choice, logits.double().nan_to_num(float("inf"), float("inf"), float("-inf")))


@wrong("greedy_choice")
def rows_packed(choice, logits):
    ops.greedy_choice(choice, packed(logits))


@wrong("ring_mix")
def arithmetic_shift(out, x, salt):
    ops.ring_mix(out, x, salt)
    held = x + torch.tensor((salt * 0x9E3779B97F4A7C15 + (1 << 63)) % (1 << 64) - (1 << 63))
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
        held = (held ^ (held >> shift)) * factor
    out.copy_(held)


@wrong("ring_mix")
def salt_ignored(out, x, salt):
    ops.ring_mix(out, x, 0)


@wrong("ring_linear")
def through_float64(out, x, weight):
    out.copy_((x.double() @ weight.double().T).to(torch.int64))


@wrong("ring_linear")
def last_input_dropped(out, x, weight):
    ops.ring_linear(out, x[:, :-1], weight[:, :-1])


@wrong("narrow_linear")
def last_output_dropped(out, x, weight):
    ops.narrow_linear(out[:, :-1], x, weight[:-1])


@wrong("norm_linear")
def not_normed(out, x, norm, weight, eps):
    ops.narrow_linear(out, x, weight)


@wrong("norm_gate_up")
def gate_and_up_exchanged(out, x, norm, weight, eps):
    ops.norm_gate_up(out, x, norm, torch.cat(weight.chunk(2)[::-1]), eps)


@wrong("linear_add")
def overwrites_the_residual(residual, x, weight):
    ops.narrow_linear(residual, x, weight)


@wrong("linear_add")
def adds_twice(residual, x, weight):
    ops.linear_add(residual, x, weight)
    ops.linear_add(residual, x, weight)


@wrong("token_attention")
def token_forgets_its_entry(out, k_pool, v_pool, *rest):
    ops.token_attention(out, k_pool.clone(), v_pool.clone(), *rest)


@wrong("token_attention")
def token_reads_its_slot_before_it_writes(out, k_pool, v_pool, *rest):
    before = k_pool.clone(), v_pool.clone()
    ops.token_attention(out.clone(), k_pool, v_pool, *rest)
    ops.token_attention(out, *before, *rest[:6], torch.full_like(rest[6], -1), *rest[7:])


@wrong("token_attention")
def token_is_not_normed(out, k_pool, v_pool, x, norm, weight, eps, *rest):
    ops.token_attention(out, k_pool, v_pool, x, torch.ones_like(norm), weight, eps, *rest)


@wrong("token_attention")
def token_is_rotated_a_place_on(out, k_pool, v_pool, x, norm, weight, eps, inv_freq, positions, *rest):
    turned = inv_freq * (positions.item() + 1) / max(positions.item(), 1)
    ops.token_attention(out, k_pool, v_pool, x, norm, weight, eps, turned, positions, *rest)


@wrong("token_attention")
def token_does_not_see_itself(out, k_pool, v_pool, *rest):
    ops.token_attention(out, k_pool, v_pool, *rest)
    qkv_rows = torch.zeros_like(rest[6]) - 1
    unseen = rest[5] - 1
    same_angle = rest[4] * rest[5].item() / unseen.item() if unseen.item() > 0 else rest[4]
    ops.token_attention(out, k_pool, v_pool, *rest[:4], same_angle, unseen, qkv_rows, *rest[7:])
