"""Whether two sources are the same program: comments, white space and texts that nothing reads do not count."""

from __future__ import annotations

import ast
from functools import lru_cache

from draftproof.faults.patching import PatchError


def parsed(path: str, text: str) -> ast.Module:
    """Return a patched source. Raises PatchError naming its file and the line if it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        number = getattr(error, "lineno", None)
        where = f", line {number}" if number else ""
        lines = text.splitlines()
        line = f" in {lines[number - 1].strip()!r}" if number and number <= len(lines) else ""
        why = error.msg if isinstance(error, SyntaxError) else error
        raise PatchError(f"{path}{where}: the patched source is not Python: {why}{line}") from None


@lru_cache(maxsize=1024)
def parsed_once(path: str, text: str) -> ast.Module:
    """Return a source that many faults change, which is parsed once for all of them. Raises what `parsed` raises."""
    return parsed(path, text)


def same(one: object, other: object) -> bool:
    """Return whether two parts of programs do the same because they are written the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        return all(same(getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
    if isinstance(one, list) and isinstance(other, list):
        left, right = ([part for part in parts if not is_docstring(part)] for parts in (one, other))
        return len(left) == len(right) and all(map(same, left, right))
    return one == other


def is_docstring(node: object) -> bool:
    """Return whether a statement is a text and nothing else: a docstring, or one below a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
