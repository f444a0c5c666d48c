"""Another Python, with numpy and msgspec and nothing else."""

from __future__ import annotations

import importlib.util
import os
import sys
import venv
from pathlib import Path

import pytest

OTHER = Path(__file__).parent / "other"


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment without any package."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session")
def lean_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment with links to the two packages that the other side needs."""
    folder = tmp_path_factory.mktemp("lean") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name in ("numpy", "msgspec"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        for found in package.parent.glob(f"{name}*"):
            os.symlink(found, site / found.name)
    return str(folder / "bin" / "python")


@pytest.fixture
def search() -> str:
    """Where the subjects of these tests are."""
    return str(OTHER)
