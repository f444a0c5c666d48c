"""torch's own checks of each op's registration, and mutation as declared."""

from itertools import islice

import pytest
import torch

from draftproof import kernels
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.kernels.listed import calls
from draftproof.properties.kernels.table import OPS

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op: str):
    for case in islice(calls(op, 4), 3):
        arguments = [
            value.of(value.storage.clone()) if isinstance(value, Buffer) else value for value in case.arguments.values()
        ]
        checked = torch.library.opcheck(getattr(kernels, op).op, tuple(arguments), test_utils=TESTS)
        assert set(checked.values()) == {"SUCCESS"}


def test_ops_see_the_same_memory_when_arguments_share_a_storage():
    arena = torch.arange(48)
    k_pool, v_pool = arena[:8].reshape(4, 1, 2), arena[8:20].reshape(4, 1, 3)
    k, v, slots = arena[20:24].reshape(2, 1, 2), arena[24:30].reshape(2, 1, 3), torch.tensor([3, 1])
    kernels.kv_write(k_pool, v_pool, k, v, slots)
    assert arena[:20].tolist() == [0, 1, 22, 23, 4, 5, 20, 21, 8, 9, 10, 27, 28, 29, 14, 15, 16, 24, 25, 26]
    assert arena[20:].tolist() == list(range(20, 48))


def test_empty_batches_do_nothing():
    none = torch.empty(0, dtype=torch.int64)
    pool = torch.arange(12).reshape(3, 2, 2)
    kernels.kv_write(pool, pool, pool[:0], pool[:0], none)
    kernels.kv_move(pool, pool, none, none)
    kernels.paged_attention(pool[:0], pool[:0], pool, pool, pool[0], none, none, 2, 1.0)
    kernels.greedy_choice(none, torch.empty(0, 5))
    kernels.sampled_choice(none, pool[:0, 0], pool[:0, 0], none, none)
    kernels.rejection_choice(none, pool[:0, 0], pool[:0, 0], none, none, none)
    kernels.greedy_accept(none, none, *[pool[:0, 0]] * 3, none)
    kernels.best_choices(pool[:0, 0], torch.empty(0, 2, dtype=torch.float64), torch.empty(0, 5))
    kernels.accept_tree(none, none, pool[:0, 0], pool[:0, 0], pool[:0, 0], pool[:0, 0, 1:], none)
    kernels.apply_penalties(pool[:0], pool[:0, 0], pool[:0, 0], none, *[pool[0]] * 3, none, none, none)
    kernels.assign_slots(pool[:0, 0], pool[:0, 0], pool[0], none, none, none, 2, 8)
    assert pool.flatten().tolist() == list(range(12))
