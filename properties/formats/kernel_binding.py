"""A binding: how an op is called on a package's kernel, and what the kernel cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from draftproof.properties.lib.errors import DraftproofError

Call = Callable[..., None]
"""call(kernel, *arguments of the op): gives the kernel what it takes, and puts what it returns where the op has it."""


class BindingError(DraftproofError, ValueError):
    """A binding that cannot be used; the message names the field, its value and what is allowed."""


@dataclass(frozen=True, eq=False)
class KernelBinding:
    """How an op is called on a kernel, the attribute `kernel` of the first of `modules` that there is.

    The generated calls of the op are changed to calls that the kernel takes. `dtypes` are the dtypes of values that it
    takes ((): all of the op's), `draws` further arguments of the op's strategy. `layout` gives an argument its order in
    memory, outermost first, as digits of dimensions: "0|21" has dimensions 1 and 2 packed, 1 innermost, and gaps
    between rows of 0; "*" are all others. `int32` names integers that the kernel has in 32 bits only, `booleans` those
    that are true or false. `invalid` is the value for an index that does not exist, None if the kernel cannot be given
    any. `parameters` names those without which the kernel of a release does not serve the op at all. `interpreted` is
    False for a kernel that Triton's interpreter cannot run. `cannot` says all this to a reader.

    The others are functions of the op's arguments. `given` returns what arguments must hold, where the kernel supports
    one value only; `limit` whether the kernel can serve a call at all (others are left out); and `undefined` masks of
    the elements, or rows, of arguments that may be left with any value.
    """

    op: str
    name: str
    call: Call
    kernel: str = ""
    modules: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    draws: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, str] = field(default_factory=dict)
    int32: tuple[str, ...] = ()
    booleans: tuple[str, ...] = ()
    invalid: Mapping[str, int | None] = field(default_factory=dict)
    given: Callable[..., Mapping[str, Any]] | None = None
    limit: Callable[..., bool] | None = None
    undefined: Callable[..., Mapping[str, Any]] | None = None
    parameters: tuple[str, ...] = ()
    interpreted: bool = True
    cannot: str = ""


def binding(op: str, *modules: str, kernel: str = "", **takes: Any) -> Callable[[Call], KernelBinding]:
    """Turn the function of a call into a binding of its name, which is the kernel's, too, unless `kernel` is given."""

    known = [one.name for one in fields(KernelBinding) if one.name not in ("op", "name", "call", "kernel", "modules")]
    for word in takes.keys() - {*known}:
        raise BindingError(f"invalid argument {word!r} of a binding of {op}: expected {', '.join(known)}")

    def make(call: Call) -> KernelBinding:
        return KernelBinding(op, call.__name__, call, kernel or call.__name__, tuple(modules), **takes)

    return make


def bindings_of(names: Mapping[str, Any]) -> Sequence[KernelBinding]:
    """Return the bindings among the names of a module, in the order in which they stand there."""
    return [value for value in names.values() if isinstance(value, KernelBinding)]
