"""Exchange kernels for their naive twins in this process, and see which kernels are called."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from draftproof.properties.kernels.table import OPS

NAMESPACE = "draftproof"
KERNELS = tuple(OPS)
"""Every kernel has a naive twin of its name."""
Kernel = Callable[..., None]


@contextmanager
def twins(names: Iterable[str], device: str) -> Iterator[None]:
    """Every call of these ops on `device` is served by the naive twin meanwhile.

    On CUDA the twin works on copies on the host, which cannot be captured. The package draftproof.kernels that is
    imported here must be the one under test. Raises ValueError for a name that is no kernel's.
    """
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in KERNELS:
            raise ValueError(f"invalid twin {name!r}: expected {', '.join(KERNELS)}")
    import torch

    from draftproof import kernels
    from draftproof.kernels.registry import counted
    from draftproof.reference import ops

    library = torch.library.Library(NAMESPACE, "IMPL")
    before = {name: getattr(kernels, name).host for name in wanted}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
            for name in wanted:
                kernel, twin = getattr(kernels, name), getattr(ops, name)
                if device == "cuda":
                    library.impl(name, counted(name, _on_host(twin, kernel.op)), "CUDA", allow_override=True)
                else:
                    kernel.host = twin
        yield
    finally:
        library._destroy()
        for name, host in before.items():
            getattr(kernels, name).host = host


def _on_host(twin: Kernel, op: Any) -> Kernel:
    """Return the twin on copies of its tensors; what it may write is copied back."""
    import torch

    written = [place for place, one in enumerate(op._schema.arguments) if one.alias_info and one.alias_info.is_write]

    def call(*arguments: Any) -> None:
        host = [one.cpu() if isinstance(one, torch.Tensor) else one for one in arguments]
        twin(*host)
        for place in written:
            arguments[place].copy_(host[place])

    return call


@contextmanager
def watched(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the name of each kernel before its first call; calls inside of captures and replays count."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()

    class Watching(TorchDispatchMode):
        """Sees every op."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            space, _, name = func._schema.name.partition("::")
            if space == NAMESPACE and name in KERNELS and name not in seen:
                seen.add(name)
                note(name)
            return func(*args, **(kwargs or {}))

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """No: a wrapper would import dynamo, which takes a second, and compiles no kernel of ours."""
            return False

    untyped: Any = Watching
    with untyped():
        yield
