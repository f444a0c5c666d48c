"""The four layers of tests are all tests, and no line of the lists of layers has become idle."""

import ast
import itertools
import re
from functools import cache

import pytest
from _pytest.mark.expression import Expression

from tests.layers import BETWEEN, FAST, LAYERS, LONG, SLOW, Layer, has, layer
from tests.nightly import PARTS
from tests.structure import ROOT, parsed

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SELECTED = dict(re.findall(r'^(test\S*):.*\n(?:.*\\\n)*?\t.*pytest.* -m "([^"]+)"', MAKEFILE, re.MULTILINE))
MARKERS = (*LAYERS, "gpu")


def selected(expression: str) -> set[tuple[str, ...]]:
    """Return the sets of markers whose tests an expression selects; no test is in two layers."""
    every = [one for size in range(len(MARKERS) + 1) for one in itertools.combinations(MARKERS, size)]
    allowed = [one for one in every if len(set(LAYERS).intersection(one)) < 2]
    compiled = Expression.compile(expression)
    return {one for one in allowed if compiled.evaluate(lambda name, among=one, **_: name in among)}


def test_the_layers_together_are_all_tests():
    assert SELECTED.keys() == {"test", "test-fast", "test-slow", "test-long"}
    fast, test, *apart = (selected(SELECTED[name]) for name in ("test-fast", "test", "test-slow", "test-long"))
    assert fast < test
    assert sorted((*test, *apart[0], *apart[1])) == sorted(selected("not gpu"))


def test_ci_runs_what_a_change_reaches_and_the_night_all_layers():
    change, night, vllm = ((ROOT / ".ci" / name).read_text(encoding="utf-8") for name in ("run", "nightly", "vllm"))
    commands = change.splitlines()
    assert 'make test ARGS="$tests"' in commands
    assert any("make test-slow" in command for command in commands)
    assert "make test-long" not in change
    assert "make nightly" in night.splitlines()
    assert {"test", "test-slow", "test-long"} <= set(PARTS)
    assert "make vllm" in vllm.splitlines()
    assert all("make vllm" in text for text in (change, night))


@cache
def names_of_tests() -> tuple[str, ...]:
    """Return file::function of every test."""
    return tuple(
        f"{path.relative_to(ROOT).as_posix()}::{node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(parsed(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("prefix", [*FAST, *BETWEEN, *SLOW, *LONG])
def test_every_line_names_a_test(prefix):
    assert any(name.startswith(prefix) for name in names_of_tests())


def test_a_new_test_is_in_the_layer_between():
    assert layer("tests/engine/test_new.py::test_new[1]") is None
    assert layer("tests/properties/test_new.py::test_new") == "fast"
    assert layer("tests/kernels/test_compile.py::test_new") == "slow"


def test_lists_alone_say_which_tests_are_in_a_layer():
    """What a marker in a file says is not known before it is imported."""
    files = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    assert set().union(*map(markers, files)).isdisjoint(LAYERS)
    assert markers("@pytest.mark.slow\ndef test(): pytest.mark.gpu(1)") == {"slow", "gpu"}


def markers(source: str) -> set[str]:
    """Return every name that stands behind `pytest.mark.`."""
    attributes = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if ast.unparse(node.value) == "pytest.mark"}


@pytest.mark.parametrize("wanted", LAYERS)
def test_no_file_with_a_test_of_a_layer_is_left_out(wanted: Layer):
    files = {name.partition("::")[0] for name in names_of_tests() if layer(name) == wanted}
    assert {file for file in {name.partition("::")[0] for name in names_of_tests()} if has(wanted, file)} == files


def test_the_marker_is_there(request: pytest.FixtureRequest):
    assert request.node.get_closest_marker("fast")
