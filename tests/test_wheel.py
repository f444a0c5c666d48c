"""What is built of this project: a wheel and an sdist that have all they need, and commands of the wheel elsewhere.

Elsewhere is a folder without this repository on the path. Its packages are those of this environment; one that pip
fills from an index is tried by `python -m tests.fresh`, as every night and before a release.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import fresh

ROOT = Path(__file__).resolve().parent.parent
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = {name: ROOT / path for name, path in SETUP["package-dir"].items()}
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


def built(form: str, source: Path, out: Path) -> Path:
    """Build in a folder, which is written to, by the backend that pip calls."""
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-c", _BUILD, form, str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An sdist of a copy of this project, and the wheel that is built of the sdist, as from an index without wheels."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "copy"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "build", "docs", "benchmarks", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignored)
    sdist = built("sdist", copy, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    return SimpleNamespace(unpacked=unpacked, wheel=built("wheel", unpacked, folder / "wheel"), folder=folder)


def test_a_wheel_of_the_sdist_has_every_module_and_every_file_that_is_read(made: SimpleNamespace):
    with zipfile.ZipFile(made.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    kinds = {pattern.removeprefix("*") for patterns in SETUP["package-data"].values() for pattern in patterns} | {".py"}
    ours = {
        f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == ours
    assert {path for path in ours if not path.endswith(tuple(kinds))} == set()


def test_an_sdist_has_no_tests_but_what_is_told_to_people(made: SimpleNamespace):
    assert not (made.unpacked / "tests").exists()
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"):
        assert (made.unpacked / name).read_bytes() == (ROOT / name).read_bytes()


def test_commands_of_the_wheel_do_what_they_should_elsewhere(made: SimpleNamespace, tmp_path: Path):
    venv.create(made.folder / "environment", with_pip=False)
    python = made.folder / "environment/bin/python"
    packages = next((made.folder / "environment").glob("lib/python3*/site-packages"))
    # A path in a .pth file brings packages, but no editable installation: those are .pth files themselves.
    others = [path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in others))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, made.wheel], check=True)
    where = subprocess.run(
        [python, "-P", "-c", "import draftproof; print(draftproof.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(packages)
    place = tmp_path / "else where"
    place.mkdir()
    assert fresh.failures(python, fresh.commands(examples=6), place) == []
