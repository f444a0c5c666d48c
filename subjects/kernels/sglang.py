"""Bindings of SGLang's kernels. The request table is packed, since kernels take its width for its stride.

The first module is where newer releases have a kernel, others where older ones have it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.kernel_binding import binding
from draftproof.subjects.kernels.sglang_states import *  # noqa: F403

_CACHE_LOCS = (
    "sglang.kernels.ops.speculative.cache_locs",
    "sglang.srt.speculative.triton_ops.cache_locs",
    "sglang.srt.speculative.spec_utils",
)
_EAGLE = (
    "sglang.kernels.ops.speculative.eagle",
    "sglang.srt.speculative.triton_ops.eagle",
    "sglang.srt.speculative.eagle_info_v2",
)
_MULTI_LAYER = (
    "sglang.kernels.ops.speculative.multi_layer_eagle",
    "sglang.srt.speculative.triton_ops.multi_layer_eagle",
    "sglang.srt.speculative.multi_layer_eagle_utils",
)
_TREE = ("sglang.kernels.ops.speculative.spec_tree", "sglang.srt.speculative.triton_ops.spec_tree")
_NODES = ("positions", "retrieve_index", "next_token", "next_sibling", "selected")
_TREE_LAYOUT = dict.fromkeys(_NODES, "01") | {"parents": "0|1", "selected": "0|1", "mask": "012", "seq_lens": "0"}
_TABLE = {"table": "01", "rows": "0", "starts": "0", "slots": "0"}


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


@binding("extend_slots", *_CACHE_LOCS, int32=("table",), layout={**_TABLE, "ends": "0"})
def assign_extend_cache_locs(
    kernel: Any, slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, ends: Tensor
) -> None:
    batch = len(rows)
    kernel[(batch,)](rows, table, starts, ends, slots, table.shape[1], _power_of_two(batch))


@binding("uniform_slots", *_CACHE_LOCS, int32=("table",), layout=_TABLE)
def assign_extend_cache_locs_uniform(
    kernel: Any, slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, count: int
) -> None:
    kernel[(len(rows),)](rows, table, starts, slots, table.shape[1], count)


@binding("uniform_slots", *_CACHE_LOCS, int32=("table",), layout=_TABLE)
def assign_draft_cache_locs_contiguous(
    kernel: Any, slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, count: int
) -> None:
    kernel[(len(rows),)](rows, table, starts, slots, table.shape[1], 1, count)


@binding(
    "bonus_tokens", *_EAGLE, int32=("bonus", "accept_lens"), layout={"tokens": "01", "accept_lens": "0", "bonus": "0"}
)
def fill_bonus_tokens(kernel: Any, bonus: Tensor, tokens: Tensor, accept_lens: Tensor) -> None:
    kernel[(len(bonus),)](tokens, accept_lens, bonus, tokens.shape[1])


@binding(
    "draft_extend_inputs",
    *_EAGLE,
    kernel="prepare_draft_extend_inputs",
    layout={"accept_lens": "0|", "predict": "0|"},
    int32=("accept_lens", "predict", "correct_len"),
)
def prepare_draft_extend_inputs(
    kernel: Any, correct_len: Tensor, select: Tensor, ids: Tensor, accept_lens: Tensor, predict: Tensor, width: int
) -> None:
    for out, made in zip((correct_len, select, ids), kernel(accept_lens, predict, width), strict=True):
        out.copy_(made)


@binding("rotate_ids", *_MULTI_LAYER, layout=dict.fromkeys(("ids", "starts", "lengths", "tokens", "select"), "0"))
def rotate_input_ids_kernel(
    kernel: Any, ids: Tensor, starts: Tensor, lengths: Tensor, tokens: Tensor, select: Tensor
) -> None:
    # As large as SGLang's where the new token goes to a place of its own.
    kernel[(len(starts),)](ids, starts, lengths, tokens, select, BLOCK_SIZE=4096)


def _ends(ids: Tensor, starts: Tensor, lengths: Tensor, tokens: Tensor, select: Tensor) -> dict[str, Tensor]:
    return {"select": starts + (lengths - 1).clamp(min=0)}


@binding(
    "rotate_ids",
    *_MULTI_LAYER,
    kernel="rotate_input_ids_kernel",
    layout=dict.fromkeys(("ids", "starts", "lengths", "tokens"), "0"),
    given=_ends,
    cannot="without select_index the new token goes to the end of its window",
)
def rotate_input_ids_at_end(
    kernel: Any, ids: Tensor, starts: Tensor, lengths: Tensor, tokens: Tensor, select: Tensor
) -> None:
    kernel[(len(starts),)](ids, starts, lengths, tokens, None, BLOCK_SIZE=8)


@binding("build_tree", *_TREE, layout=_TREE_LAYOUT, booleans=("mask",))
def sgl_build_tree_kernel_efficient_triton(
    kernel: Any,
    positions: Tensor,
    retrieve_index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    mask: Tensor,
    parents: Tensor,
    selected: Tensor,
    seq_lens: Tensor,
    topk: int,
    steps: int,
) -> None:
    batch, width = positions.shape
    # Its caller makes them so.
    next_token.fill_(-1)
    next_sibling.fill_(-1)
    kernel[(batch,)](
        parents, selected, seq_lens, seq_lens.cumsum(0) - seq_lens, mask, positions, retrieve_index, next_token,
        next_sibling, topk=topk, depth=steps, draft_token_num=width, tree_mask_mode=1, batch_size=batch,
        parent_list_stride=parents.stride(0), selected_index_stride=selected.stride(0),
    )  # fmt: skip


@binding(
    "tree_accept",
    *_TREE,
    layout=dict.fromkeys(("predict", "accept_index", "candidates", "next_token", "next_sibling", "target"), "01")
    | {"correct_len": "0"},
    int32=("predict", "accept_index", "correct_len"),
)
def verify_tree_greedy_kernel_triton(
    kernel: Any,
    predict: Tensor,
    accept_index: Tensor,
    correct_len: Tensor,
    candidates: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    target: Tensor,
) -> None:
    batch, width = candidates.shape
    accept_index.fill_(-1)
    numbers = torch.arange(batch * width, device=candidates.device)
    kernel[(batch,)](
        predict, accept_index, correct_len, candidates, numbers, next_token, next_sibling, target,
        batch_size=batch, num_speculative_tokens=accept_index.shape[1], num_draft_tokens=width,
    )  # fmt: skip


def _all_drafts(
    correct_len: Tensor,
    bonus: Tensor,
    accept_index: Tensor,
    input_ids: Tensor,
    target_tokens: Tensor,
    num_drafts: Tensor,
) -> dict[str, Tensor]:
    return {"num_drafts": torch.full_like(num_drafts, input_ids.shape[1] - 1)}


@binding(
    "greedy_accept",
    "sglang.kernels.ops.speculative.dflash",
    "sglang.srt.speculative.dflash_utils",
    kernel="_fused_correct_drafts_and_bonus_kernel",
    layout={"correct_len": "0", "bonus": "0", "accept_index": "01", "input_ids": "01", "target_tokens": "01"},
    int32=("correct_len",),
    given=_all_drafts,
    cannot="each request has as many drafts as its block is wide, and none is padding; the rows are listed here",
)
def dflash_correct_drafts_and_bonus(
    kernel: Any,
    correct_len: Tensor,
    bonus: Tensor,
    accept_index: Tensor,
    input_ids: Tensor,
    target_tokens: Tensor,
    num_drafts: Tensor,
) -> None:
    batch, width = input_ids.shape
    kernel[(batch,)](input_ids, target_tokens, correct_len, bonus, width, BLOCK=_power_of_two(max(width - 1, 1)))
    row = torch.arange(width, device=input_ids.device)
    accept_index.copy_(torch.where(row <= correct_len[:, None], row, -1))


@binding(
    "kv_move",
    "sglang.kernels.ops.kvcache.cache_move",
    "sglang.srt.mem_cache.utils",
    "sglang.srt.mem_cache.memory_pool",
    layout={"k_pool": "012", "v_pool": "012", "src": "0", "dst": "0"},
    invalid={"src": None, "dst": None},
    draws={"missing": False},
    cannot="every index must exist; rows of keys and of values are packed",
)
def copy_all_layer_kv_cache_tiled(kernel: Any, k_pool: Tensor, v_pool: Tensor, src: Tensor, dst: Tensor) -> None:
    count, device = len(src), src.device
    rows = [pool.stride(0) * pool.element_size() for pool in (k_pool, v_pool)]
    bases = torch.tensor([k_pool.data_ptr(), v_pool.data_ptr()], dtype=torch.uint64, device=device)
    tile = _power_of_two(max(rows))
    kernel[(2, 1)](bases, torch.tensor(rows, device=device), dst, src, count, _power_of_two(count), BYTES_PER_TILE=tile)
