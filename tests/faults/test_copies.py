"""Copies of the sources share what no fault changes, and no fault can change it for the others."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from draftproof.faults.patched_sources import Copy, write_copy
from draftproof.faults.patching import parse

SOURCES = {"engine/walk.py": "x = 1\n", "engine/run.py": "y = 1\n"}
HUNKS = parse("engine/walk.py\n-x = 1\n+x = 2\n")
NOBODY = 65534


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Copy, Copy]:
    clean = write_copy(tmp_path / "clean", SOURCES)
    return clean, write_copy(tmp_path / "0", SOURCES, HUNKS, clean)


def test_a_shared_file_is_read_only_and_a_changed_one_is_not(copies: tuple[Copy, Copy]):
    clean, faulty = (Path(copy.folder) for copy in copies)
    assert os.path.samefile(clean / "engine/run.py", faulty / "engine/run.py")
    assert (faulty / "engine/run.py").stat().st_mode & 0o777 == 0o444
    assert (faulty / "engine/walk.py").stat().st_mode & 0o200


def test_who_writes_to_a_shared_file_is_refused(copies: tuple[Copy, Copy]):
    """Also where the tests are run by root, whom nothing is refused: as nobody, from the folder that it stands in."""
    clean, faulty = (Path(copy.folder, "engine") for copy in copies)
    for path in (clean / "run.py", faulty / "run.py"):
        user = None
        if os.geteuid() == 0:
            os.chown(path, user := NOBODY, -1)
        writes = ["tee", "-a", path.name]
        done = subprocess.run(
            writes, cwd=path.parent, user=user, input="z = 1", capture_output=True, text=True, check=False
        )
        assert done.returncode, done.stdout
    assert (clean / "run.py").read_text() == SOURCES["engine/run.py"]


def test_a_copy_is_written_again_without_its_siblings(copies: tuple[Copy, Copy]):
    clean, faulty = copies
    other = {**SOURCES, "engine/run.py": "y = 2\n"}
    write_copy(Path(faulty.folder), other, HUNKS)
    assert Path(clean.folder, "engine/run.py").read_text() == SOURCES["engine/run.py"]
    assert Path(faulty.folder, "engine/run.py").read_text() == other["engine/run.py"]
    write_copy(Path(faulty.folder), SOURCES, HUNKS, clean)
    assert Path(faulty.folder, "engine/run.py").read_text() == SOURCES["engine/run.py"]


def test_copies_are_deleted(copies: tuple[Copy, Copy]):
    for copy in copies:
        shutil.rmtree(copy.folder)
        assert not Path(copy.folder).exists()
