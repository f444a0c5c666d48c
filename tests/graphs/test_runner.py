"""The runner: which size a batch takes, what padding holds, and who owns the outputs."""

from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.engine.graphs.backend import CaptureError
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.graphs.runner import GraphRunner, Launch

SIZES, WIDTH, SLOTS = (1, 2, 4), 3, 11


class Rows:
    """Scatters its ids to slots of a pool, slot 0 being the padding's, and returns what depends on ids only."""

    def __init__(self, backend: HostBackend | None) -> None:
        self.pool = torch.zeros(SLOTS, WIDTH, dtype=torch.int64)
        self.seen: list[int] = []
        static = {
            "ids": torch.zeros(max(SIZES), WIDTH, dtype=torch.int64),
            "slots": torch.zeros(max(SIZES), dtype=torch.int64),
        }
        self.static = static
        self.runner = GraphRunner("rows", self.step, static, SIZES, backend, [self.pool], {"ids": 5})

    def step(self, buffers: dict[str, Tensor]) -> dict[str, Tensor]:
        self.seen.append(buffers["ids"].shape[0])
        self.pool.index_copy_(0, buffers["slots"], buffers["ids"])
        return {"double": buffers["ids"] * 2, "total": buffers["ids"].sum(1)}


def inputs(rows: int, start: int = 0) -> Mapping[str, Tensor]:
    ids = torch.arange(rows * WIDTH).view(rows, WIDTH) + start
    return {"ids": ids, "slots": torch.arange(rows) + 1}


def test_captures_largest_first_after_a_warm_up_each() -> None:
    rows = Rows(HostBackend())
    rows.runner.capture()
    assert rows.seen == [4, 4, 2, 2, 1, 1]
    assert rows.pool[0].tolist() == [5, 5, 5]
    assert not rows.pool[1:].any()


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 0), (7, 0)])
def test_takes_the_smallest_captured_size(count: int, size: int) -> None:
    rows = Rows(HostBackend())
    rows.runner.capture()
    for replays in (1, 2):
        outputs = rows.runner.run(inputs(count), count, {})
        assert rows.runner.last_launch == Launch("rows", size, replays if size else 0)
        assert outputs["double"].tolist() == (inputs(count)["ids"] * 2).tolist()
        assert outputs["total"].shape == (count,)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99)), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_graphs_and_eager_runs_agree(batches: list[tuple[int, int]]) -> None:
    captured, eager = Rows(HostBackend()), Rows(None)
    captured.runner.capture()
    eager.runner.capture()
    for count, start in batches:
        got, expected = (rows.runner.run(inputs(count, start), count, {}) for rows in (captured, eager))
        assert {name: t.tolist() for name, t in got.items()} == {name: t.tolist() for name, t in expected.items()}
        assert captured.pool[1:].tolist() == eager.pool[1:].tolist()
        assert eager.runner.last_launch == Launch("rows", 0, 0)


def test_padding_rows_are_refreshed_before_every_replay() -> None:
    rows = Rows(HostBackend())
    rows.runner.capture()
    rows.runner.run(inputs(4, 70), 4, {})
    for buffer in rows.static.values():
        buffer.fill_(7)
    rows.runner.run(inputs(3, 10), 3, {"ids": 9})
    assert rows.static["ids"][3].tolist() == [9, 9, 9]
    assert rows.static["slots"].tolist() == [1, 2, 3, 0]
    assert rows.pool[0].tolist() == [9, 9, 9]
    assert rows.pool[7].tolist() == [0, 0, 0]
    rows.runner.run(inputs(3, 10), 3, {})
    assert rows.pool[0].tolist() == [5, 5, 5]


def test_outputs_outlive_the_next_replay() -> None:
    rows = Rows(HostBackend())
    rows.runner.capture()
    first = rows.runner.run(inputs(3, 10), 3, {})
    expected = first["double"].tolist()
    rows.runner.run(inputs(4, 50), 4, {})
    rows.runner.run(inputs(1, 50), 1, {})
    assert first["double"].tolist() == expected


def test_eager_runs_leave_the_static_buffers_and_the_inputs_alone() -> None:
    rows = Rows(None)
    given_inputs = inputs(3, 10)
    rows.runner.run(given_inputs, 3, {})
    assert not rows.static["ids"].any()
    assert given_inputs["ids"].tolist() == inputs(3, 10)["ids"].tolist()
    assert rows.seen == [3]


@pytest.mark.parametrize("broken", [{"ids": torch.zeros(1, WIDTH)}, {**inputs(1), "more": torch.zeros(1)}])
def test_every_buffer_has_an_input(broken: Mapping[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="rows: inputs"):
        Rows(None).runner.run(broken, 1, {})


def test_static_buffers_hold_the_largest_size() -> None:
    with pytest.raises(ValueError, match="smaller than the largest captured size 8"):
        GraphRunner("small", lambda buffers: {}, {"ids": torch.zeros(4)}, [2, 8], None, [], {})


def test_memory_that_is_not_declared_fails_the_capture() -> None:
    hidden = torch.zeros(1, dtype=torch.int64)
    static = {"ids": torch.zeros(2, dtype=torch.int64)}
    runner = GraphRunner("leak", lambda b: {"out": b["ids"] + hidden}, static, [2], HostBackend(), [], {})
    with pytest.raises(CaptureError, match="not declared"):
        runner.capture()
