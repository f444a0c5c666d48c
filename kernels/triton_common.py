"""What the Triton kernels share: the ring's mix, and block sizes.

Launchers pass sizes and strides from the tensors themselves. The stride of the last dimension is left to Triton's
specialisation (1 or not, which decides how loads are joined); the others are not, so that a new batch size or page
layout compiles nothing. Indices are int64 before they meet a stride.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def mix(x):
    """Finalizer of SplitMix64 on int64; `>>` is arithmetic there, so the sign bits are masked off."""
    x = x ^ ((x >> 30) & 0x3FFFFFFFF)
    x = x * -4658895280553007687
    x = x ^ ((x >> 27) & 0x1FFFFFFFFF)
    x = x * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def power_of_two(size: int, least: int = 1) -> int:
    """Return the block size that covers `size` elements."""
    return max(least, triton.next_power_of_2(size))


def strides(*tensors: torch.Tensor) -> list[int]:
    """Return the strides of all tensors in order, as the kernels list them."""
    return [stride for tensor in tensors for stride in tensor.stride()]
