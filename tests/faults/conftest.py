"""One fork server for the faults of all tests of a process, and named scenarios for all of them."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from draftproof.faults import run as faults
from draftproof.faults.served import ForkServer
from tests.faults.listed import listed


@pytest.fixture(autouse=True, scope="session")
def scenarios_are_named() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "generate", listed)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.fixture
def shared_server(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run their faults in it, too."""
    monkeypatch.setattr(faults, "ForkServer", lambda: nullcontext(server))
