"""Ranks of one host exchange rows over sockets; who leaves is noticed by all others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from draftproof.engine.host_mesh import HostMesh

SIZE = 3


def on_all(meeting: Path, work: Callable[[HostMesh, int], object]) -> list[object]:
    """Return what comes of a function of a mesh and its rank, run by all ranks beside each other."""

    def run(rank: int) -> object:
        mesh = HostMesh(rank, SIZE, meeting)
        try:
            return work(mesh, rank)
        finally:
            mesh.close()

    with ThreadPoolExecutor(SIZE) as ranks:
        return list(ranks.map(run, range(SIZE)))


def test_all_ranks_have_the_rows_of_each_and_their_sum(tmp_path: Path) -> None:
    def exchanged(mesh: HostMesh, rank: int) -> list[list[int]]:
        everyone, parts = np.empty((SIZE, 2), np.int64), np.array([rank, 1 << 62])
        mesh.gather(everyone, np.array([rank, 10 * rank]))
        mesh.gather(np.empty((SIZE, 0)), np.empty(0))
        mesh.sum(parts)
        return [*everyone.tolist(), parts.tolist()]

    assert on_all(tmp_path, exchanged) == [[[0, 0], [1, 10], [2, 20], [3, -(1 << 62)]]] * SIZE


@pytest.mark.parametrize("leaves", range(SIZE))
def test_who_leaves_is_noticed_by_all(tmp_path: Path, leaves: int) -> None:
    def left(mesh: HostMesh, rank: int) -> bool:
        if rank == leaves:
            mesh.close()
            return True
        with pytest.raises(RuntimeError, match="a rank has left"):
            mesh.gather(np.empty((SIZE, 1 << 16)), np.zeros(1 << 16))
        return True

    assert on_all(tmp_path, left) == [True] * SIZE
