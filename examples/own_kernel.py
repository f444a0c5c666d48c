"""Kernels of one's own under contract: see docs/own-kernel.md.

PYTHONPATH=examples draftproof lab kernels check --impl own_kernel:last_tokens --op bonus_tokens
PYTHONPATH=examples draftproof lab kernels check --impl own_kernel:packed_last_tokens
"""

import triton
import triton.language as tl

from draftproof.op import binding


@triton.jit
def _last_tokens_kernel(bonus, tokens, accept_lens, row_stride, column_stride, length_stride, bonus_stride):
    row = tl.program_id(0)
    last = tl.load(accept_lens + row * length_stride) - 1
    tl.store(bonus + row * bonus_stride, tl.load(tokens + row * row_stride + last * column_stride))


def last_tokens(bonus, tokens, accept_lens):
    """Write the last accepted token of each row: the arguments are those of the op bonus_tokens."""
    _last_tokens_kernel[(len(bonus),)](
        bonus, tokens, accept_lens, *tokens.stride(), accept_lens.stride(0), bonus.stride(0)
    )


@triton.jit
def packed_last_tokens_kernel(bonus, tokens, accept_lens, row_stride):
    row = tl.program_id(0)
    last = tl.load(accept_lens + row) - 1
    tl.store(bonus + row, tl.load(tokens + row * row_stride + last))


@binding(
    "bonus_tokens",
    "own_kernel",
    kernel="packed_last_tokens_kernel",
    layout={"tokens": "0|1", "bonus": "0", "accept_lens": "0"},
    int32=("bonus", "accept_lens"),
    cannot="gaps between the elements of a row",
)
def packed_last_tokens(kernel, bonus, tokens, accept_lens):
    """Call a kernel that takes packed rows, and integers of 32 bits."""
    kernel[(len(bonus),)](bonus, tokens, accept_lens, tokens.stride(0))
