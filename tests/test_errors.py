"""Every error of the project has one base class and a name that says that it is an error."""

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure import parsed, statements

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("properties", "reference", "kernels", "engine", "harness", "faults", "fuzz", "report", "subjects", "tracer")
ROOMS += ("draftproof",)
CONTROL_FLOW = {"TimeLimitError", "Ended", "CheckInterrupted"}
"""Exceptions that are no errors of ours: one that a subject cannot swallow, how a command ends, and a Ctrl-C."""

Classes = dict[str, frozenset[str]]


def classes(source: str) -> Classes:
    """Class name -> names of its bases, without their modules."""
    return {
        node.name: frozenset(ast.unparse(base).rpartition(".")[2] for base in node.bases)
        for node in statements(parsed(source))
        if isinstance(node, ast.ClassDef)
    }


def is_builtin_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def derives(name: str, known: Classes, is_wanted) -> bool:
    """Return whether a class is wanted itself or has such a base at any depth."""
    return is_wanted(name) or any(derives(base, known, is_wanted) for base in known.get(name, ()) if base != name)


def wrong(known: Classes) -> list[str]:
    errors = [name for name in known if derives(name, known, is_builtin_exception)]
    return sorted(
        name
        for name in errors
        if name not in CONTROL_FLOW
        and not (name.endswith("Error") and derives(name, known, lambda one: one == "DraftproofError"))
    )


def sources() -> Classes:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return {name: bases for file in files for name, bases in classes(file.read_text(encoding="utf-8")).items()}


def test_every_error_has_the_base_and_the_ending():
    known = sources()
    assert known["TimeLimitError"] == {"BaseException"}
    assert {"CheckpointError", "SubjectCrashedError", "StalePatchError"} <= set(known)
    assert wrong(known | {"DraftproofError": frozenset({"Exception"})}) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("class Hung(DraftproofError): pass", "Hung"),
        ("class LostError(ValueError): pass", "LostError"),
        ("class BadError(KeyError): pass\nclass WorseError(BadError): pass", "WorseError"),
        ("def f():\n    class HiddenError(Exception): pass", "HiddenError"),
    ],
)
def test_an_error_outside_of_the_family_is_found(source, name):
    assert name in wrong(classes(source) | {"DraftproofError": frozenset({"Exception"})})


def test_the_errors_import_nothing():
    code = (
        "import sys, draftproof; before = set(sys.modules); import draftproof.properties.lib.errors;"
        " print(sorted(set(sys.modules) - before)[-1], len(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "draftproof.properties.lib.errors 3", "it, and the packages that it lies in"
