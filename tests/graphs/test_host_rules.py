"""The rules of host graphs, one by one. Each test fails without its rule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from draftproof.engine.graphs.backend import CaptureError
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.graphs.record import POISON

POISON_WORD = int.from_bytes(bytes([POISON]) * 8, "little", signed=True)


def ints(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) + 1


def assert_poisoned(tensor: Tensor) -> None:
    assert tensor.numel() > 0
    assert tensor.view(torch.int64).eq(POISON_WORD).all()


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


# What cannot be captured

FORBIDDEN: dict[str, tuple[str, Callable[[Tensor], Any]]] = {
    "item": ("item", lambda x: x[0].item()),
    "int()": ("host_read", lambda x: int(x[0])),
    "bool()": ("host_read", lambda x: bool(x[0] > 1)),
    "if": ("host_read", lambda x: 1 if x.sum() > 3 else 2),
    "index()": ("host_read", lambda x: range(x[0])),
    "equal": ("host_read", lambda x: torch.equal(x, x)),
    "allclose": ("data_dependent", lambda x: torch.allclose(x, x)),
    "nonzero": ("dynamic_shape", lambda x: x.nonzero()),
    "masked_select": ("dynamic_shape", lambda x: x.masked_select(x > 1)),
    "unique": ("dynamic_shape", lambda x: torch.unique(x)),
    "repeat_interleave": ("dynamic_shape", lambda x: torch.repeat_interleave(x)),
    "mask get": ("boolean_index", lambda x: x[x > 1]),
    "mask set": ("boolean_index", lambda x: x.__setitem__(x > 1, x[:1])),
    "mask put": ("boolean_index", lambda x: x.index_put_((x > 1,), x[:1])),
    "uint8 mask": ("boolean_index", lambda x: x[(x > 1).to(torch.uint8)]),
    "tensor": ("lift_fresh", lambda x: torch.tensor([1, 2])),
    "scalar tensor": ("lift_fresh", lambda x: torch.tensor(1)),
    "from_numpy": ("lift_fresh", lambda x: x + torch.from_numpy(np.ones(4, dtype=np.int64))),
    "list index": ("lift_fresh", lambda x: x[[0, 2]]),
    "slice set": ("lift_fresh", lambda x: x.__setitem__(slice(1, 3), 7)),
    "element set": ("lift_fresh", lambda x: x.__setitem__(0, 7)),
    "index set": ("lift_fresh", lambda x: x.__setitem__(x[:1] % 4, 7)),
    "list index set": ("lift_fresh", lambda x: x.__setitem__([0, 2], 5)),
    "set_": ("set_", lambda x: (x + 1).set_(x)),
    "resize_": ("resize_", lambda x: (x + 1).resize_(2)),
    "unsqueeze_": ("inplace_view", lambda x: x.unsqueeze_(0)),
    "data": ("data", lambda x: setattr(x, "data", x + 1)),
    "tolist": ("tolist", lambda x: x.tolist()),
    "numpy": ("numpy", lambda x: x.numpy()),
    "cpu": ("cpu", lambda x: x.cpu()),
    "to cpu": ("to_cpu", lambda x: x.to("cpu")),
    "to cpu device": ("to_cpu", lambda x: x.to(device=torch.device("cpu"), dtype=torch.int32)),
    "data_ptr": ("data_ptr", lambda x: x.data_ptr()),
    "asarray": ("__array__", np.asarray),
    "__array__": ("__array__", lambda x: x.__array__()),
    "dlpack": ("__dlpack__", np.from_dlpack),
    "__dlpack__": ("__dlpack__", lambda x: x.__dlpack__()),
}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference"])
@pytest.mark.parametrize("case", FORBIDDEN)
def test_forbidden_in_capture(case: str, inference: bool) -> None:
    rule, use = FORBIDDEN[case]
    with torch.inference_mode(inference):
        x = ints(4)

        def function() -> tuple[Tensor, ...]:
            x.add_(1)
            use(x)
            return (x,)

        with pytest.raises(CaptureError) as caught:
            HostBackend().capture(function, [x])
        assert caught.value.rule == rule
        assert x.tolist() == [1, 2, 3, 4]
        HostBackend().capture(lambda: (x + 1,), [x])


@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_swallowed_error_still_fails_the_capture(case: str) -> None:
    rule, use = FORBIDDEN[case]
    x = ints(4)

    def function() -> tuple[Tensor, ...]:
        try:
            use(x)
        except Exception:
            return (x + 2,)
        return (x + 1,)

    with pytest.raises(CaptureError) as caught:
        HostBackend().capture(function, [x])
    assert caught.value.rule == rule


ALLOWED: dict[str, Callable[[Tensor], Any]] = {
    "gather": lambda x: x.copy_(x[x % 4]),
    "where": lambda x: x.copy_(torch.where(x > 2, x, -x)),
    "masked_fill": lambda x: x.masked_fill_(x > 2, 9),
    "len": lambda x: x.add_(len(x)),
    "iterate": lambda x: [row.add_(1) for row in x],
    "dtype": lambda x: x.add_(x.to(torch.int32)),
    "einsum": lambda x: x.copy_((x[None] * x[:, None]).sum(0)),
    "reshape": lambda x: x.copy_(x.view(2, 2).t().reshape(4)),
}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference"])
@pytest.mark.parametrize("case", ALLOWED)
def test_allowed_in_capture(case: str, inference: bool) -> None:
    """What a device can do is replayed like an eager run."""
    use = ALLOWED[case]
    with torch.inference_mode(inference):
        x, eager = ints(4), ints(4)
        graph = HostBackend().capture(lambda: (use(x), x)[1:], [x])
        for _ in range(2):
            x.mul_(3)
            eager.mul_(3)
            graph.replay()
            use(eager)
            assert x.tolist() == eager.tolist()


def test_function_rules_do_not_look_into_an_operation(accumulate: Any) -> None:
    x, out = ints(3), torch.zeros(3, dtype=torch.int64)

    def function() -> tuple[Tensor, ...]:
        accumulate(x * 2, out)
        return (out + 0,)

    graph = HostBackend().capture(function, [x, out])
    assert out.tolist() == [0, 0, 0]
    for count in (1, 2):
        graph.replay()
        assert out.tolist() == graph.outputs[0].tolist() == [2 * count, 4 * count, 6 * count]


def test_operations_of_ours_may_not_touch_undeclared_memory(accumulate: Any) -> None:
    x, out = ints(3), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(CaptureError, match="not declared"):
        HostBackend().capture(lambda: (accumulate(x, out), x)[1:], [x])
    assert out.tolist() == [0, 0, 0]


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
