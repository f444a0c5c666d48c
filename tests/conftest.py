"""Every test gets the marker of its layer."""

from __future__ import annotations

import pytest

from tests.layers import layer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = layer(item.nodeid)
        if name is not None:
            item.add_marker(name)
