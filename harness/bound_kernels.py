"""Kernels of packages, through bindings, against the naive twins of their ops."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

from draftproof.harness.kernel_runs import divergence
from draftproof.harness.signals import exits_noticed
from draftproof.properties.formats.kernel_binding import BindingError, KernelBinding, bindings_of
from draftproof.properties.kernels import scratch
from draftproof.properties.kernels.adapted import adapted, calls_of, free_elements, verify
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.contract import check
from draftproof.properties.kernels.others.table import ALL_OPS
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.values.verdict import Divergence
from draftproof.reference import ops, others

BOUND_PACKAGES = ("fla", "sglang", "vllm")
"""Packages with bindings here, by the name that --impl takes."""
EVERY_TWIN: dict[str, Callable[..., None]] = {**ops.OP_TWINS, **others.OTHER_TWINS}
"""The naive twin of each op, the built-in engine's and others'."""
# At most this many calls are generated for each one that a kernel takes; the rest are left out.
_TRIES = 12


def found(name: str, op: str | None = None) -> tuple[KernelBinding, ...]:
    """Return the bindings that MODULE or MODULE:NAME stands for, all of the op if one is named.

    A function that is no binding takes the arguments of the op as they are. Raises BindingError.
    """
    if op is not None and op not in ALL_OPS:
        hint = did_you_mean(op, ALL_OPS) or f": {', '.join(sorted(ALL_OPS))}"
        raise BindingError(f"invalid --op {op!r}: expected one of {len(ALL_OPS)} ops{hint}")
    module, _, attribute = name.partition(":")
    names = vars(_imported(name, module))
    if attribute and attribute not in names:
        known = [one.name for one in bindings_of(names)]
        hint = did_you_mean(attribute, known) or f"; its bindings are {', '.join(known) or 'none'}"
        raise BindingError(f"invalid --impl {name!r}: {module} has no {attribute}{hint}")
    chosen = [_bound(name, names[attribute], op)] if attribute else list(bindings_of(names))
    chosen = [one for one in chosen if op in (None, one.op)]
    if not chosen:
        raise BindingError(f"invalid --impl {name!r}: expected a binding{f' of {op}' if op else ''}, and there is none")
    for one in chosen:
        verify(one, EVERY_TWIN.get(one.op, lambda: None))
    return tuple(chosen)


def _imported(name: str, module: str) -> ModuleType:
    full = f"draftproof.subjects.kernels.{module}" if module in BOUND_PACKAGES else module
    try:
        with exits_noticed():
            return importlib.import_module(full)
    except (KeyboardInterrupt, DraftproofError):
        raise
    except BaseException as error:
        # sys.exit(0) is no way to end in green, nor is os._exit(0).
        expected = f"MODULE:NAME with a module that can be imported, or {', '.join(BOUND_PACKAGES)}"
        raise BindingError(f"invalid --impl {name!r}: expected {expected}: {type(error).__name__}: {error}") from error


def _bound(name: str, value: Any, op: str | None) -> KernelBinding:
    if isinstance(value, KernelBinding):
        return value
    if op is None or not callable(value):
        raise BindingError(
            f"invalid --impl {name!r}: expected a binding, or with --op a function of the op's arguments"
        )
    return KernelBinding(op, name.partition(":")[2], value)


def cases(binding: KernelBinding, seed: int, count: int) -> tuple[tuple[KernelCase, ...], int]:
    """Return at most `count` calls that the binding's kernel takes, and how many were left out to find them.

    They are a function of the arguments and of whether Triton is interpreted in this process. Raises BindingError.
    """
    taken, left_out = list[KernelCase](), 0
    for case in islice(calls_of(binding, seed), _TRIES * count):
        kept = adapted(case, binding)
        left_out += kept is None
        taken += [kept] if kept else []
        if len(taken) == count:
            break
    return tuple(taken), left_out


def kernel_of(binding: KernelBinding, module: ModuleType | None) -> Any:
    """Return the kernel from its module; None of a binding that has its own. Raises BindingError."""
    if module is None:
        return None
    try:
        return getattr(module, binding.kernel)
    except AttributeError:
        raise BindingError(
            f"invalid kernel {binding.kernel!r} of binding {binding.name}: {module.__name__} has no such name"
        ) from None


def judged(binding: KernelBinding, kernel: Any, case: KernelCase, device: str) -> Divergence | None:
    """Return the first difference between the kernel and the twin in one call.

    Raises BindingError for what the binding does wrong, and whatever the kernel raises.
    """

    def implementation(*arguments: Any) -> None:
        try:
            binding.call(*(arguments if not binding.modules else (kernel, *arguments)))
        except Exception as error:
            frame, line = _innermost(error)
            if binding.modules and frame.f_code is binding.call.__code__:
                said = f"{type(error).__name__}: {error}"
                raise BindingError(f"invalid call of binding {binding.name}, line {line}: {said}") from error
            raise

    differences = check(binding.op, implementation, EVERY_TWIN[binding.op], case, device, free_elements(binding, case))
    return divergence(differences[0]) if differences else None


def _innermost(error: Exception) -> tuple[FrameType, int]:
    """Return where an error was raised, and the line: not in PyTorch, nor in what watches memory that is allocated."""
    frames = list(traceback.walk_tb(error.__traceback__))
    watching = ("torch", scratch.__name__)
    return next(one for one in reversed(frames) if not one[0].f_globals.get("__name__", "").startswith(watching))
