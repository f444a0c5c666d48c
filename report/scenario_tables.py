"""The table of what a scenario has, made from the code (tables.py writes it)."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator

import msgspec
from msgspec import inspect as kinds

from draftproof.properties.values import scenario as of
from draftproof.report.definitions import linked
from draftproof.report.markdown import table

_STRUCTS: tuple[type[msgspec.Struct], ...] = (
    of.Scenario,
    of.Request,
    of.RoundPlan,
    of.Checkpoint,
    of.Memory,
    of.Schedule,
    of.Graphs,
    of.States,
)


def fields() -> str:
    """Return what a scenario has, and each part of it: a row a struct, and one for each field with words of its own."""
    return table(("value", "what it is"), (row for one in _STRUCTS for row in _rows(one)))


def limits() -> str:
    """Return the type of every field of a scenario and of its parts, what it may be at most, and its default."""
    found: dict[type, kinds.StructType] = {}
    _collect(kinds.type_info(of.Scenario), found)
    rows = (
        (f"`{one.cls.__name__}.{field.name}`", _type(field.type), _default(field))
        for one in found.values()
        for field in one.fields
    )
    return table(("field", "type and limits", "default"), rows)


def _collect(kind: kinds.Type, found: dict[type, kinds.StructType]) -> None:
    """Add the structs that a type has, each once, outside in."""
    if isinstance(kind, kinds.StructType) and kind.cls not in found:
        found[kind.cls] = kind
        for field in kind.fields:
            _collect(field.type, found)
    elif isinstance(kind, kinds.UnionType):
        for one in kind.types:
            _collect(one, found)
    elif isinstance(kind, kinds.VarTupleType):
        _collect(kind.item_type, found)


def _type(kind: kinds.Type) -> str:
    match kind:
        case kinds.IntType() | kinds.FloatType():
            return ("integer" if isinstance(kind, kinds.IntType) else "number") + _range(kind)
        case kinds.StrType(min_length=least, max_length=most):
            return f"text of {least} to {most} characters" if most else "text"
        case kinds.LiteralType(values=values):
            return " or ".join(f"`{one}`" for one in values)
        case kinds.VarTupleType(item_type=item, min_length=least, max_length=most):
            count = f" of {least} to {most}" if most else f" of at least {least}" if least else ""
            return f"list{count}: {_type(item)}"
        case kinds.StructType(cls=cls, tag=tag):
            return f"`{cls.__name__}`" + (f' (`"kind": "{tag}"`)' if tag else "")
        case kinds.UnionType(types=types):
            return " or ".join(map(_type, types))
        case kinds.NoneType():
            return "`null`"
    assert isinstance(kind, kinds.BoolType), kind
    return "`true` or `false`"


def _range(kind: kinds.IntType | kinds.FloatType) -> str:
    least, most = kind.ge, kind.le if kind.lt is None else kind.lt - 1
    if kind.gt is not None:
        return f" above {kind.gt}" + (f", at most {most}" if most is not None else "")
    if least is None:
        return "" if most is None else f", at most {most}"
    return f", at least {least}" if most is None else f", {least} to {most}"


def _default(field: kinds.Field) -> str:
    return "-" if field.required else f"`{msgspec.json.encode(field.default).decode()}`"


def _rows(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    told = _words(struct)
    others = ", ".join(f"`{name}`" for name in struct.__struct_fields__ if name not in told)
    yield f"`{struct.__name__}`{f': {others}' if others else ''}", _linked(inspect.getdoc(struct) or "")
    yield from ((f"`{struct.__name__}.{name}`", _linked(text)) for name, text in told.items())


def _words(struct: type) -> dict[str, str]:
    """Return the string below each field, where there is one."""
    (body,) = (one.body for one in ast.parse(inspect.getsource(struct)).body if isinstance(one, ast.ClassDef))
    return {
        one.target.id: two.value.value
        for one, two in itertools.pairwise(body)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(two, ast.Expr) and isinstance(two.value, ast.Constant) and isinstance(two.value.value, str)
    }


def _linked(text: str) -> str:
    return linked(" ".join(text.split())).replace("docs/semantics/", "").replace("|", "\\|")
