"""Bindings of SGLang's kernels. The request table is packed, since kernels take its width for its stride.

The first module is where newer releases have a kernel, others where older ones have it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from draftproof.properties.values.kernel_binding import binding

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
