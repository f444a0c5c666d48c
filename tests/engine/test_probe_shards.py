"""What a tensor-parallel rank has of a probe's weights: the parts of all ranks together are the whole."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from draftproof.engine.models.base import LinearSizes
from draftproof.engine.models.probe_parallel import vocabulary_part
from draftproof.engine.models.probe_shards import heads_of, shard
from draftproof.engine.ranks import SOLO, DataParallelGroup
from draftproof.engine.tensor_ranks import TensorGroup

SIZES = LinearSizes(key_heads=2, value_heads=4, key_dim=3, value_dim=5, conv=4)


def group(rank: int, size: int) -> TensorGroup:
    of = cast(
        "DataParallelGroup",
        SimpleNamespace(rank=rank, size=size, lanes=lambda count: DataParallelGroup.lanes(of, count)),
    )
    return TensorGroup(of)


def counted(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape)


def parts(name: str, tensor: Tensor, size: int = 2) -> list[Tensor]:
    return [shard({f"layers.1.{name}": tensor}, group(rank, size), SIZES)[f"layers.1.{name}"] for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_every_lane_is_one_ranks_and_no_rank_has_two_more_than_another(size: int) -> None:
    for count in range(12):
        shares = [list(range(count))[group(rank, size).lanes(count)] for rank in range(size)]
        assert [lane for share in shares for lane in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("name", ["q.weight", "k.weight", "v.weight", "v.context", "z.weight", "a.weight", "q.gate"])
def test_what_heads_give_is_cut_by_rows(name: str) -> None:
    whole = counted(8, 3)
    assert torch.equal(torch.cat(parts(name, whole)), whole)
    assert torch.equal(torch.cat(parts(name, whole, size=4)), whole)


@pytest.mark.parametrize("name", ["o.weight", "mlp.weight", "q.position"])
def test_what_is_made_of_heads_is_cut_by_columns(name: str) -> None:
    whole = counted(3, 8)
    assert torch.equal(torch.cat(parts(name, whole), dim=1), whole)
    assert torch.equal(parts(name, counted(8))[1], counted(8)[4:]) if name == "q.position" else True


def test_lanes_need_not_be_even() -> None:
    whole = counted(2, 5)
    assert [part.shape[1] for part in parts("mlp.weight", whole)] == [2, 3]
    assert torch.equal(torch.cat(parts("mlp.weight", whole), dim=1), whole)


@pytest.mark.parametrize("name", ["qkv.weight", "conv.weight"])
def test_a_convolution_has_channels_of_queries_keys_and_values_of_the_ranks_heads(name: str) -> None:
    whole = counted(SIZES.channels, 2)
    queries, keys, values = whole.split([SIZES.keys, SIZES.keys, SIZES.values])
    for rank, part in enumerate(parts(name, whole)):
        own = [section.chunk(2)[rank] for section in (queries, keys, values)]
        assert torch.equal(part, torch.cat(own))
        assert len(part) == heads_of(SIZES, group(rank, 2), "key_heads", "value_heads").channels


def test_what_is_of_no_head_is_whole() -> None:
    for name in ("norm.weight", "fc", "embed"):
        assert all(torch.equal(part, counted(3, 4)) for part in parts(name, counted(3, 4)))
    weights = {"layers.0.q.weight": counted(4, 2)}
    assert shard(weights, SOLO, SIZES) is weights
    assert heads_of(SIZES, SOLO, "key_heads") is SIZES


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_table_has_as_many_rows_on_every_rank(size: int) -> None:
    whole = counted(7, 2) + 1
    found = [vocabulary_part(whole, group(rank, size)) for rank in range(size)]
    rows, ids = torch.cat([one for one, _ in found]), torch.cat([one for _, one in found])
    assert len({len(one) for one, _ in found}) == 1
    assert torch.equal(rows[:7], whole)
    assert not rows[7:].any()
    assert torch.equal(ids, torch.arange(len(ids)))
