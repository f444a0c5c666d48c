"""What engine and reference both use is listed in docs/shared.md, each with a witness that reads neither side."""

import ast
import re
import sys
from pathlib import Path

from tests.structure import ROOMS, ROOT, graph, imports_of, sources

SIDES = ("draftproof.engine", "draftproof.reference")


def listed(text: str) -> dict[str, str]:
    """What stands in the first column of the table, with its witness."""
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$", text, flags=re.MULTILINE)
    return {name: witness for names, witness in rows for name in re.findall(r"`([^`]+)`", names)}


LISTED = listed((ROOT / "docs/shared.md").read_text(encoding="utf-8"))


def of_side(module: str, side: str) -> bool:
    return f"{module}.".startswith(f"{side}.")


def file_of(module: str) -> str:
    """The file of a module as a reader of the repository knows it; a package that has a row stands for its modules."""
    package, folder = next(
        (package, folder) for package, folder in sorted(ROOMS.items(), reverse=True) if of_side(module, package)
    )
    path = "/".join((folder, *module.removeprefix(package).strip(".").split(".")))
    parents = [f"{parent.as_posix()}/" for parent in (Path(path), *Path(path).parents)]
    return next((parent for parent in parents if parent in LISTED), f"{path}.py")


def packages_of(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports."""
    names = set()
    for node in imports_of(tree):
        found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        names |= {name.partition(".")[0] for name in found}
    return names - set(sys.stdlib_module_names) - {"draftproof", ""}


def used(side: str, arrows: dict[str, frozenset[str]]) -> set[str]:
    """What a side imports from outside of its room."""
    modules = [module for module in arrows if of_side(module, side)]
    own = {file_of(other) for module in modules for other in arrows[module] if not of_side(other, side)}
    return own | {name for module in modules if module in sources() for name in packages_of(sources()[module][1])}


def test_what_both_sides_use_is_listed():
    engine, reference = (used(side, graph()) for side in SIDES)
    assert engine & reference == set(LISTED)
    assert len(LISTED) > 10


def test_neither_side_imports_the_other():
    for side, other in (SIDES, SIDES[::-1]):
        found = {module for module in graph() if of_side(module, side) for to in graph()[module] if of_side(to, other)}
        assert found == set()


def test_something_new_in_common_would_be_seen():
    more = dict(graph())
    for module in ("draftproof.engine.pages", "draftproof.reference.decode"):
        more[module] |= {"draftproof.properties.variants"}
    engine, reference = (used(side, more) for side in SIDES)
    assert engine & reference - set(LISTED) == {"properties/variants.py"}


def test_every_witness_is_there():
    from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME

    assert all(len(witness) > 5 for witness in LISTED.values())
    for name in {name for witness in LISTED.values() for name in re.findall(r"`([^`]+)`", witness)}:
        assert (ROOT / name).is_file() or name in CONTRACTS_BY_NAME or name.startswith("oracle."), name
