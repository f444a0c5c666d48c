"""Every kernel contract notices wrong implementations of its op, and says where the first difference is."""

import sys
from itertools import islice

import pytest
import torch

from draftproof.harness.kernel_runs import diverges
from draftproof.properties.kernels.contract import Buffer, Kernel, KernelCase, check
from draftproof.properties.kernels.listed import calls
from draftproof.properties.kernels.table import OPS
from draftproof.properties.values import relations as rel
from draftproof.reference import ops
from tests.kernels import wrong_penalties, wrong_sampling, wrong_state, wrong_trees
from tests.kernels.lane import dtypes_of, is_caught
from tests.kernels.wrong import WRONG
from tests.warm import Warm

MISTAKES = [one for one in WRONG if one[0] in OPS]


@pytest.mark.parametrize(("op", "name", "kernel"), MISTAKES, ids=[f"{op}-{name}" for op, name, _ in MISTAKES])
def test_a_wrong_implementation_is_caught(op: str, name: str, kernel: Kernel):
    difference = is_caught(kernel, op, dtypes_of(op, (torch.float32,)), examples=150)
    assert difference is not None, f"{name} passes the contract of {op}"
    assert difference.startswith(f"Difference(op='{op}'")


@pytest.mark.parametrize(("op", "first"), [("kv_write", 2), ("quantised_write", 4), ("fp8_write", 2)])
def test_any_row_sent_to_the_scratch_slot_may_win_and_nothing_else(op: str, first: int):
    """On a GPU rows are written in no order; that of the twin was demanded of codes and FP8. `first`: of the rows."""
    twin, seen = getattr(ops, op), list[int]()

    def backwards(*given: torch.Tensor | float) -> None:
        rows = range(first, first + 3)
        twin(*(value.flip(0) if place in rows else value for place, value in enumerate(given)))

    def changed(*given: torch.Tensor) -> None:
        twin(*given)
        given[0][0] = ~given[0][0]

    for case in islice(calls(op, 20, dtypes_of(op, (torch.float32,))[:1]), 6):
        slots = case.buffers["slot_mapping"].tensor
        slots[:3] = 0
        if len(slots) > 1:
            seen.append(1)
            assert check(op, backwards, twin, case) == []
            assert check(op, changed, twin, case) != []
    assert len(seen) > 3


@pytest.mark.parametrize("drawn", range(3))
def test_draws_off_by_as_little_as_can_be_are_caught_whatever_is_drawn(drawn: int):
    for kernel in (wrong_sampling.coins_of_32_bits, wrong_sampling.seeds_of_32_bits, wrong_sampling.sums_of_30_bits):
        assert is_caught(kernel, "sampled_choice", (torch.int64,), examples=150, seed=drawn) is not None


def test_walks_of_first_children_are_caught_in_few_calls():
    wrong = wrong_trees.only_first_children_are_looked_at
    assert is_caught(wrong, "accept_tree", (torch.int64,), examples=30) is not None


def test_penalties_of_other_rows_and_texts_are_caught_in_few_calls():
    for kernel in (wrong_penalties.every_tree_is_a_chain, wrong_penalties.bias_is_added_last):
        assert is_caught(kernel, "apply_penalties", (torch.int64,), examples=60) is not None


def test_states_of_the_rows_before_are_caught_in_few_calls():
    for op, kernel in (
        ("conv_verify_tree", wrong_trees.windows_of_the_rows_before),
        ("gdn_verify_tree", wrong_trees.states_of_the_rows_before),
        ("gdn_replay_tree", wrong_trees.replayed_rows_are_a_chain),
    ):
        assert is_caught(kernel, op, (torch.int64,), examples=30) is not None


def test_every_contract_has_a_wrong_implementation():
    assert {op for op, _, _ in MISTAKES} == set(OPS)


def flat(values: list, dtype: torch.dtype = torch.int64, shape: tuple[int, ...] | None = None) -> Buffer:
    """Return a packed tensor with two elements of poison before it and one after."""
    storage = torch.tensor([9, 9, *values, 9], dtype=dtype)
    shape = shape or (len(values),)
    return Buffer(storage, shape, torch.empty(shape, device="meta").stride(), 2)


def write_case(slots: list[int]) -> KernelCase:
    """Return a write of rows 10, 20, .. to a pool of four slots that hold 0 .. 3."""
    count = len(slots)
    pool, rows = flat([0, 1, 2, 3], shape=(4, 1, 1)), flat([10 * (t + 1) for t in range(count)], shape=(count, 1, 1))
    return KernelCase("kv_write", {"k_pool": pool, "v_pool": pool, "k": rows, "v": rows, "slot_mapping": flat(slots)})


def test_a_difference_names_the_first_element_both_values_and_how_many():
    def skips(k_pool, v_pool, k, v, slots):
        k_pool[3] = 7

    differences = check("kv_write", skips, ops.kv_write, write_case([2]))
    assert [(d.argument, d.place, d.index, d.expected, d.got, d.count) for d in differences] == [
        ("k_pool", "output", (2, 0, 0), 10, 2, 2),
        ("v_pool", "output", (2, 0, 0), 10, 2, 1),
    ]


def test_memory_around_a_tensor_and_read_only_arguments_are_compared():
    def spills(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool.as_strided((1,), (1,), 0).fill_(5)
        slots.fill_(0)

    differences = check("kv_write", spills, ops.kv_write, write_case([2]))
    assert [(d.argument, d.place, d.index) for d in differences] == [
        ("k_pool", "around", (0,)),
        ("slot_mapping", "read only", (0,)),
    ]


def test_any_row_sent_to_slot_zero_may_win_and_no_other_value():
    def first_wins(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k.flip(0), v.flip(0), slots.flip(0))

    def neither(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool[0] = 15

    assert check("kv_write", first_wins, ops.kv_write, write_case([0, 0])) == []
    (difference,) = check("kv_write", neither, ops.kv_write, write_case([0, 0]))
    assert difference.index == (0, 0, 0)


def test_slot_zero_must_keep_its_value_when_no_row_is_sent_there():
    def writes_zero_too(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool[0] = k[0]

    (difference,) = check("kv_write", writes_zero_too, ops.kv_write, write_case([2]))
    assert (difference.index, difference.got) == ((0, 0, 0), 10)


@pytest.mark.parametrize("value", [float("nan"), 1.1])
def test_a_float_beyond_its_bound_is_told_with_the_margin(value: float):
    def wrong(out, x, weight, eps):
        ops.rms_norm(out, x, weight, eps)
        out[0, 1] = value

    row = [flat([1.0, 1.0], torch.float32, (1, 2)) for _ in range(2)]
    weight = flat([1.0, 1.0], torch.float32)
    case = KernelCase("rms_norm", {"out": row[0], "x": row[1], "weight": weight, "eps": 0.0})
    assert check("rms_norm", ops.rms_norm, ops.rms_norm, case) == []
    (difference,) = check("rms_norm", wrong, ops.rms_norm, case)
    assert difference.index == (0, 1)
    assert value != value or difference.margin == pytest.approx(0.05, rel=1e-3)


def test_a_case_of_another_op_is_refused():
    with pytest.raises(ValueError, match="kv_write"):
        check("rms_norm", ops.rms_norm, ops.rms_norm, write_case([1]))


def states_case(op: str = "gdn_verify", width: int = 3, steps: int = 5) -> KernelCase:
    """Return two rows of a ring layer with one head of 2 x 3; states are packed, and 77 everywhere."""
    values = iter(range(1 << 40, 1 << 41, 0x9E3779B1))

    def drawn(*shape: int) -> Buffer:
        return flat([next(values) for _ in range(torch.Size(shape).numel())], shape=shape)

    shape = (2, steps, 1, 2, 3)
    states = Buffer(torch.full((12 * steps + 9,), 77), shape, torch.empty(shape, device="meta").stride(), 2)
    arguments = {
        "out": drawn(2, width, 1, 3),
        "states": states,
        "qkv": drawn(2, width, 7),
        "a": drawn(2, width, 1),
        "b": drawn(2, width, 1),
        "a_log": drawn(1),
        "dt_bias": drawn(1),
        "ssm": drawn(4, 1, 2, 3),
        "state_slots": flat([3, 1]),
    }
    return KernelCase(op, arguments)


def relation_of(kernel: Kernel, case: KernelCase) -> rel.KernelRelation | None:
    """Return the relation that the contract sees in the states of a wrong gdn_verify."""
    (difference,) = (one for one in check("gdn_verify", kernel, ops.gdn_verify, case) if one.argument == "states")
    return difference.relation


def test_a_stride_of_the_width_is_told_as_a_stride():
    relation = relation_of(wrong_state.state_stride_of_the_width, states_case())
    assert relation == rel.RowElsewhere(
        rel.TensorLocation("row", (0, 3)), (1, 0), rel.WrongStride(rel.StridePair(3, 5, "W", "A"))
    )
    (divergence,) = (diverges("gdn_verify", states_case(), "cpu", lambda _op: wrong_state.state_stride_of_the_width),)
    assert divergence is not None
    assert (divergence.channel, divergence.relation) == ("kernel.states", relation)


def test_exchanged_strides_are_told():
    relation = relation_of(wrong_state.states_transposed, states_case())
    assert isinstance(relation, rel.RowElsewhere)
    assert relation.cause == rel.SwappedStrides(3, 4)


def test_rows_in_one_anothers_place_and_rows_left_out_are_told():
    def next_step(out, states, *rest):
        ops.gdn_verify(out, states, *rest)
        states[:, :2] = states[:, 1:3].clone()

    def leaves_out_a_row(out, states, *rest):
        ops.gdn_verify(out, states, *rest)
        states[1, 1] = 77

    def first_row_everywhere(out, states, *rest):
        ops.gdn_verify(out, states, *rest)
        states[1] = states[0]

    relation = relation_of(next_step, states_case())
    assert isinstance(relation, rel.RowElsewhere)
    assert (relation.at, relation.belongs) == (rel.TensorLocation("row", (0, 0)), (0, 1))
    assert relation_of(leaves_out_a_row, states_case()) == rel.RowUnwritten((1, 1))
    assert relation_of(first_row_everywhere, states_case()) == rel.RowElsewhere(rel.TensorLocation("row", (1,)), (0,))


def test_a_step_read_at_a_wrong_stride_is_told_with_its_source():
    pool, steps = flat(list(range(8)), shape=(1, 4, 2)), flat([9 + 7 * i for i in range(2 * 5 * 2)], shape=(1, 2, 5, 2))
    case = KernelCase(
        "state_scatter",
        {"pool": pool, "steps": steps, "state_slots": flat([1, 2]), "last_correct_step_indices": flat([4, 3])},
    )
    big = KernelCase("state_scatter", {name: large(buffer) for name, buffer in case.buffers.items()})
    (difference,) = check("state_scatter", wrong_state.reads_with_one_step_fewer, ops.state_scatter, big)
    assert difference.relation == rel.RowTaken(
        (0, 2), "steps", rel.TensorLocation("row", (0, 1, 2)), rel.TensorLocation("row", (0, 1, 3))
    )


def large(buffer: Buffer) -> Buffer:
    """Return values that identify themselves; indices, which have one dimension, stay."""
    scaled = buffer.storage * (1 << 34) if len(buffer.shape) > 1 else buffer.storage
    return Buffer(scaled, buffer.shape, buffer.strides, buffer.offset)


def test_what_nobody_writes_is_exact_among_float_states():
    """An element of a slot that no row names is off by less than any bound."""

    def nudges(out, ssm, *rest):
        ops.gdn_replay(out, ssm, *rest)
        ssm[2, 0, 0, 0] += 1e-7

    def values(*shape: int) -> Buffer:
        drawn = torch.randn(torch.Size(shape).numel(), generator=generator)
        return flat(drawn.tolist(), torch.float32, shape)

    generator = torch.Generator().manual_seed(6)

    case = KernelCase(
        "gdn_replay",
        {
            "out": values(1, 1, 1, 3),
            "ssm": values(3, 1, 2, 3),
            "inputs": values(2, 3, 3, 7),
            "gates": values(2, 3, 2, 2, 1),
            "x": values(1, 1, 7),
            "a": values(1, 1, 1),
            "b": values(1, 1, 1),
            "weight": values(7, 2),
            "a_log": values(1),
            "dt_bias": values(1),
            "cursor": flat([0, 0, 1, 0, 0, 0], shape=(3, 2)),
            "state_slots": flat([1]),
        },
    )
    assert check("gdn_replay", ops.gdn_replay, ops.gdn_replay, case) == []
    (difference,) = check("gdn_replay", nudges, ops.gdn_replay, case)
    assert (difference.argument, difference.index, difference.relation) == (
        "ssm",
        (2, 0, 0, 0),
        rel.RowOverwritten((2,)),
    )


def own_scratch(write_to: int, read_from: int) -> Kernel:
    """Return a write that passes its slots through memory of its own, and writes and reads it where it is told to."""

    def passes_on(k_pool, v_pool, k, v, slots):
        held = slots.new_empty((slots.shape[0], 2))
        whole = held.as_strided((132,), (1,), held.storage_offset() - 64)
        held[:, 0] = slots
        whole[64 + write_to] = 3
        ops.kv_write(k_pool, v_pool, k, v, held[:, read_from])

    return passes_on


@pytest.mark.parametrize(("write_to", "found"), [(1, []), (-1, [-1]), (4, [4])])
def test_what_is_written_around_memory_of_its_own_is_a_difference(write_to: int, found: list[int]):
    differences = check("kv_write", own_scratch(write_to, 0), ops.kv_write, write_case([2, 1]))
    assert [d.index[0] for d in differences] == found
    assert {(d.argument, d.place, d.expected, d.got) for d in differences} == {
        ("scratch", "around", 77, 3) for _ in found
    }


def test_memory_of_its_own_holds_poison_until_it_is_written():
    differences = check("kv_write", own_scratch(0, 1), ops.kv_write, write_case([2, 1]))
    assert [d.argument for d in differences] == ["k_pool", "v_pool"]


def test_watching_imports_dynamo_only_for_a_kernel_that_it_compiles(warm: Warm):
    program = """
import sys
from draftproof.properties.kernels.contract import check
from draftproof.reference import ops
from tests.kernels.test_contracts import own_scratch, write_case

case, graphs = write_case([2, 1]), []
assert check("kv_write", own_scratch(0, 1), ops.kv_write, case)
assert "torch._dynamo" not in sys.modules

import torch
compiled = torch.compile(own_scratch(0, 1), backend=lambda graph, _: graphs.append(graph) or graph.forward)
assert check("kv_write", compiled, ops.kv_write, case)
assert not graphs, "what watches was compiled"
"""
    done = warm.run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
