"""What host graphs refuse to capture, and what they do not. Each test fails without its rule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from draftproof.engine.graphs.backend import CaptureError
from draftproof.engine.graphs.host import HostBackend
from tests.graphs.memory import ints

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
