"""What the Triton kernels share: the ring's mix, block sizes, and programmatic dependent launch.

Launchers pass sizes and strides from the tensors themselves. The stride of the last dimension is left to Triton's
specialisation (1 or not, which decides how loads are joined); the others are not, so that a new batch size or page
layout compiles nothing. Indices are int64 before they meet a stride.

Programmatic dependent launch lets a kernel start while the one before it still runs, which hides the cost of a launch
in a chain of short kernels. It changes no result, because a kernel launched so (`PDL`) keeps two rules:

1. Every program waits (`gdc_wait`), on every path, and before that touches no memory that a kernel may write: no store
   at all, and no load but of model weights.
2. It lets the next kernel start (`gdc_launch_dependents`) as early as it likes: that promises nothing about memory.
3. It may read more before its wait only if one launcher launches it and the kernel before it, and that one lets it
   start behind its own wait: then all kernels but that one have completed. It reads nothing that that one writes, and
   past L1 (`.cg`), which may hold what was there before.

The wait ends when the kernel before has completed and what it wrote is visible. That kernel waited too, or was launched
without PDL and so began after all before it, hence it completes only after its own predecessor: by induction all
earlier kernels of the stream have completed, also those that were still waiting when this one started. So behind the
wait there is nothing to race with, neither a value not yet written nor one still to be read from memory used anew. A
kernel launched without PDL starts after the one before it has completed, and the same induction serves it. Nothing
deadlocks: the next kernel starts only once all programs of this one are running or done.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.registry import implementation


@triton.jit
def mix(x):
    """Return SplitMix64's finalizer of int64 values; as uint64 in between, where `>>` is logical."""
    x = x.to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return (x ^ (x >> 31)).to(tl.int64, bitcast=True)


def power_of_two(size: int, least: int = 1) -> int:
    """Return the block size that covers `size` elements."""
    return max(least, triton.next_power_of_2(size))


@cache
def dependent_launch(device: torch.device) -> dict[str, bool]:
    """Return the arguments of a launch that say whether it is a programmatic dependent one: PDL, for the kernel too."""
    if implementation(device) != "cuda" or torch.version.cuda is None:
        return {"PDL": False}
    # Hopper is the first to have it.
    if torch.cuda.get_device_capability(device) < (9, 0):
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


def strides(*tensors: Tensor) -> list[int]:
    """Return the strides of all tensors in order, as the kernels list them."""
    return [stride for tensor in tensors for stride in tensor.stride()]
