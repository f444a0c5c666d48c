"""Registration of every kernel as a torch op, and the choice of its implementation.

Each op takes its outputs preallocated, declares what it mutates and returns nothing. On CUDA it is the Triton kernel.
On CPU it is the eager implementation, or the same Triton kernel under the interpreter in a process that was started
with `TRITON_INTERPRET=1`; Triton reads that variable when it is imported, so the choice holds for the whole process.
"""

import importlib
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch._C import _len_torch_function_stack as function_modes

from draftproof.kernels.interpreted import mend_numbers

_LIBRARY = torch.library.Library("draftproof", "DEF")
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

Eager = TypeVar("Eager", bound=Callable[..., None])
CALLS: Counter[str] = Counter()
"""How often each op has run in this process, by its name. A replay of a CUDA graph adds what was captured."""


class Kernel:
    """A torch op, callable with the argument names of its eager function; `host` serves it on the CPU.

    A call on the CPU that no mode of torch watches goes to `host` at once: the dispatcher takes as long as a small
    kernel.
    """

    def __init__(self, op: torch._ops.OpOverload, host: Callable[..., None]) -> None:
        self.op, self.host = op, host
        self._name = op._opname

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if not (kwargs or dispatch_modes() or function_modes()) and type(args[0]) is Tensor and args[0].is_cpu:
            self.run(*args)
        else:
            self.op(*args, **kwargs)

    def run(self, *args: Any) -> None:
        """Run on the CPU."""
        CALLS[self._name] += 1
        self.host(*args)


REGISTERED_OPS: dict[str, Kernel] = {}
"""Every op by its name."""


def implementation(device: str | torch.device = "cpu") -> str:
    """Return which implementation serves tensors of `device` in this process: eager, interpreted or cuda."""
    if torch.device(device).type == "cuda":
        return "cuda"
    return "interpreted" if _INTERPRETED else "eager"


def register(*writes: str) -> Callable[[Eager], Eager]:
    """Register an eager function as the op of its name, which writes these arguments, and return it as it was.

    The op's schema is the function's signature. Its Triton launcher is the function of the same name in the module
    beside this one, triton_dense.py beside eager_dense.py; it is imported at the first launch, so that the eager path
    never imports Triton.
    """

    def define(eager: Eager) -> Eager:
        name = eager.__name__
        launch = _lazy_launcher(eager.__module__.replace(".eager_", ".triton_"), name)
        _LIBRARY.define(name + torch.library.infer_schema(eager, mutates_args=writes))
        kernel = Kernel(getattr(torch.ops.draftproof, name).default, launch if _INTERPRETED else eager)
        _LIBRARY.impl(name, kernel.run, "CPU")
        _LIBRARY.impl(name, counted(name, launch), "CUDA")
        torch.library.register_fake(f"draftproof::{name}", _nothing, lib=_LIBRARY)
        REGISTERED_OPS[name] = kernel
        return eager

    return define


def counted(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
    """Return the kernel, which counts its calls in CALLS from now on."""

    def call(*args: object) -> None:
        CALLS[name] += 1
        kernel(*args)

    return call


def _lazy_launcher(module: str, name: str) -> Callable[..., None]:
    def launch(*args: object) -> None:
        if _INTERPRETED:
            mend_numbers()
        getattr(importlib.import_module(module), name)(*args)

    return launch


def _nothing(*_: object) -> None:
    """Return nothing: every op writes into arguments that the caller allocated."""
