"""Every test gets the marker of its layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layers import has_fast, layer

ROOT = Path(__file__).resolve().parent.parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of other layers for `make test-fast`: that takes as long as its tests."""
    fast_only = config.option.markexpr.startswith("fast and ")
    file = collection_path.relative_to(ROOT).as_posix()
    return True if fast_only and file.endswith(".py") and not has_fast(file) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = layer(item.nodeid)
        if name is not None:
            item.add_marker(name)
