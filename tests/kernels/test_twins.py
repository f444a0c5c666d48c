"""Every op has a naive twin, an eager function and a Triton launcher of the same name and signature."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from draftproof import kernels
from draftproof.kernels import registry
from draftproof.properties.kernels import table
from draftproof.properties.kernels.cases import CASES
from draftproof.properties.kernels.table import OPS, Op, OpValues
from draftproof.reference import ops

TWINS = Path(ops.__file__).parent
FOLDER = Path(kernels.__file__).parent
EAGER = [importlib.import_module(f"draftproof.kernels.{path.stem}") for path in sorted(FOLDER.glob("eager_*.py"))]


def names(module: ModuleType) -> set[str]:
    """Return the public functions that a module defines itself."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return {name for name, function in functions if function.__module__ == module.__name__ and name[0] != "_"}


def owner(name: str) -> ModuleType:
    """Return the one eager module that defines `name`."""
    found = [module for module in EAGER if name in names(module)]
    assert len(found) == 1, f"{name} is defined in {found}"
    return found[0]


def launcher_parameters(name: str) -> list[str]:
    """Return a launcher's parameters, read from its source: importing it here would import Triton."""
    for path in sorted(FOLDER.glob("triton_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return [argument.arg for argument in node.args.args]
    raise AssertionError(f"no Triton launcher {name}")


def test_every_op_has_a_twin_a_strategy_and_a_row_of_the_table():
    assert list(OPS) == sorted(registry.REGISTERED_OPS) == sorted(ops.OP_TWINS) == list(CASES)
    assert all(
        getattr(kernels, op) is registry.REGISTERED_OPS[op] and getattr(ops, op) is ops.OP_TWINS[op] for op in OPS
    )


@pytest.mark.parametrize("name", OPS)
def test_signatures_are_the_same(name: str):
    twin = inspect.signature(getattr(ops, name))
    assert inspect.signature(getattr(owner(name), name)) == twin
    assert [argument.name for argument in getattr(kernels, name).op._schema.arguments] == list(twin.parameters)
    assert launcher_parameters(name) == list(twin.parameters)


@pytest.mark.parametrize("name", OPS)
def test_the_schema_declares_what_is_written(name: str):
    arguments = getattr(kernels, name).op._schema.arguments
    written = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
    assert tuple(written) == OPS[name].writes
    assert getattr(kernels, name).op._schema.returns == []


def test_the_twins_import_nothing_of_ours_but_one_another():
    files = sorted(TWINS.glob("*.py"))
    assert len(files) > 5
    for file in files:
        tree = ast.parse(file.read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        foreign = {name for name in imported if not name.startswith("draftproof.reference.ops")}
        # What a row draws, and what penalties make of it, is the same function in a run and in a call.
        foreign -= {"draftproof.reference.sampling", "draftproof.reference.penalties"}
        assert foreign <= {"collections.abc", "inspect", "itertools", "math", "torch", "typing"}, file


def test_nothing_else_in_the_reference_imports_the_twins():
    others = [path for path in TWINS.parent.rglob("*.py") if TWINS not in path.parents]
    assert len(others) > 10
    for path in others:
        assert "reference.ops" not in path.read_text(), path
        assert "reference import ops" not in path.read_text(), path


def test_each_tolerance_has_a_reason_and_only_ops_of_floats_have_one():
    rows = [(op, row) for op in OPS.values() for row in op.tolerances.values()]
    assert all(row.reason and 0 < row.bound < 0.1 and op.values is not OpValues.INTEGER for op, row in rows)
    # What is only moved, differs by an exact subtraction, or is rounded once to a byte, is equal to the bit.
    exact = {"best_choices", "fp8_write"}
    assert {name for name, op in OPS.items() if op.values is OpValues.FLOAT and not op.tolerances} == exact
    assert OPS["rope"].bound("q", "float32") == 4e-6
    assert OPS["rope"].bound("positions", "float32") is None
    assert OPS["kv_write"].bound("k_pool", "float32") is None
    with pytest.raises(KeyError, match="rope in float8"):
        OPS["rope"].bound("q", "float8")


def test_a_promise_stands_above_each_row_of_the_table():
    promised = re.findall(r"# [A-Z].+\.\n    Op\(\s*\"(\w+)\"", Path(table.__file__).read_text(encoding="utf-8"))
    assert sorted(promised) == list(OPS)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_a_row_of_the_table_names_arguments_of_its_op(op: Op):
    parameters = set(inspect.signature(getattr(ops, op.name)).parameters)
    rounded = {op.rounded_like} if op.rounded_like else set()
    named = {*op.writes, *op.scratch, *op.letters, *rounded}
    assert named <= parameters
    assert set(op.moves) < set(op.writes)


def test_an_op_is_registered_under_our_namespace():
    assert kernels.kv_write.op is torch.ops.draftproof.kv_write.default
    assert registry.implementation(torch.device("cpu")) == "eager"
