"""Lists of calls come to every block of every kernel, whatever the seed; a check is inconclusive without."""

import re
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import DataObject, data

from draftproof import kernels
from draftproof.harness.kernel_check import kernel_verdicts
from draftproof.harness.kernel_runs import cases, kernel_calls
from draftproof.properties.choose import SeededChoose
from draftproof.properties.kernels.blocks import BLOCKS, POWERS, lacking, random_aim
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.contract import Kernel, check
from draftproof.properties.kernels.drawn import kernel_cases
from draftproof.properties.kernels.listed import LEAST_CALLS, calls, enough
from draftproof.properties.kernels.table import MOST_CALLS, OPS
from draftproof.properties.values.verdict import Outcome
from draftproof.reference import ops
from tests.kernels.lane import writes_something
from tests.kernels.wrong_blocks import WRONG_BLOCKS

SOURCES = sorted(Path(kernels.__file__).parent.glob("*.py"))
SEEDS = (0, 1, 7)


@lru_cache(maxsize=2)
def listed(op: str, seed: int) -> tuple[KernelCase, ...]:
    """Return the calls that a check has by default."""
    return kernel_calls([f"kernel.{op}"], seed, 1000)[op]


@pytest.mark.parametrize("op", OPS)
def test_every_list_comes_to_all_that_is_wanted_of_an_op(op: str):
    comes_to_all(op, SEEDS[0])


@pytest.mark.parametrize("op", OPS)
def test_so_does_a_list_of_another_seed(op: str):
    for seed in SEEDS[1:]:
        comes_to_all(op, seed)


def comes_to_all(op: str, seed: int) -> None:
    found = listed(op, seed)
    assert lacking(op, found) == ()
    assert LEAST_CALLS <= len(found) == enough(op, seed) <= MOST_CALLS


@pytest.mark.parametrize("op", OPS)
def test_calls_of_a_size_are_of_consequence(op: str):
    """Of each that is wanted there is a call in which the twin writes something."""
    found = [case for case in listed(op, 3) if writes_something(case)]
    assert lacking(op, found) == ()


@pytest.mark.parametrize("op", OPS)
def test_usual_calls_are_smaller_than_any_block(op: str):
    """What a list has without an aim does not suffice: of the sizes of the table a good part is lacking."""
    usual = [case for number, case in enumerate(listed(op, 0)) if number % 3 == 0]
    assert lacking(op, usual)


def test_every_op_has_blocks_and_a_dimension_with_less_than_all_powers_a_reason():
    assert BLOCKS.keys() == OPS.keys()
    for op, blocks in BLOCKS.items():
        for one in blocks.dimensions:
            assert one.reason or one.most > POWERS[-1], (op, one.name)


CONSTANTS = {
    "eager_attention": {"_PIECE": "1 << 18"},
    "eager_state": {"PIECE": 64},
    "triton_attention": {"_ONE_SPLIT": 512, "_RING_BLOCK_C": 16, "_PROGRAMS": 264, "_MOST_SPLITS": 16},
    "triton_ahead": {"_BLOCK_E": 16},
    "triton_decisions": {"_BLOCK_V": 4096, "LEAST_BLOCKS": 8},
    "triton_chunk": {"MOST_TOKENS": 16, "_MANY_TOKENS": 9},
    "triton_dense": {"_BLOCK": 1024, "_ROPE_HEADS": 8},
    "triton_gdn": {"_NORM_ELEMENTS": 1024, "_LEAST_E": 8},
    "triton_penalties": {"_BLOCK_V": 1024},
    "triton_replay": {"_BLOCK_D": 256, "_BLOCK_T": 2},
    "triton_ring": {"_BLOCK": 256},
    "triton_sampling": {"_BLOCK_V": 1024, "LEAST_K": 16},
    "triton_state": {"_BLOCK_D": 256, "_RUNS": 64, "_BLOCK_COPY": 4096},
    "triton_token": {"_MOST_POSITIONS": 256},
}
"""What the table of blocks was written for, by the source that has it."""


def test_blocks_of_kernels_are_those_that_the_table_was_written_for():
    """Whoever changes one of them changes the table, too."""
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for name, value in CONSTANTS.get(path.stem, {}).items():
            assert re.search(rf"^{name} = {value}$", text, re.MULTILINE), (path.stem, name)


def test_a_list_is_a_function_of_its_seed_and_a_longer_one_begins_with_it():
    def text(seed: int, count: int) -> list[str]:
        return list(map(str, cases("gdn_update", seed, count)))

    assert text(3, 9) == text(3, 9) == text(3, 12)[:9]
    assert text(3, 9) != text(4, 9)


def test_behind_what_is_wanted_come_powers_of_two_and_their_neighbours():
    near = {power + more for power in POWERS for more in (-1, 0, 1)}
    sizes = {max(random_aim("silu_mul", SeededChoose(str(n))).sizes.values()) for n in range(200)}
    assert sizes <= near
    assert len(sizes) > 20


EACH_WRONG = pytest.mark.parametrize(
    ("op", "name", "kernel"), WRONG_BLOCKS, ids=[f"{op}-{name}" for op, name, _ in WRONG_BLOCKS]
)


@EACH_WRONG
def test_what_is_wrong_beyond_a_block_is_caught(op: str, name: str, kernel: Kernel):
    assert any(check(op, kernel, getattr(ops, op), case) for case in listed(op, SEEDS[0])), name


@EACH_WRONG
def test_so_it_is_whatever_the_seed(op: str, name: str, kernel: Kernel):
    for seed in SEEDS[1:]:
        assert any(check(op, kernel, getattr(ops, op), case) for case in listed(op, seed)), (name, seed)


def test_too_few_calls_are_inconclusive_and_say_what_is_lacking():
    (verdict,) = kernel_verdicts({"silu_mul": cases("silu_mul", 0, 1)}, 0, "cpu")
    assert (verdict.verdict, verdict.scenarios) == (Outcome.INCONCLUSIVE, 1)
    assert {"columns 1024 >= 1", "columns 1025 >= 1", "columns over 3072 >= 1"} <= set(verdict.missing)
    (verdict,) = kernel_verdicts({"silu_mul": listed("silu_mul", 0)}, 0, "cpu")
    assert (verdict.verdict, verdict.missing) == (Outcome.PASS, ())


@pytest.mark.parametrize("op", ["kv_write", "greedy_choice", "sampled_choice", "gdn_replay"])
def test_hypothesis_draws_the_same_calls(op: str):
    @settings(max_examples=5, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data())
    def holds(drawn: DataObject) -> None:
        case = drawn.draw(kernel_cases(op))
        assert not check(op, getattr(kernels, op), getattr(ops, op), case)

    holds()


def test_calls_have_the_dtypes_that_are_asked_for():
    for case in islice(calls("kv_write", 0, (torch.float64,)), 6):
        assert case.buffers["k"].storage.dtype == torch.float64
