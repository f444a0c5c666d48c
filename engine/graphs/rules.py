"""Which torch operations a graph cannot hold, and what is known of each operation from its schema."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

# Seen by name: these are either untagged or tagged too widely (`index` is tagged dynamic for its boolean form only).
_FORBIDDEN = {
    "aten::_local_scalar_dense": ("host_read", "it reads a value of the device on the host"),
    "aten::equal": ("host_read", "it reads a value of the device on the host"),
    "aten::lift_fresh": ("lift_fresh", "it copies host memory to the device; make the tensor before capture"),
    "aten::set_": ("set_", "it rebinds a tensor, and a graph's addresses are fixed"),
    "aten::resize_": ("resize_", "it rebinds a tensor, and a graph's addresses are fixed"),
}
_TAGGED = (
    (torch.Tag.data_dependent_output, "data_dependent", "its output depends on values of the device"),
    (torch.Tag.dynamic_output_shape, "dynamic_shape", "its output's shape depends on values of the device"),
    (torch.Tag.inplace_view, "inplace_view", "it changes a tensor's shape in place, and a graph's addresses are fixed"),
)
_INDEXING = frozenset(
    f"aten::{name}"
    for name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
)
_ALLOCATORS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
# Functions of torch that take what the operations of their names take, and take a fraction of the time to be called.
_DIRECT: dict[str, Callable[..., Any]] = {
    f"aten.{name}.{kind}": getattr(torch, name)
    for kind, names in {
        "Tensor": ("add", "sub", "mul", "bitwise_and", "ge", "gt", "le", "lt", "eq"),
        "Scalar": ("remainder", "bitwise_and", "ge", "gt", "le", "lt", "eq"),
        "default": ("addcmul", "floor_divide", "clamp", "gather", "index_select", "cat", "unsqueeze"),
    }.items()
    for name in names
}
_DIRECT |= {"aten.copy_.default": Tensor.copy_, "aten.where.self": torch.where, "aten.select.int": torch.select}
# What an out= variant takes from its output instead.
_IMPLIED_BY_OUT = frozenset({"dtype", "layout", "device", "pin_memory"})


@dataclass(frozen=True)
class OpFacts:
    """What the recorder needs to know of one operation.

    `forbidden`: (rule, reason) or None. `restricted`: forbidden always or with some arguments. `is_view`: without
    effect, and all outputs alias inputs, unless they turn out to be in new memory. `writes`: positions and names of
    mutated arguments. `is_kernel`: one of ours, which returns nothing. `out`: the out= variant, with the names of its
    outputs and of arguments to drop, or None. `call` is what runs it.
    """

    name: str
    forbidden: tuple[str, str] | None
    indexing: bool
    restricted: bool
    is_view: bool
    allocates: bool
    seeded: bool
    composite: bool
    copies: bool
    is_kernel: bool
    writes: tuple[tuple[int, str], ...]
    out: tuple[Callable[..., Any], tuple[str, ...], frozenset[str]] | None
    call: Callable[..., Any]


@cache
def facts_of(func: OpOverload) -> OpFacts:
    """Read the facts of `func` from its schema and tags."""
    schema, name = func._schema, func._schema.name
    written = tuple((i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write)
    return OpFacts(
        name=str(func),
        forbidden=_forbidden(func),
        indexing=name in _INDEXING,
        restricted=name in _INDEXING or _forbidden(func) is not None,
        is_view=not written and bool(schema.returns) and all("Tensor" in str(r.type) for r in schema.returns),
        allocates=name in _ALLOCATORS,
        seeded=torch.Tag.nondeterministic_seeded in func.tags,
        composite=func._can_decompose(),
        copies=name in ("aten::clone", "aten::_to_copy"),
        is_kernel=func.namespace == "draftproof" and not schema.returns,
        writes=written,
        out=_out_variant(func) if func.namespace == "aten" and not written else None,
        call=_DIRECT.get(str(func), func._op),
    )


def _forbidden(func: OpOverload) -> tuple[str, str] | None:
    name = func._schema.name
    if name in _FORBIDDEN:
        return _FORBIDDEN[name]
    if name in _INDEXING:
        return None
    return next(((rule, reason) for tag, rule, reason in _TAGGED if tag in func.tags), None)


def _out_variant(func: OpOverload) -> tuple[Callable[..., Any], tuple[str, ...], frozenset[str]] | None:
    """Find the overload that takes the same arguments and the outputs, which spares an allocation and a copy."""
    packet = func.overloadpacket
    wanted = {a.name: str(a.type) for a in func._schema.arguments}
    for candidate in (getattr(packet, overload) for overload in packet.overloads()):
        arguments = candidate._schema.arguments
        outs = tuple(a.name for a in arguments if a.is_out)
        given = {a.name: str(a.type) for a in arguments if not a.is_out}
        dropped = wanted.keys() - given.keys()
        kept = {name: kind for name, kind in wanted.items() if name not in dropped}
        if len(outs) == len(func._schema.returns) and given == kept and dropped <= _IMPLIED_BY_OUT:
            return _DIRECT.get(str(func), candidate._op), outs, frozenset(dropped)
    return None


# Bound once: looking a method up on its class costs as much as the call that it guards.
_TO, _SETITEM = Tensor.to, Tensor.__setitem__
_HOST = "it reads the device's memory on the host"
# On the CPU none of these reaches the dispatcher as what it is on a device.
_FORBIDDEN_FUNCTIONS: dict[Any, tuple[str, str]] = {
    Tensor.item: ("item", _HOST),
    Tensor.tolist: ("tolist", _HOST),
    Tensor.numpy: ("numpy", _HOST),
    Tensor.cpu: ("cpu", _HOST),
    Tensor.data_ptr: ("data_ptr", "an address means nothing to a graph's own memory"),
    Tensor.__array__: ("__array__", _HOST),
    Tensor.__dlpack__: ("__dlpack__", _HOST),
    Tensor.data.__set__: ("data", "it rebinds a tensor, and a graph's addresses are fixed"),  # type: ignore[attr-defined]
}


# All that the function level has to look at: one look-up lets any other call pass.
WATCHED = frozenset({_TO, _SETITEM, *_FORBIDDEN_FUNCTIONS})


def forbidden_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """(rule, reason) if this call at function level cannot be captured."""
    if func is _TO and any(_is_cpu(value) for value in (*args[1:], *kwargs.values())):
        return "to_cpu", _HOST
    return _FORBIDDEN_FUNCTIONS.get(func)


def _is_cpu(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cpu"
    return isinstance(value, str) and value.split(":")[0] == "cpu"


def has_mask(value: object) -> bool:
    """Return whether a boolean (or uint8) mask is among the indices of an indexing operation."""
    return isinstance(value, (list, tuple)) and any(
        isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in value
    )
