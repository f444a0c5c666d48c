"""Hand-made wrong implementations: each is the naive twin with one plausible mistake.

`WRONG` lists (op, what is wrong, implementation); every contract must notice each of its own. Many are the twin that is
given something else (`takes`), or whose results are changed behind it (`after`): functions of a call's arguments, which
they name as the twin does.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from draftproof.harness.bound_kernels import EVERY_TWIN
from draftproof.properties.kernels.contract import Kernel
from draftproof.reference import ops

WRONG: list[tuple[str, str, Kernel]] = []


def wrong(op: str) -> Callable[[Kernel], Kernel]:
    """List a function as a wrong implementation of `op`, under its own name."""

    def listed(kernel: Kernel) -> Kernel:
        WRONG.append((op, kernel.__name__, kernel))
        return kernel

    return listed


def _of_call(op: str, function: Callable[..., Any], given: tuple[Any, ...], own: Any = None) -> Any:
    """Call a function with those arguments of a call of `op` that it names; one that names no such takes its own."""
    values = dict(zip(inspect.signature(EVERY_TWIN[op]).parameters, given, strict=True))
    named = inspect.signature(function).parameters
    return function(**{name: values[name] for name in named}) if named.keys() <= values.keys() else function(own)


def given(op: str, /, **changes: Callable[..., Any]) -> Kernel:
    """Return the twin of an op that takes, for each of these arguments, what a function makes of the call."""

    def kernel(*call: Any) -> None:
        own = zip(inspect.signature(EVERY_TWIN[op]).parameters, call, strict=True)
        EVERY_TWIN[op](*(_of_call(op, changes[name], call, one) if name in changes else one for name, one in own))

    return kernel


def takes(op: str, name: str, /, **changes: Callable[..., Any]) -> None:
    """List the twin of `op` that takes something else for these arguments."""
    WRONG.append((op, name, given(op, **changes)))


def after(op: str, name: str, change: Callable[..., Any]) -> None:
    """List the twin of `op` behind which something is changed."""

    def kernel(*call: Any) -> None:
        EVERY_TWIN[op](*call)
        _of_call(op, change, call)

    WRONG.append((op, name, kernel))


def then(op: str) -> Callable[[Callable[..., None]], None]:
    """List the twin of `op` behind which a function is called, under the name of this."""
    return lambda change: after(op, change.__name__, change)


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as a kernel sees it that assumes packed strides; as it is if it would leave the allocation."""
    last = tensor.storage_offset() + tensor.numel()
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset()) if last <= whole else tensor


def strided(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor with other strides, as it is where those would leave the allocation."""
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset()) if last < whole else tensor


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return [S,N,H] with the strides of S and N taken for one another, where that stays in the allocation."""
    return strided(tensor, (tensor.stride(1), tensor.stride(0), tensor.stride(2)))


takes("kv_write", "packed_strides", v_pool=packed)
takes("kv_write", "swapped_strides", k_pool=swapped)


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


takes("kv_move", "only_keys", v_pool=lambda v_pool: v_pool.clone())


@wrong("kv_move")
def unknown_source_is_slot_zero(k_pool, v_pool, src, dst):
    ops.kv_move(k_pool, v_pool, torch.where((src < 0) | (src >= k_pool.shape[0]), 0, src), dst)


@wrong("quantised_write")
def scale_of_the_token_before(k_pool, v_pool, k_scales, v_scales, k, v, slots):
    held = [scales.clone() for scales in (k_scales, v_scales)]
    ops.quantised_write(k_pool, v_pool, *held, k, v, slots)
    ops.quantised_write(k_pool.clone(), v_pool.clone(), k_scales, v_scales, k.roll(1, 0), v.roll(1, 0), slots)


@then("quantised_write")
def codes_of_the_low_bits(k_pool, k, slot_mapping):
    inside = (slot_mapping >= 0) & (slot_mapping < k_pool.shape[0])
    k_pool[slot_mapping[inside]] = k[inside].to(k_pool.dtype)


@then("quantised_write")
def first_code_kept(k_pool, k, slot_mapping):
    inside = (slot_mapping >= 0) & (slot_mapping < k_pool.shape[0])
    k_pool[slot_mapping[inside], :, 0] = (k[inside] >> (64 - 8 * k_pool.element_size())).to(k_pool.dtype)[:, :, 0]


takes("quantised_attention", "scales_of_the_slot_before", k_scales=lambda k_scales: k_scales.roll(1, 0))
takes("quantised_attention", "scales_of_the_keys_for_values", v_scales=lambda k_scales: k_scales)


@wrong("quantised_attention")
def scale_of_the_first_head(out, q, k_pool, v_pool, k_scales, v_scales, *rest):
    first = v_scales[:, :1].expand_as(v_scales).contiguous()
    ops.quantised_attention(out, q, k_pool, v_pool, k_scales, first, *rest)


takes("fp8_write", "scale_multiplies", k_scale=lambda k_scale: 1 / k_scale, v_scale=lambda v_scale: 1 / v_scale)
takes("fp8_write", "scale_of_values_for_keys", k_scale=lambda v_scale: v_scale)


@wrong("fp8_write")
def cut_and_not_rounded(k_pool, v_pool, k, v, slots, k_scale, v_scale):
    bits = (k.double() / k_scale).float().view(torch.int32) & ~0xFFFFF
    ops.fp8_write(k_pool, v_pool, bits.view(torch.float32).double() * k_scale, v, slots, k_scale, v_scale)


takes("fp8_write", "beyond_the_largest_is_nan", k=lambda k, k_scale: k.where((k / k_scale).abs() < 464, torch.nan))


@wrong("fp8_attention")
def values_without_their_scale(out, q, k_pool, v_pool, *rest):
    ops.fp8_attention(out, q, k_pool, v_pool, *rest[:-1], 1.0)


@wrong("fp8_attention")
def bias_of_another_fp8(out, q, k_pool, v_pool, *rest):
    ops.fp8_attention(out, q, k_pool, v_pool, *rest[:-2], rest[-2] / 2, rest[-1] / 2)


takes("windowed_attention", "window_one_too_wide", first=lambda first: first - 1)
takes("windowed_attention", "window_one_too_narrow", first=lambda first: first + 1)
takes("windowed_attention", "window_of_the_first_token", first=lambda first: first[:1].expand_as(first).contiguous())
takes("windowed_attention", "window_from_its_page_on", first=lambda first, page_size: first // page_size * page_size)
takes("paged_attention", "sees_one_too_few", positions=lambda positions: positions - 1)
takes("paged_attention", "sees_one_too_many", positions=lambda positions: positions + 1)
takes("paged_attention", "page_size_is_one", page_size=lambda: 1)
takes("paged_attention", "swapped_pool_strides", k_pool=swapped)
takes("paged_attention", "hole_reads_slot_zero", page_table=lambda page_table: page_table.clamp(min=0))


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


takes("rms_norm", "eps_outside_the_root", eps=lambda: 0.0)


@then("rms_norm")
def writes_beside_the_row(out):
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


takes("add_rms_norm", "residual_not_updated", residual=lambda residual: residual.clone())
takes("silu_mul", "up_before_gate", gate_up=lambda gate_up: torch.cat(gate_up.chunk(2, -1)[::-1], -1))
takes("silu_mul", "packed_gate_up", gate_up=packed)
takes("rope", "one_position_ahead", positions=lambda positions: positions + 1)


@wrong("rope")
def pairs_side_by_side(q, k, positions, inv_freq):
    for heads in (q[..., : 2 * inv_freq.shape[0]], k[..., : 2 * inv_freq.shape[0]]):
        halves = torch.cat((heads[..., ::2], heads[..., 1::2]), -1)
        ops.rope(halves, halves.clone(), positions, inv_freq)
        heads.copy_(torch.stack(halves.chunk(2, -1), -1).flatten(-2))


takes("rope", "keys_stay", k=lambda k: k.clone())


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


@then("rope")
def components_beyond_the_pairs_are_cleared(q, k, inv_freq):
    for heads in (q, k):
        heads[..., 2 * inv_freq.shape[0] :] = 0


takes("assign_slots", "padding_is_live", num_drafts=lambda num_drafts: num_drafts.clamp(min=0))


@wrong("assign_slots")
def surplus_is_live(positions, slots, table, rows, lengths, counts, page_size, max_len):
    all_live = torch.where(counts < 0, counts, positions.shape[1])
    ops.assign_slots(positions, slots, table, rows, lengths, all_live, page_size, max_len)


takes("assign_slots", "surplus_not_clamped", max_len=lambda: 1 << 40)
after("assign_slots", "missing_page_is_slot_zero", lambda slot_mapping: slot_mapping.clamp_(min=0))


@then("greedy_accept")
def counts_matches_after_a_mismatch(correct_len, input_ids, target_tokens, num_drafts):
    agree = (input_ids[:, 1:] == target_tokens[:, :-1]) & (torch.arange(input_ids.shape[1] - 1) < num_drafts[:, None])
    correct_len.copy_(torch.where(num_drafts < 0, -1, agree.sum(1)))


@wrong("greedy_accept")
def accepts_surplus(correct_len, bonus, index, ids, choice, counts):
    ops.greedy_accept(correct_len, bonus, index, ids, choice, torch.where(counts < 0, counts, ids.shape[1]))


@then("greedy_accept")
def bonus_one_early(correct_len, bonus, target_tokens, num_drafts):
    before = target_tokens.gather(1, (correct_len - 1).clamp(min=0)[:, None])[:, 0]
    bonus.copy_(torch.where(num_drafts < 0, 0, before))


after("greedy_accept", "padding_accepts_nothing", lambda correct_len: correct_len.clamp_(min=0))


@then("greedy_accept")
def all_rows_are_listed(accept_index, input_ids):
    accept_index.copy_(torch.arange(input_ids.shape[1]).expand_as(accept_index))


@then("greedy_accept")
def flat_rows_are_listed(accept_index):
    """Rows are counted through the batch, as in accept_index of SGLang."""
    flat = accept_index + torch.arange(len(accept_index))[:, None] * accept_index.shape[1]
    accept_index.copy_(torch.where(accept_index < 0, accept_index, flat))


@wrong("greedy_choice")
def highest_id_on_ties(choice, logits):
    ops.greedy_choice(choice, logits.flip(1))
    choice.copy_(logits.shape[1] - 1 - choice)


@wrong("greedy_choice")
def nan_wins(choice, logits):
    ops.greedy_choice(choice, logits.double().nan_to_num(float("inf"), float("inf"), float("-inf")))


takes("greedy_choice", "rows_packed", logits=packed)


@then("ring_mix")
def arithmetic_shift(out, x, salt):
    held = x + torch.tensor((salt * 0x9E3779B97F4A7C15 + (1 << 63)) % (1 << 64) - (1 << 63))
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
        held = (held ^ (held >> shift)) * factor
    out.copy_(held)


takes("ring_mix", "salt_ignored", salt=lambda: 0)


@wrong("ring_linear")
def through_float64(out, x, weight):
    out.copy_((x.double() @ weight.double().T).to(torch.int64))


takes("ring_linear", "last_input_dropped", x=lambda x: x[:, :-1], weight=lambda weight: weight[:, :-1])
takes("narrow_linear", "last_output_dropped", out=lambda out: out[:, :-1], weight=lambda weight: weight[:-1])


@wrong("norm_linear")
def not_normed(out, x, norm, weight, eps):
    ops.narrow_linear(out, x, weight)


takes("norm_gate_up", "gate_and_up_exchanged", weight=lambda weight: torch.cat(weight.chunk(2)[::-1]))


@wrong("linear_add")
def overwrites_the_residual(residual, x, weight):
    ops.narrow_linear(residual, x, weight)


after("linear_add", "adds_twice", lambda residual, x, weight: ops.linear_add(residual, x, weight))


@wrong("token_attention")
def token_forgets_its_entry(out, k_pool, v_pool, *rest):
    ops.token_attention(out, k_pool.clone(), v_pool.clone(), *rest)


@wrong("token_attention")
def token_reads_its_slot_before_it_writes(out, k_pool, v_pool, *rest):
    before = k_pool.clone(), v_pool.clone()
    ops.token_attention(out.clone(), k_pool, v_pool, *rest)
    ops.token_attention(out, *before, *rest[:6], torch.full_like(rest[6], -1), *rest[7:])


takes("token_attention", "token_is_not_normed", norm=lambda norm: torch.ones_like(norm))


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
