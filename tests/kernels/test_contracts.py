"""Every kernel contract notices wrong implementations of its op, and says where the first difference is."""

import pytest
import torch

from draftproof.properties.contracts.kernel import CONTRACTS, Buffer, Kernel, KernelCase, check_kv_write, check_rms_norm
from draftproof.reference import ops
from tests.kernels import wrong_state
from tests.kernels.lane import dtypes_of, is_caught
from tests.kernels.wrong import WRONG

assert wrong_state.__doc__, "importing it lists its implementations in WRONG"


@pytest.mark.parametrize(("op", "name", "kernel"), WRONG, ids=[f"{op}-{name}" for op, name, _ in WRONG])
def test_a_wrong_implementation_is_caught(op: str, name: str, kernel: Kernel):
    difference = is_caught(kernel, op, dtypes_of(op, (torch.float32,)), examples=150)
    assert difference is not None, f"{name} passes the contract of {op}"
    assert difference.startswith(f"{op}: ")


def test_every_contract_has_a_wrong_implementation():
    assert {op for op, _, _ in WRONG} == set(CONTRACTS)


def flat(values: list, dtype: torch.dtype = torch.int64, shape: tuple[int, ...] | None = None) -> Buffer:
    """Return a packed tensor with two elements of poison before it and one after."""
    storage = torch.tensor([9, 9, *values, 9], dtype=dtype)
    shape = shape or (len(values),)
    return Buffer(storage, shape, torch.empty(shape, device="meta").stride(), 2)


def write_case(slots: list[int]) -> KernelCase:
    """Return a write of rows 10, 20, .. to a pool of four slots that hold 0 .. 3."""
    count = len(slots)
    pool, rows = flat([0, 1, 2, 3], shape=(4, 1, 1)), flat([10 * (t + 1) for t in range(count)], shape=(count, 1, 1))
    return KernelCase("kv_write", {"k_pool": pool, "v_pool": pool, "k": rows, "v": rows, "slots": flat(slots)})


def test_a_difference_names_the_first_element_both_values_and_how_many():
    def skips(k_pool, v_pool, k, v, slots):
        k_pool[3] = 7

    differences = check_kv_write(skips, ops.kv_write, write_case([2]))
    assert [(d.argument, d.place, d.index, d.expected, d.got, d.count) for d in differences] == [
        ("k_pool", "output", (2, 0, 0), 10, 2, 2),
        ("v_pool", "output", (2, 0, 0), 10, 2, 1),
    ]
    assert str(differences[0]) == "kv_write: k_pool[2, 0, 0] (output) expected 10, got 2; 2 elements differ"


def test_memory_around_a_tensor_and_read_only_arguments_are_compared():
    def spills(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool.as_strided((1,), (1,), 0).fill_(5)
        slots.fill_(0)

    differences = check_kv_write(spills, ops.kv_write, write_case([2]))
    assert [(d.argument, d.place, d.index) for d in differences] == [
        ("k_pool", "around", (0,)),
        ("slots", "read only", (0,)),
    ]


def test_any_row_sent_to_slot_zero_may_win_and_no_other_value():
    def first_wins(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k.flip(0), v.flip(0), slots.flip(0))

    def neither(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool[0] = 15

    assert check_kv_write(first_wins, ops.kv_write, write_case([0, 0])) == []
    (difference,) = check_kv_write(neither, ops.kv_write, write_case([0, 0]))
    assert difference.index == (0, 0, 0)


def test_slot_zero_must_keep_its_value_when_no_row_is_sent_there():
    def writes_zero_too(k_pool, v_pool, k, v, slots):
        ops.kv_write(k_pool, v_pool, k, v, slots)
        k_pool[0] = k[0]

    (difference,) = check_kv_write(writes_zero_too, ops.kv_write, write_case([2]))
    assert (difference.index, difference.got) == ((0, 0, 0), 10)


@pytest.mark.parametrize("value", [float("nan"), 1.1])
def test_a_float_beyond_its_bound_is_told_with_the_margin(value: float):
    def wrong(out, x, weight, eps):
        ops.rms_norm(out, x, weight, eps)
        out[0, 1] = value

    row = [flat([1.0, 1.0], torch.float32, (1, 2)) for _ in range(2)]
    weight = flat([1.0, 1.0], torch.float32)
    case = KernelCase("rms_norm", {"out": row[0], "x": row[1], "weight": weight, "eps": 0.0})
    assert check_rms_norm(ops.rms_norm, ops.rms_norm, case) == []
    (difference,) = check_rms_norm(wrong, ops.rms_norm, case)
    assert difference.index == (0, 1)
    assert value != value or difference.margin == pytest.approx(0.05, rel=1e-3)


def test_a_case_of_another_op_is_refused():
    with pytest.raises(ValueError, match="kv_write"):
        check_rms_norm(ops.rms_norm, ops.rms_norm, write_case([1]))
