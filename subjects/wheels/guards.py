"""Whether a line of a source file stands where a failed import is expected and handled."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def is_guarded(file: str, line: int) -> bool:
    """Return whether the line is in the body of a `try` that goes on after an ImportError, or suppresses it."""
    return any(first <= line <= last for first, last in _guarded(file))


@cache
def _guarded(file: str) -> tuple[tuple[int, int], ...]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return tuple(_span(node.body) for node in ast.walk(tree) if _goes_on(node))  # type: ignore[attr-defined]


def _span(body: list[ast.stmt]) -> tuple[int, int]:
    last = body[-1]
    return body[0].lineno, last.end_lineno or last.lineno


def _goes_on(node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        return any(_catches(one) and not _raises(one.body) for one in node.handlers)
    if isinstance(node, ast.With):
        return any(ast.unparse(item.context_expr).endswith("suppress(ImportError)") for item in node.items)
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(kind).rpartition(".")[2] in _CAUGHT for kind in kinds)


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Raise) for statement in body for node in ast.walk(statement))
