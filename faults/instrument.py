"""Counters in patched sources: one call a hunk, so that a fault that never ran is known as inert.

The call goes before the hunk's first changed statement (for a pure deletion, beside the statement that follows). A
Triton function cannot call Python: there the counter sits where the host code launches it. Which lines a hunk wrote is
told, too, as they are numbered with the counters between them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cached_property, lru_cache
from typing import NamedTuple

from draftproof.faults.patching import Placed
from draftproof.faults.programs import is_docstring
from draftproof.harness.hunk_counters import COUNTER

_JIT = re.compile(r"(?:\w+\.)*jit(?:_\w+)?(?!\w)")


class _Insertion(NamedTuple):
    """A call to insert before line `line` of a file, indented by `indent`."""

    line: int
    indent: int
    number: int


class _Source:
    """A file, parsed when it is first asked about: most are not."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, text.splitlines()

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes, outside in, level by level."""
        return tuple(ast.walk(ast.parse(self.text)))

    @cached_property
    def jits(self) -> tuple[tuple[str, tuple[ast.AST, ...]], ...]:
        """The Triton functions: their names, and the nodes of each."""
        functions = (node for node in self.nodes if isinstance(node, ast.FunctionDef) and _is_jit(node))
        return tuple((function.name, tuple(ast.walk(function))) for function in functions)

    @cached_property
    def parent(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def statement(self, line: int) -> ast.stmt | None:
        """Return the innermost statement that covers a line, decorators included."""
        best: ast.stmt | None = None
        for node in self.nodes:
            if isinstance(node, ast.stmt) and _first_line(node) <= line <= (node.end_lineno or node.lineno):
                best = node  # the last is the innermost
        return best

    def function(self, node: ast.AST | None) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the innermost function around a node, or the node itself."""
        while node is not None and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node = self.parent.get(node)
        return node

    def before(self, node: ast.stmt, line: int, number: int) -> _Insertion:
        """Return an insertion point that runs whenever `node` (or, for a changed signature, its body) does."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and line < node.body[0].lineno:
            node = node.body[1] if is_docstring(node.body[0]) and len(node.body) > 1 else node.body[0]
        while not self._starts_its_line(node):
            node = self.parent[node]  # type: ignore[assignment]
        return _Insertion(_first_line(node), node.col_offset, number)

    def _starts_its_line(self, node: ast.AST) -> bool:
        """Return False for `elif`, for the body of a one-line compound, and for what must stay first in a module."""
        if isinstance(node, ast.excepthandler) or not isinstance(node, ast.stmt):
            return False
        before = self.lines[node.lineno - 1].encode()[: node.col_offset]
        here = self.lines[node.lineno - 1].encode()[node.col_offset :]
        return not before.strip() and not here.startswith(b"elif")


@lru_cache(maxsize=1024)
def _unchanged(text: str) -> _Source:
    """Return a file that no hunk changes, which is parsed once for all faults."""
    return _Source(text)


def instrument(
    files: Mapping[str, str],
    placed: Mapping[str, tuple[Placed, ...]],
    old: Mapping[str, str],
    idle: Collection[Placed] = (),
) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """Return the patched `files` (path -> text), which are Python, with counters, and path -> the lines of hunks there.

    Hunks are numbered from 0 in the order of `placed`. Those of `idle`, which change nothing, have no counter.
    """
    sources = {path: (_unchanged if text == old.get(path) else _Source)(text) for path, text in files.items()}
    insertions: dict[str, list[_Insertion]] = {path: [] for path in files}
    hunks = ((path, hunk) for path, of_path in placed.items() for hunk in of_path)
    for number, (path, hunk) in enumerate(hunks):
        if hunk in idle:
            continue
        for where, insertion in _insertions(sources, path, hunk, old[path], number):
            insertions[where].append(insertion)
    texts = {path: _insert(source.lines, insertions[path]) for path, source in sources.items()}
    return texts, {path: _own(sources[path], of_path, insertions[path]) for path, of_path in placed.items()}


def _own(source: _Source, placed: Iterable[Placed], insertions: Iterable[_Insertion]) -> tuple[int, ...]:
    """Return the lines that hunks wrote, as they are numbered once the insertions are there."""
    lines = {line for hunk in placed for line in hunk.added}
    before = [insertion.line for insertion in insertions]
    every = lines | _called_with(source, lines) if lines else lines
    return tuple(line + sum(other <= line for other in before) for line in sorted(every))


def _called_with(source: _Source, lines: Set[int]) -> set[int]:
    """Return where calls begin that have an argument in one of these lines: there a wrong one is told."""
    calls = [node for node in source.nodes if isinstance(node, ast.Call)]
    wrong = [
        call for call in calls if lines & {one.lineno for one in [*call.args, *(kw.value for kw in call.keywords)]}
    ]
    return {line for call in wrong for line in (call.lineno, call.func.end_lineno or call.lineno)}


def _insertions(
    sources: Mapping[str, _Source], path: str, placed: Placed, old: str, number: int
) -> Iterable[tuple[str, _Insertion]]:
    source = sources[path]
    line = _first_code(placed.added) or _line_after(source, placed, _unchanged(old))
    node = source.statement(line) or _next_statement(source, line)
    if node is None or not line:  # without a line it changes comments only
        return
    function = source.function(node)
    if function is not None and _is_jit(function):
        yield from _launches(sources, function.name, number)
        return
    if function is None and (isinstance(node, ast.ImportFrom) or is_docstring(node)):
        node = _next_statement(source, line) or node
    if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        yield path, source.before(node, line, number)


def _line_after(source: _Source, placed: Placed, old: _Source) -> int:
    """Return a line of the new file where a pure deletion shows: in the cut statement, after it, or before it."""
    # The hunk adds no statement, so that all else moves up by their number.
    removed, first = placed.removed, _first_code(placed.removed)

    def shift(line: int) -> int:
        return line + placed.new_start - placed.start - sum(gone < line for gone in removed)

    cut = old.statement(first)
    if cut is None:
        return first
    rest = [line for line in range(_first_line(cut), (cut.end_lineno or 0) + 1) if line not in removed]
    if rest:
        return shift(rest[0])
    parent = old.parent[cut]
    block = next(block for name in ("body", "orelse", "finalbody") if cut in (block := getattr(parent, name, ())))
    here = block.index(cut)
    for sibling in (*block[here + 1 :], *reversed(block[:here])):
        if _first_line(sibling) not in removed:
            return shift(_first_line(sibling))
    return first


def _first_code(lines: Mapping[int, str]) -> int:
    """Return the first of numbered lines that is neither blank nor a comment; 0 if there is none."""
    return next((number for number, line in lines.items() if line.strip() and not line.strip().startswith("#")), 0)


def _next_statement(source: _Source, line: int) -> ast.stmt | None:
    later = [node for node in source.nodes if isinstance(node, ast.stmt) and node.lineno > line]
    return min(later, key=lambda node: (node.lineno, node.col_offset), default=None)


def _launches(sources: Mapping[str, _Source], name: str, number: int) -> Iterable[tuple[str, _Insertion]]:
    """Where host functions use a Triton function, directly or through other Triton functions."""
    names = _callers(sources, name)
    for path, source in sources.items():
        seen: set[int] = set()
        for node in source.nodes:
            if not _uses(node, names):
                continue
            function, statement = source.function(node), source.statement(node.lineno)  # type: ignore[attr-defined]
            if function is None or _is_jit(function) or statement is None or statement.lineno in seen:
                continue
            seen.add(statement.lineno)
            yield path, source.before(statement, statement.lineno, number)


def _callers(sources: Mapping[str, _Source], name: str) -> set[str]:
    """Return the Triton function and those that call it, however far."""
    names = {name}
    while True:
        more = {
            jit
            for source in sources.values()
            for jit, nodes in source.jits
            if any(_uses(node, names) for node in nodes)
        }
        if more <= names:
            return names
        names |= more


def _uses(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Attribute) and node.attr in names


def _is_jit(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a decorator is one of Triton's or of kernels/: `jit`, `triton.jit(..)`, `jit_for_any_size`."""
    return any(_JIT.match(ast.unparse(decorator)) for decorator in function.decorator_list)


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _insert(lines: list[str], insertions: list[_Insertion]) -> str:
    text = list(lines)
    for insertion in sorted(insertions, key=lambda i: i.line, reverse=True):
        text.insert(insertion.line - 1, " " * insertion.indent + f"{COUNTER}({insertion.number})")
    return "\n".join((*text, ""))
