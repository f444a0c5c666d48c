"""Launches over padded buffers: the right size, refreshed padding, outputs that outlive the next replay."""

import torch

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Buffers, GraphRunner
from draftproof.engine.stages import Launch


class Seen(Probes):
    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []

    def on_launch(self, launch: Launch) -> None:
        self.launches.append(launch)


def runner(sizes: tuple[int, ...], captured: bool = True) -> tuple[GraphRunner, Buffers, Seen]:
    buffers = Buffers({"x": torch.zeros(8, dtype=torch.int64)}, {"x": -1})
    seen = Seen()
    made = GraphRunner(
        "double", 5, lambda views: {"y": views["x"] * 2, "sum": views["x"].sum().expand(8)}, buffers, sizes, seen
    )
    if captured:
        made.capture_with(HostBackend(), ())
    return made, buffers, seen


def run(made: GraphRunner, buffers: Buffers, values: list[int]) -> torch.Tensor:
    made.prepare(len(values))
    buffers.fill({"x": torch.tensor(values)}, len(values), made.size_for(len(values)))
    return made.launch(len(values))["y"]


def test_a_batch_runs_in_the_smallest_size_that_holds_it_and_counts_its_replays():
    made, buffers, seen = runner((2, 4))
    assert [run(made, buffers, [*range(count)]).tolist() for count in (3, 1, 4)] == [[0, 2, 4], [0], [0, 2, 4, 6]]
    replays = [launch for launch in seen.launches if launch.kind != "capture"]
    assert replays == [Launch("double", 4, 3, 1, 5), Launch("double", 2, 1, 1, 5), Launch("double", 4, 4, 2, 5)]


def test_an_oversized_batch_and_no_backend_run_eagerly():
    made, buffers, seen = runner((2,))
    assert run(made, buffers, [5, 6, 7]).tolist() == [10, 12, 14]
    plain, more, also = runner((4,), captured=False)
    assert run(plain, more, [5]).tolist() == [10]
    assert seen.launches + also.launches == [Launch("double", 0, 3, 0, 5), Launch("double", 0, 1, 0, 5)]


def test_rows_beyond_the_live_ones_are_padding_after_a_larger_batch():
    made, buffers, _ = runner((4,))
    run(made, buffers, [1, 2, 3, 4])
    made.prepare(1)
    buffers.fill({"x": torch.tensor([9])}, 1, 4)
    assert made.launch(1)["sum"].tolist() == [9 - 3]


def test_outputs_are_the_callers_own():
    made, buffers, _ = runner((2,))
    first = run(made, buffers, [1, 2])
    run(made, buffers, [7, 8])
    assert first.tolist() == [2, 4]


def test_capture_happens_once_for_each_size():
    made, buffers, seen = runner((1, 2))
    for count in (1, 2, 1, 2):
        run(made, buffers, [3] * count)
    captures = [launch for launch in seen.launches if launch.kind == "capture"]
    assert captures == [Launch("capture", 1, 0, 0, 5), Launch("capture", 2, 0, 0, 5)]
