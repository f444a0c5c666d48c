"""What a fault writes into the engine names only what is there: else an error of its own would be what is noticed."""

import builtins
import symtable
from collections.abc import Mapping

import pytest

from draftproof.faults.catalogue import catalogue, read_sources
from draftproof.faults.patching import apply, by_path


def unknown(source: str) -> set[str]:
    """Return the names that a module reads, and nothing in it defines."""
    module = symtable.symtable(source, "module", "exec")
    known = {one.get_name() for one in module.get_symbols() if one.is_assigned() or one.is_imported()}
    tables, read = [module], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table is module
        read |= {
            one.get_name() for one in table.get_symbols() if one.is_referenced() and (is_module or one.is_global())
        }
    return read - known - set(dir(builtins)) - {"__file__", "__name__"}


@pytest.fixture(scope="module")
def sources() -> Mapping[str, str]:
    return {path: text for path, text in read_sources().items() if path.endswith(".py")}


@pytest.mark.parametrize(
    ("line", "name"),
    [("steps = runtime.steps", {"runtime"}), ("steps = self.steps", set()), ("steps = len(self)", set())],
)
def test_a_name_that_nothing_defines_is_seen(line: str, name: set[str]):
    assert unknown(f"import os\nclass Engine:\n    def run(self):\n        {line}\n        return os, steps\n") == name


def test_what_faults_write_names_what_is_there(sources: Mapping[str, str]):
    known = {path: unknown(text) for path, text in sources.items()}
    wrong = {}
    for name, file in catalogue().items():
        for path, hunks in by_path(file.hunks()).items():
            if path in sources and (found := unknown(apply(sources[path], hunks)[0]) - known[path]):
                wrong[name] = found
    assert wrong == {}
