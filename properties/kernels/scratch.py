"""Memory that an op allocates for itself: filled with poison, and guarded on both sides, while a contract watches.

An op that reads it before writing it reads poison, and one that writes past its end changes a guard. Otherwise a
partial sum that lands in the place of the next head would be overwritten by the right one before anything is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from draftproof.properties.kernels.case import words

POISON_VALUE = 77
_ALIGNED = 64
_OF_TORCH = ("aten", "prim", "prims")

_aten = torch.ops.aten
_EMPTY = {_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default}
_EMPTY |= {_aten.new_empty.default, _aten.new_empty_strided.default}


class GuardedScratch(TorchDispatchMode):
    """While entered, every uninitialised tensor that is made lies between guards, full of poison."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._zones: list[tuple[torch.Tensor, slice]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace not in _OF_TORCH:
            return self._within(func, args, kwargs or {})
        made = func(*args, **(kwargs or {}))
        if func not in _EMPTY or made.is_meta or not made.numel():
            return made
        guard, extent = _guard(made), 1 + sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True))
        zone = torch.full((extent + 2 * guard,), POISON_VALUE, dtype=made.dtype, device=made.device)
        inside = slice(guard, guard + extent)
        zone[inside] = float("nan") if made.is_floating_point() else POISON_VALUE
        self._zones.append((zone, inside))
        return zone.as_strided(made.shape, made.stride(), guard)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: a wrapper would import dynamo, which takes a second."""
        return False

    def _within(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a registered op and watch what it allocates: a mode is off while it handles a call."""
        devices = {x.device.type for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)}
        key = torch._C.DispatchKey.CUDA if "cuda" in devices else torch._C.DispatchKey.CPU
        with self:
            return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)

    def damage(self) -> tuple[int, float] | None:
        """Return the first changed element of a guard, counted from the start of the scratch, and its value."""
        for zone, inside in self._zones:
            guards = zone.cpu()
            right = torch.full_like(guards, POISON_VALUE)
            guards[inside] = right[inside]
            changed = (words(guards) != words(right)).nonzero().flatten()
            if changed.numel():
                return int(changed[0]) - inside.start, guards[changed[0]].item()
        return None


class HiddenScratch(GuardedScratch):
    """The same, hidden from dynamo, which would compile what handles a call along with a kernel that it compiles."""

    __torch_dispatch__ = GuardedScratch.__torch_dispatch__

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True


def guarded_scratch() -> GuardedScratch:
    """Return one that dynamo does not see, where it has been imported: a kernel may be compiled."""
    return HiddenScratch() if "torch._dynamo" in sys.modules else GuardedScratch()


def _guard(made: torch.Tensor) -> int:
    """Return how many elements a guard has: a row at least, and the alignment that an allocation has."""
    row = made.stride(0) if made.dim() else 1
    return -(-row // _ALIGNED) * _ALIGNED or _ALIGNED
