"""Calls made such as a binding's kernel takes them: layout, dtypes, indices that do not exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from draftproof.properties.formats.kernel_binding import BindingError, KernelBinding
from draftproof.properties.kernels.buffers import DRAWS, floats
from draftproof.properties.kernels.case import Buffer, KernelCase
from draftproof.properties.kernels.listed import calls
from draftproof.properties.kernels.others.table import ALL_OPS, INDICES
from draftproof.properties.lib.names import did_you_mean

Arguments = Mapping[str, Buffer | int | float]
_INT32_MAX = 2**31 - 1


def verify(binding: KernelBinding, twin: Callable[..., None]) -> None:
    """Raise BindingError unless the binding fits its op; `twin` is the op's naive twin."""
    names = list(inspect.signature(twin).parameters)
    if binding.op not in ALL_OPS:
        raise _wrong(binding, "op", binding.op, f"one of {len(ALL_OPS)} ops{did_you_mean(binding.op, ALL_OPS)}")
    for field, allowed, none in (
        ("layout", names, ""),
        ("int32", names, ""),
        ("booleans", names, ""),
        ("invalid", INDICES.get(binding.op, ()), "none, the op has no index that may not exist"),
        ("draws", DRAWS.get(binding.op, ()), "none, its calls are drawn in one way"),
    ):
        for argument in getattr(binding, field):
            if argument not in allowed:
                raise _wrong(binding, field, argument, f"arguments of {binding.op}: {', '.join(allowed) or none}")
    for argument, order in binding.layout.items():
        if not isinstance(order, str):
            raise _wrong(binding, "layout", f"{argument}={order!r}", "text, such as '0|1'")
    for dtype in binding.dtypes:
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise _wrong(binding, "dtypes", dtype, "names of dtypes of PyTorch, such as 'float32'")
    takes = list(inspect.signature(binding.call).parameters)
    wanted = ["kernel", *names] if binding.modules else names
    if takes != wanted:
        raise _wrong(binding, "call", ", ".join(takes), ", ".join(wanted))


def _wrong(binding: KernelBinding, field: str, value: object, expected: str) -> BindingError:
    return BindingError(f"invalid {field} {value!r} of binding {binding.name}: expected {expected}")


def calls_of(binding: KernelBinding, seed: int) -> Iterator[KernelCase]:
    """Yield the op's calls in dtypes that the kernel takes, without an end."""
    known = {str(one).removeprefix("torch."): one for one in (torch.int64, torch.float64, *floats())}
    dtypes = [known[name] for name in binding.dtypes if name in known]
    return calls(binding.op, seed, dtypes, **binding.draws)


def adapted(case: KernelCase, binding: KernelBinding) -> KernelCase | None:
    """Return the call as the binding's kernel takes it, None if it cannot be made so. Raises BindingError."""
    arguments = dict(case.arguments)
    for name, value in binding.invalid.items():
        without = _without_invalid(case, name, value)
        if without is None:
            return None
        arguments[name] = without
    if binding.given is not None:
        for name, values in _asked(binding, "given", arguments).items():
            given = _tensor(binding, "given", name, arguments)
            if tuple(values.shape) != given.shape:
                raise _wrong(binding, "given", f"{name} of shape {list(values.shape)}", f"one of {list(given.shape)}")
            held = replace(given, storage=given.storage.clone())
            held.tensor.copy_(values)
            arguments[name] = held
    for names, dtype in ((binding.int32, torch.int32), (binding.booleans, torch.bool)):
        for name in names:
            narrow = _narrowed(arguments[name], dtype, is_written=name in ALL_OPS[case.op].writes)
            if narrow is None:
                return None
            arguments[name] = narrow
    for name, order in binding.layout.items():
        arguments[name] = _laid(binding, name, order, arguments[name])
    if binding.limit is not None and not _asked(binding, "limit", arguments):
        return None
    return KernelCase(case.op, arguments)


def _asked(binding: KernelBinding, field: str, arguments: Arguments) -> Any:
    """Return what a function of a binding says of arguments as a kernel gets them, on the host. Raises BindingError."""
    try:
        return getattr(binding, field)(*(one.tensor if isinstance(one, Buffer) else one for one in arguments.values()))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise _wrong(binding, field, said, f"a function of {', '.join(arguments)} that raises nothing") from error


def _tensor(binding: KernelBinding, field: str, name: str, arguments: Arguments) -> Buffer:
    buffer = arguments.get(name)
    if not isinstance(buffer, Buffer):
        known = ", ".join(known for known, one in arguments.items() if isinstance(one, Buffer))
        raise _wrong(binding, field, name, f"a tensor of {binding.op}: {known}")
    return buffer


def _narrowed(buffer: object, dtype: torch.dtype, *, is_written: bool) -> Buffer | None:
    """Return an argument of integers in another dtype, None if one that is read does not fit."""
    assert isinstance(buffer, Buffer), "no tensor has another dtype"
    values = buffer.tensor
    if not is_written and dtype == torch.int32 and values.numel() and int(values.abs().max()) > _INT32_MAX:
        return None
    return replace(buffer, storage=buffer.storage.to(dtype))


def _without_invalid(case: KernelCase, name: str, value: int | None) -> Buffer | None:
    """Return an index argument with `value` for what does not exist; None if that cannot be, and something does not."""
    of, dimension = INDICES[case.op][name]
    buffer, size = case.buffers[name], case.buffers[of].shape[dimension]
    storage = buffer.storage.clone()
    index = buffer.of(storage)
    wild = (index < 0) | (index >= size)
    if value is None:
        return None if bool(wild.any()) else buffer
    index[wild] = value
    return replace(buffer, storage=storage)


def _laid(binding: KernelBinding, name: str, order: str, buffer: object) -> Buffer:
    """Return the argument in another order in memory, between as much poison as before."""
    assert isinstance(buffer, Buffer), f"{name} is no tensor"
    others = "".join(str(i) for i in range(len(buffer.shape)) if str(i) not in order)
    outer, _, inner = order.replace("*", others).rpartition("|")
    dimensions = [int(digit) for digit in outer + inner if digit.isdigit()]
    if sorted(dimensions) != list(range(len(buffer.shape))):
        every = "".join(map(str, range(len(buffer.shape))))
        raise _wrong(binding, "layout", f"{name}={order}", f"each of the dimensions {every} of {name} once")
    strides, step = [0] * len(buffer.shape), 1
    for place, dimension in enumerate(reversed(dimensions)):
        strides[dimension] = step + (place >= len(inner))
        step = strides[dimension] * max(1, buffer.shape[dimension])
    # Behind a tensor there is always some.
    poison, room = buffer.storage[buffer.elements < 0], buffer.storage.numel() - buffer.tensor.numel()
    storage = poison[-1:].expand(buffer.offset + step + room).clone()
    laid = Buffer(storage, buffer.shape, tuple(strides), buffer.offset)
    laid.tensor.copy_(buffer.tensor)
    return laid


def free_elements(binding: KernelBinding, case: KernelCase) -> Mapping[str, torch.Tensor]:
    """Return masks of the elements that the kernel may leave as anything."""
    if binding.undefined is None:
        return {}
    masks: Mapping[str, torch.Tensor] = _asked(binding, "undefined", case.arguments)
    for name, mask in masks.items():
        shape = _tensor(binding, "undefined", name, case.arguments).shape
        if mask.dtype != torch.bool or tuple(mask.shape) != shape[: mask.dim()]:
            said = f"{name} of {mask.dtype}, shape {list(mask.shape)}"
            raise _wrong(binding, "undefined", said, f"a mask of its elements or rows, of {list(shape)}")
    return masks
