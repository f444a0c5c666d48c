"""One allocation, guard zones around every tensor."""

import itertools

import pytest
import torch

from draftproof.engine.arena import GUARD, Arena

SHAPES = {"a": ((3, 5), torch.int64), "b": ((7,), torch.float32), "c": ((2, 1), torch.bfloat16)}


def test_tensors_do_not_overlap_and_share_one_storage():
    arena = Arena(SHAPES, torch.device("cpu"))
    for number, name in enumerate(SHAPES):
        arena[name].fill_(number + 1)
    assert [arena[name].unique().tolist() for name in SHAPES] == [[1], [2.0], [3.0]]
    assert {arena[name].untyped_storage().data_ptr() for name in SHAPES} == {arena.memory.untyped_storage().data_ptr()}
    assert arena.damaged() == ()


@pytest.mark.parametrize("region", range(3))
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_write_beside_a_tensor_is_seen(region: int, side: str):
    arena = Arena(SHAPES, torch.device("cpu"))
    place = arena.regions[region]
    offset = place.start - 1 if side == "before" else place.start + place.size
    arena.memory[offset] = 0
    assert arena.damaged() == (offset,)


def test_guards_lie_between_neighbours():
    regions = Arena(SHAPES, torch.device("cpu")).regions
    gaps = [b.start - (a.start + a.size) for a, b in itertools.pairwise(regions)]
    assert regions[0].start >= GUARD
    assert min(gaps) >= GUARD
