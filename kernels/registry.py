"""Registration of every kernel as a torch op, and the choice of its implementation.

Each op takes its outputs preallocated, declares what it mutates and returns nothing. On CUDA it is the Triton kernel.
On CPU it is the eager implementation, or the same Triton kernel under the interpreter in a process that was started
with `TRITON_INTERPRET=1`; Triton reads that variable when it is imported, so the choice holds for the whole process.
"""

import importlib
import os
from collections.abc import Callable

import torch

_LIBRARY = torch.library.Library("draftproof", "DEF")
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def implementation(device: str | torch.device = "cpu") -> str:
    """Return which implementation serves tensors of `device` in this process: eager, interpreted or cuda."""
    if torch.device(device).type == "cuda":
        return "cuda"
    return "interpreted" if _INTERPRETED else "eager"


def register(schema: str, eager: Callable[..., None], triton_module: str) -> torch._ops.OpOverload:
    """Define the op `schema` and return it, callable with the schema's argument names.

    `eager` has the op's name and signature; `triton_module` names the sibling module whose function of the same name
    launches the Triton kernel. That module is imported at the first launch, so the eager path never imports Triton.
    """
    name = eager.__name__
    launch = _lazy_launcher(triton_module, name)
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, launch if _INTERPRETED else eager, "CPU")
    _LIBRARY.impl(name, launch, "CUDA")
    torch.library.register_fake(f"draftproof::{name}", _nothing, lib=_LIBRARY)
    return getattr(torch.ops.draftproof, name).default


def _lazy_launcher(module: str, name: str) -> Callable[..., None]:
    def launch(*args: object) -> None:
        getattr(importlib.import_module(f"draftproof.kernels.{module}"), name)(*args)

    return launch


def _nothing(*_: object) -> None:
    """Return nothing: every op writes into arguments whose shapes the caller gave."""
