"""The table of what a scenario has, made from the code (tables.py writes it)."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator

import msgspec

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
