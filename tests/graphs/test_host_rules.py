"""The rules of host graphs, one by one: addresses, roll-back, declared memory. Each test fails without its rule."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.graphs.backend import CaptureError
from draftproof.engine.graphs.host import HostBackend
from draftproof.kernels.registry import CALLS
from tests.graphs.memory import ints

# Addresses, values, names


def test_replay_sees_new_contents_of_its_inputs() -> None:
    x = ints(4)
    graph = HostBackend().capture(lambda: (x * 2,), [x])
    x.copy_(torch.tensor([5, 6, 7, 8]))
    graph.replay()
    assert graph.outputs[0].tolist() == [10, 12, 14, 16]


def test_python_values_are_baked_in() -> None:
    x, factor = ints(3), [2]
    graph = HostBackend().capture(lambda: (x * factor[0],), [x])
    factor[0] = 100
    graph.replay()
    assert graph.outputs[0].tolist() == [2, 4, 6]


def test_rebinding_a_name_is_not_seen() -> None:
    held = {"x": ints(3)}
    graph = HostBackend().capture(lambda: (held["x"] + 0,), [held["x"]])
    held["x"] = ints(3) * 50
    graph.replay()
    assert graph.outputs[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("rebind", [lambda x, y: x.set_(y), lambda x, y: setattr(x, "data", y)], ids=["set_", "data"])
def test_rebinding_a_tensor_after_capture_does_not_move_what_is_read(rebind: Callable[[Tensor, Tensor], Any]) -> None:
    x = ints(3)
    graph = HostBackend().capture(lambda: (x + 0,), [x])
    rebind(x, ints(3) * 50)
    graph.replay()
    assert graph.outputs[0].tolist() == [1, 2, 3]


def test_outputs_stay_where_they_are() -> None:
    x = ints(3)
    graph = HostBackend().capture(lambda: (x + 1,), [x])
    address = graph.outputs[0].data_ptr()
    for value in (4, 9):
        x.fill_(value)
        graph.replay()
        assert graph.outputs[0].data_ptr() == address
        assert graph.outputs[0].tolist() == [value + 1] * 3


def test_views_of_inputs_and_of_private_memory_are_live() -> None:
    x, out = ints(4, 3), torch.zeros(2, 3, dtype=torch.int64)

    def function() -> tuple[Tensor, ...]:
        y = x * 10
        y[1:3].t().add_(x[:2].t())
        out.copy_(y[1:3])
        return (y[1:3, 1], x[0])

    graph = HostBackend().capture(function, [x, out])
    x.add_(100)
    graph.replay()
    expected = x[1:3] * 10 + x[:2]
    assert out.tolist() == expected.tolist()
    assert graph.outputs[0].tolist() == expected[:, 1].tolist()
    assert graph.outputs[1].tolist() == x[0].tolist()


def test_mutations_happen_at_every_replay() -> None:
    x = torch.zeros(2, dtype=torch.int64)
    graph = HostBackend().capture(lambda: (x.add_(1),), [x])
    for count in (1, 2, 3):
        graph.replay()
        assert x.tolist() == [count, count]
        assert graph.replays == count


def test_allocations_are_made_anew_at_every_replay() -> None:
    """zeros, arange and a scratch tensor that the graph accumulates into start from their initial values."""
    x = ints(3)

    def function() -> tuple[Tensor, ...]:
        total = torch.zeros(3, dtype=torch.int64)
        total.add_(x)
        total.add_(torch.arange(3, device=x.device))
        return (total,)

    graph = HostBackend().capture(function, [x])
    for _ in range(2):
        graph.replay()
        assert graph.outputs[0].tolist() == [1, 3, 5]


def test_several_outputs_of_one_operation() -> None:
    x = torch.tensor([3, 1, 2])
    graph = HostBackend().capture(lambda: tuple(torch.sort(x)), [x])
    x.copy_(torch.tensor([7, 9, 8]))
    graph.replay()
    assert [output.tolist() for output in graph.outputs] == [[7, 8, 9], [0, 2, 1]]


def test_conversions_are_replayed() -> None:
    x = ints(3)
    graph = HostBackend().capture(lambda: (x.to(torch.float32), x.to(torch.int32).contiguous()), [x])
    x.mul_(2)
    graph.replay()
    assert graph.outputs[0].tolist() == [2.0, 4.0, 6.0]
    assert graph.outputs[1].dtype == torch.int32
    assert graph.outputs[1].tolist() == [2, 4, 6]


# Kernels


def _mixed(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.ring_mix(out, x, 0)
    return out


def test_a_kernel_does_not_run_in_a_capture_and_runs_in_every_replay() -> None:
    x, before = ints(3), CALLS["ring_mix"]
    graph = HostBackend().capture(lambda: (_mixed(x),), [x])
    assert CALLS["ring_mix"] == before
    for _ in range(2):
        graph.replay()
        assert torch.equal(graph.outputs[0], _mixed(x))
    assert CALLS["ring_mix"] == before + 4


def test_what_a_kernel_would_write_of_declared_memory_stays() -> None:
    x = ints(3)
    graph = HostBackend().capture(lambda: (kernels.ring_mix(x, x, 0), x + 1)[1:], [x])
    assert x.tolist() == [1, 2, 3]
    expected = _mixed(x)
    graph.replay()
    assert torch.equal(x, expected)


def test_an_index_that_a_kernel_would_write_is_in_range_and_one_that_nothing_writes_is_refused() -> None:
    x, one = ints(3), torch.zeros(1, dtype=torch.int64)
    graph = HostBackend().capture(lambda: (x.index_select(0, _mixed(one)),), [x, one])
    graph.replay()
    assert graph.outputs[0].tolist() == [1]
    with pytest.raises(CaptureError, match="index"):
        HostBackend().capture(lambda: (x.index_select(0, torch.empty(1, dtype=torch.int64)),), [x])


# Roll-back


def test_capture_leaves_memory_unchanged() -> None:
    x, y = ints(4), ints(4)

    def function() -> tuple[Tensor, ...]:
        x.add_(1)
        y[1:3].copy_(x[:2])
        torch.mul(x, 2, out=y)
        x.index_put_((y[:1] * 0,), y[1:2], accumulate=True)
        return (x + y,)

    HostBackend().capture(function, [x, y])
    assert x.tolist() == [1, 2, 3, 4]
    assert y.tolist() == [1, 2, 3, 4]


def test_capture_leaves_memory_unchanged_after_an_error() -> None:
    x = ints(4)

    def function() -> tuple[Tensor, ...]:
        x.zero_()
        raise ValueError("the function's own")

    with pytest.raises(CaptureError, match="the function's own") as caught:
        HostBackend().capture(function, [x])
    assert isinstance(caught.value.__cause__, ValueError)
    assert x.tolist() == [1, 2, 3, 4]


def test_capture_leaves_memory_unchanged_after_an_interrupt() -> None:
    x = ints(4)

    def function() -> tuple[Tensor, ...]:
        x.zero_()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HostBackend().capture(function, [x])
    assert x.tolist() == [1, 2, 3, 4]
    assert (x + 1).sum().item() == 14
    HostBackend().capture(lambda: (x + 1,), [x])


def test_a_list_of_mutated_tensors_is_rolled_back() -> None:
    x, y = ints(4), ints(4)
    HostBackend().capture(lambda: (torch._foreach_add_([x, y], 1), x)[1:], [x, y])
    assert x.tolist() == y.tolist() == [1, 2, 3, 4]


def test_capture_leaves_the_random_generator_unchanged() -> None:
    x, before = torch.zeros(3), torch.get_rng_state()
    graph = HostBackend().capture(lambda: (torch.rand(3), x.uniform_()), [x])
    assert torch.equal(torch.get_rng_state(), before)
    graph.replay()
    first = graph.outputs[0].clone()
    graph.replay()
    assert not torch.equal(graph.outputs[0], first)


# Declared memory


@pytest.mark.parametrize("use", [lambda x, y: x + y, lambda x, y: x.add_(y), lambda x, y: torch.stack([x, y])])
def test_undeclared_input_is_an_error(use: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = ints(3), ints(3)
    with pytest.raises(CaptureError, match="not declared") as caught:
        HostBackend().capture(lambda: (use(x, y),), [x])
    assert caught.value.rule == "undeclared"
    HostBackend().capture(lambda: (use(x, y),), [x, y])


def test_undeclared_memory_is_not_written() -> None:
    x, y = ints(3), ints(3)
    with pytest.raises(CaptureError):
        HostBackend().capture(lambda: (y.add_(x),), [x])
    assert y.tolist() == [1, 2, 3]


def test_undeclared_scalar_tensor_is_an_error_and_numbers_are_not() -> None:
    x, scalar = ints(3), torch.tensor(5)
    with pytest.raises(CaptureError, match="not declared"):
        HostBackend().capture(lambda: (x + scalar,), [x])
    graph = HostBackend().capture(lambda: (torch.where(x > 1, x + 5, 0) - 1,), [x])
    graph.replay()
    assert graph.outputs[0].tolist() == [-1, 6, 7]


def test_undeclared_output_is_an_error() -> None:
    x = ints(3)
    with pytest.raises(CaptureError, match="not declared"):
        HostBackend().capture(lambda: (x,), [])


def test_declaring_a_storage_declares_every_view_of_it() -> None:
    arena = ints(12)
    x, y = arena[:4], arena[4:8].view(2, 2)
    graph = HostBackend().capture(lambda: (x.sum() + y.sum(),), [arena])
    graph.replay()
    assert graph.outputs[0].item() == 36


# Nesting and results


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("what", ["capture", "replay"])
def test_graphs_do_not_nest(what: str, swallow: bool) -> None:
    x = ints(3)
    inner = HostBackend().capture(lambda: (x + 1,), [x])

    def function() -> tuple[Tensor, ...]:
        try:
            if what == "replay":
                inner.replay()
            else:
                HostBackend().capture(lambda: (x + 1,), [x])
        except CaptureError:
            if not swallow:
                raise
        return (x + 2,)

    with pytest.raises(CaptureError) as caught:
        HostBackend().capture(function, [x])
    assert caught.value.rule == "nested"
    inner.replay()
    assert inner.replays == 1


@pytest.mark.parametrize("result", [None, [ints(1)], (1,)])
def test_a_function_returns_a_tuple_of_tensors(result: Any) -> None:
    with pytest.raises(CaptureError) as caught:
        HostBackend().capture(lambda: result, [])
    assert caught.value.rule == "outputs"
