"""One fork server for the faults of all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from draftproof.faults import run as faults
from draftproof.faults.served import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.fixture
def shared_server(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run their faults in it, too."""
    monkeypatch.setattr(faults, "ForkServer", lambda: nullcontext(server))
