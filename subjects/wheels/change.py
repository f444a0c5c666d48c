"""A module of a wheel with its source text changed in one place."""

from __future__ import annotations

import ast
import tempfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from draftproof.properties.lib.errors import DraftproofError


class ChangeError(DraftproofError, ValueError):
    """A text that cannot be changed, since it is not there, or more than once."""


def changed(module: ModuleType, function: str, old: str, new: str) -> ModuleType:
    """Return a module like this one, but with `new` in place of `old` in a function of it. Raises ChangeError.

    It is run from a file of its own, which lives as long as the process, since Triton reads the source of kernels.
    """
    file = Path(module.__file__ or "")
    text = changed_text(file.read_text(encoding="utf-8"), function, old, new, module.__name__)
    place = Path(_folder().name) / f"{len(list(Path(_folder().name).iterdir()))}_{file.name}"
    place.write_text(text, encoding="utf-8")
    spec = spec_from_file_location(module.__name__, place)
    assert spec is not None, f"{place} has no loader"
    assert spec.loader is not None, f"{place} has no loader"
    made = module_from_spec(spec)
    made.__package__ = module.__package__
    spec.loader.exec_module(made)
    return made


def changed_text(text: str, function: str, old: str, new: str, where: str) -> str:
    """Return a module's text with `new` in place of `old` in a function. Raises ChangeError."""
    spans = [
        (node.lineno - 1, node.end_lineno)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    if len(spans) != 1:
        raise ChangeError(f"invalid function {function!r} of a fault: expected one of this name in {where}")
    (first, last) = spans[0]
    lines = text.splitlines(keepends=True)
    body = "".join(lines[first:last])
    if (there := body.count(old)) != 1:
        raise ChangeError(f"invalid text {old!r} of a fault: expected once in {function} of {where}, not {there} times")
    return "".join((*lines[:first], body.replace(old, new), *lines[last:]))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="draftproof-")
