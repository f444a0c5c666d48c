"""Run a float64 transformers model without its internal float32 casts, so that it can witness a float64 reference."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Widen(TorchDispatchMode):
    """Every cast to float32 becomes one to float64.

    `rewrites` counts them. Leaving the mode raises AssertionError if there were none, since the witness would then
    be an ordinary model; so does any operation under it whose result is narrower than float64 after all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rewrites = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
            self.rewrites += 1
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW:
                raise AssertionError(f"{func} still yields {leaf.dtype}")
        return result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if kind is None and not self.rewrites:
            raise AssertionError("no cast was widened: the model has none, or does not run under this mode")
