"""Ops that only other engines have: their twins, the calls they are held to, and wrong implementations."""

import inspect
from itertools import islice

import pytest
import torch

from draftproof.harness.bound_kernels import EVERY_TWIN
from draftproof.properties.kernels.contract import check
from draftproof.properties.kernels.listed import calls
from draftproof.properties.kernels.others.cases import EVERY_CASES
from draftproof.properties.kernels.others.table import ALL_OPS, INDICES, OTHERS
from draftproof.properties.kernels.table import OPS
from draftproof.reference import others
from tests.kernels import wrong_others  # noqa: F401 (it lists)
from tests.kernels.wrong import WRONG

MISTAKES = [one for one in WRONG if one[0] in OTHERS]


def test_every_op_has_a_twin_a_strategy_and_a_row():
    assert sorted(OTHERS) == sorted(others.OTHER_TWINS) == list(OTHERS)
    assert sorted(ALL_OPS) == sorted(EVERY_CASES) == sorted(EVERY_TWIN)
    assert not OPS.keys() & OTHERS.keys()
    for name, op in OTHERS.items():
        parameters = list(inspect.signature(others.OTHER_TWINS[name]).parameters)
        assert set(op.writes) <= set(parameters)
        for case in islice(calls(name, 0), 2):
            assert list(case.arguments) == parameters


def test_indices_are_arguments_and_their_dimensions_exist():
    for name, indices in INDICES.items():
        (case,) = islice(calls(name, 0), 1)
        for index, (of, dimension) in indices.items():
            assert case.buffers[index].storage.dtype == torch.int64
            assert dimension < len(case.buffers[of].shape)


@pytest.mark.parametrize(("op", "name", "kernel"), MISTAKES, ids=[f"{op}-{name}" for op, name, _ in MISTAKES])
def test_a_wrong_implementation_is_caught(op: str, name: str, kernel):
    twin = EVERY_TWIN[op]
    assert not any(check(op, twin, twin, case) for case in islice(calls(op, 1), 4))
    assert any(check(op, kernel, twin, case) for case in islice(calls(op, 0), 60)), f"{name} passes {op}"


def test_every_op_has_a_wrong_implementation():
    assert {op for op, _, _ in MISTAKES} == set(OTHERS)
