"""What the author of a kernel imports: generated calls of an op, its contract, and bindings (docs/own-kernel.md)."""

from draftproof.harness.kernel_runs import cases, diverges
from draftproof.properties.formats.kernel_binding import KernelBinding, binding
from draftproof.properties.kernels.buffers import Aim
from draftproof.properties.kernels.drawn import kernel_cases

__all__ = ["Aim", "KernelBinding", "binding", "cases", "diverges", "kernel_cases"]
