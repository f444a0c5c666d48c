"""The private memory of host graphs: poisoned whenever it holds nothing. Each test fails without its rule."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from draftproof.engine.graphs.host import HostBackend
from tests.graphs.memory import assert_poisoned, ints

# Private memory


def test_outputs_are_poisoned_after_capture() -> None:
    x = ints(3)
    assert_poisoned(HostBackend().capture(lambda: (x + 1,), [x]).outputs[0])


def test_intermediates_are_poisoned_after_capture_and_after_replay() -> None:
    x, stolen = ints(3), []

    def function() -> tuple[Tensor, ...]:
        y = x + 1
        stolen[:] = [y, y[1:], torch.zeros(2, dtype=torch.int64)]
        return (y * 2,)

    graph = HostBackend().capture(function, [x])
    for _ in range(2):
        for tensor in stolen:
            assert_poisoned(tensor)
        graph.replay()
        assert graph.outputs[0].tolist() == [4, 6, 8]


def test_an_alias_that_no_operation_made_keeps_no_value() -> None:
    x, stolen = ints(3), []

    def function() -> tuple[Tensor, ...]:
        y = x + 1
        with _disable_current_modes():
            stolen.append(y.detach())
        return (y,)

    graph = HostBackend().capture(function, [x])
    graph.replay()
    assert_poisoned(stolen[0])


def test_memory_that_is_only_allocated_holds_poison_during_capture() -> None:
    seen: list[Tensor] = []

    def function() -> tuple[Tensor, ...]:
        y = torch.empty(3, dtype=torch.int64)
        with _disable_current_modes():
            seen.append(y.clone())
        return (y,)

    HostBackend().capture(function, [])
    assert_poisoned(seen[0])


@pytest.mark.parametrize("allocate", [torch.empty_like, lambda x: torch.empty(3, dtype=x.dtype), Tensor.clone])
def test_memory_that_is_only_allocated_holds_poison(allocate: Callable[[Tensor], Tensor]) -> None:
    x, seen = ints(3), torch.zeros(3, dtype=torch.int64)

    def function() -> tuple[Tensor, ...]:
        y = allocate(x)
        seen.copy_(y)
        return (y.fill_(1),)

    graph = HostBackend().capture(function, [x, seen])
    for _ in range(2):
        graph.replay()
        if allocate is Tensor.clone:
            assert seen.tolist() == [1, 2, 3]
        else:
            assert_poisoned(seen)


def test_a_replay_poisons_the_outputs_of_the_pools_other_graphs() -> None:
    x, pool = ints(3), HostBackend()
    first, second = pool.capture(lambda: (x + 1,), [x]), pool.capture(lambda: (x + 2,), [x])
    other = HostBackend().capture(lambda: (x + 3,), [x])
    first.replay()
    other.replay()
    assert first.outputs[0].tolist() == [2, 3, 4]
    second.replay()
    assert_poisoned(first.outputs[0])
    assert second.outputs[0].tolist() == [3, 4, 5]
    assert other.outputs[0].tolist() == [4, 5, 6]
    first.replay()
    assert first.outputs[0].tolist() == [2, 3, 4]
    assert_poisoned(second.outputs[0])


def test_a_capture_does_not_disturb_the_pools_other_graphs() -> None:
    x, pool = ints(3), HostBackend()
    first = pool.capture(lambda: (x + 1,), [x])
    first.replay()
    pool.capture(lambda: (x + 2,), [x])
    assert first.outputs[0].tolist() == [2, 3, 4]


def test_poison_leaves_declared_outputs_alone() -> None:
    x, pool = ints(3), HostBackend()
    first, second = pool.capture(lambda: (x,), [x]), pool.capture(lambda: (x + 2,), [x])
    first.replay()
    second.replay()
    assert x.tolist() == [1, 2, 3]


def test_an_error_in_a_replay_leaves_the_graph_usable() -> None:
    x, table = torch.tensor([0, 1]), ints(3)
    graph = HostBackend().capture(lambda: (table[x],), [x, table])
    x.fill_(99)
    with pytest.raises(IndexError):
        graph.replay()
    assert graph.replays == 0
    assert_poisoned(graph.outputs[0])
    x.copy_(torch.tensor([2, 1]))
    graph.replay()
    assert graph.outputs[0].tolist() == [3, 2]
