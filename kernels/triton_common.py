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
    """Finalizer of SplitMix64 on int64 values; as uint64 in between, where `>>` is logical."""
    x = x.to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return (x ^ (x >> 31)).to(tl.int64, bitcast=True)


def power_of_two(size: int, least: int = 1) -> int:
    """Return the block size that covers `size` elements."""
    return max(least, triton.next_power_of_2(size))


def strides(*tensors: torch.Tensor) -> list[int]:
    """Return the strides of all tensors in order, as the kernels list them."""
    return [stride for tensor in tensors for stride in tensor.stride()]
