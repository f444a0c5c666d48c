"""Every test gets the marker of its layer."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before anything is frozen below: it looks for the owners of random generators, and sees no frozen ones.
import hypothesis  # noqa: F401
import pytest

from tests.layers import LAYERS, has, layer
from tests.warm import Warm, spawn

ROOT = Path(__file__).resolve().parent.parent
gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of other layers for `make test-fast` and the like: that takes as long as many tests."""
    file, selected = collection_path.relative_to(ROOT).as_posix(), config.option.markexpr
    if not file.endswith(".py"):
        return None
    only = next((name for name in LAYERS if selected.startswith(f"{name} and ")), None)
    is_left_out = not has(only, file) if only else f"not {layer(file)}" in selected
    return True if is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = layer(item.nodeid)
        if name is not None:
            item.add_marker(name)


def pytest_collection_finish() -> None:
    """What was imported and collected stays, so that it need not be looked over again and again."""
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        from draftproof.kernels.compilation import compile_once

        compile_once()
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """What is still frozen when the interpreter ends is a leak to Triton's bindings, which list it."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def warm() -> Iterator[Warm]:
    """Workers are forked from an interpreter that has imported torch already; so is what tests run in it."""
    with Warm() as started, pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            patch.setattr(os, "posix_spawn", started.posix_spawn)
        yield started


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are new interpreters, as they are for everybody else."""
    monkeypatch.setattr(os, "posix_spawn", spawn)
