"""What the Triton kernels share: the ring's mix, block sizes, and programmatic dependent launch.

Launchers pass sizes and strides from the tensors themselves. The stride of the last dimension is left to Triton's
specialisation (1 or not, which decides how loads are joined); the others are not, so that a new batch size or page
layout compiles nothing. Indices are int64 before they meet a stride. What only probes launch, and kernels of indices,
are compiled for any size, with blocks that hold any probe: a compilation is most of what a scenario on a GPU costs.

Programmatic dependent launch lets a kernel start while the one before it still runs, which hides the cost of a launch
in a chain of short kernels. It changes no result, because a kernel launched so (`PDL`) keeps these rules:

1. Every program waits (`gdc_wait`), on every path, and before that touches no memory that a kernel may write: no store
   at all, and no load but of model weights. A prefetch is none of these: `prefetch` brings lines into L2, where all
   memory traffic meets, and reads nothing into the program. A slot that is read to know which lines may be out of date,
   so it is a hint that is good for a prefetch only, within bounds, and read past L1 (`.cg`), which would keep it.
2. It lets the next kernel start (`gdc_launch_dependents`) when it likes: that promises nothing about memory. Behind the
   wait is best for short kernels: before it, kernel after kernel comes to wait on the multiprocessors, and programs of
   one kernel are put where there is room left and not side by side. A kernel that never says so lets the next one start
   as its programs end.
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

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.registry import implementation


@triton.jit
def prefetch(p, wanted):
    """Ask for the line of each pointer to be brought into L2 where it is `wanted`; compiled kernels only."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.b32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.b32 $0, 0; }",
        "=r,l,r", [p, wanted.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


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
def jit_for_any_size(function: Callable[..., None]) -> Any:
    """Return a kernel that is compiled once, whatever sizes, strides and alignments its launches have.

    Probes have other sizes in every scenario, and compiling takes longer than all that is launched there.
    """
    free = [name for name, one in inspect.signature(function).parameters.items() if one.annotation is not tl.constexpr]
    return triton.jit(function, do_not_specialize=free, do_not_specialize_on_alignment=free)


def kernel_for(tensor: Tensor, kernel: Any) -> Any:
    """Return the kernel as it is for a tensor of floats, and for one of the ring or of codes `jit_for_any_size`."""
    return kernel if tensor.is_floating_point() else jit_for_any_size(kernel.fn)


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
