"""The sources as a graph of modules, read without importing them."""

import ast
import tomllib
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _rooms() -> dict[str, str]:
    """Return the folder of every top-level package, as the installation maps them."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return setuptools["package-dir"]


ROOMS = _rooms()


@cache
def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a source, for readers only: most tests read the same ones."""
    return ast.parse(source)


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Return (file, syntax tree) of every module of the sources by its dotted name."""
    found = {}
    for package, folder in ROOMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = (path, parsed(path.read_text(encoding="utf-8")))
    return found


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement of a syntax tree, without a look into expressions."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(tree, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def imported_names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield the dotted names of one import; those of a relative one are resolved against `package`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    yield from (f"{module}.{alias.name}" for alias in node.names)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_of(node: ast.AST, *, types: bool = False, functions: bool = True) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that running the code makes, with `functions` those in them too, and `types` for checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not functions and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif types or not is_type_checking(child):
            yield from imports_of(child, types=types, functions=functions)


def module_of(name: str, modules: Container[str]) -> str | None:
    """Return the module that an imported name is or lies in; None if it is not of the sources."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


@cache
def graph(*, types: bool = False) -> dict[str, frozenset[str]]:
    """Return the modules that each module imports, with `types` also those that only type checkers do."""
    modules = sources()
    arrows = {}
    for name, (path, tree) in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {
            module_of(imported, modules)
            for node in imports_of(tree, types=types)
            for imported in imported_names(node, package)
        }
        arrows[name] = frozenset(module for module in found if module is not None and module != name)
    return arrows


def cycles(arrows: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return the strongly connected sets of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            start = stack.index(name)
            found.append(sorted(stack[start:]))
            del stack[start:]

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return sorted(one for one in found if len(one) > 1)
