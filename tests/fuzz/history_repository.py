"""A git repository of 64 commits, one of which brings a known bug in: something for `draftproof explain --repo`.

    python -m tests.fuzz.history_repository FOLDER [--seed N] [--fault ID] [--unbuildable python|build]

The first commit is a copy of engine/ and kernels/; those after it change comments and notes, and one of them the code
by the patch of a fault. With --unbuildable a third of them have a syntax error in the engine (python), or a build file
that cannot be read (build): then --setup must read it. The same arguments make the same hashes.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from draftproof.faults.catalogue import catalogue, find, read_sources
from draftproof.faults.patching import Hunk, apply, by_path

COMMITS = 64
FAULT = "draft-positions-advanced-early"
SETUP = ("python3", "-c", "import tomllib; tomllib.load(open('build.toml', 'rb'))")
"""The build of these repositories: it fails where the build file is broken."""
_START = 1_700_000_000
_BUILT = {"build.toml": '[build]\nname = "engine"\n'}
_ENGINE = "engine/engine.py"
Unbuildable = Literal["no", "python", "build"]
_Files = dict[str, str]


@dataclass(frozen=True)
class Made:
    """A repository: its commits, oldest first, the place of the culprit in them, and of those that cannot be built."""

    folder: Path
    hashes: tuple[str, ...]
    culprit: int
    unbuildable: frozenset[int]


def make(
    folder: Path, seed: int = 0, fault: str = FAULT, unbuildable: Unbuildable = "no", commits: int = COMMITS
) -> Made:
    """Write the repository into a new folder.

    Raises FileExistsError, and UnknownFaultError or StalePatchError for the fault.
    """
    drawn = random.Random(seed)
    culprit = drawn.randrange(1, commits - 1)
    # Ends, culprit and the commit before it can be built: else several commits could be the first bad one.
    others = [number for number in range(1, commits - 1) if number not in (culprit - 1, culprit)]
    broken = frozenset(drawn.sample(others, commits // 3)) if unbuildable != "no" else frozenset[int]()
    stream = _stream(drawn, commits, find(fault, catalogue()).hunks(), culprit, broken, unbuildable)
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "fast-import", "--quiet", given="".join(stream))
    _git(folder, "reset", "--quiet", "--hard", "main")
    hashes = _git(folder, "rev-list", "--reverse", "main").split()
    return Made(folder, tuple(hashes), culprit, broken)


def _stream(
    drawn: random.Random,
    commits: int,
    hunks: tuple[Hunk, ...],
    culprit: int,
    broken: frozenset[int],
    unbuildable: Unbuildable,
) -> Iterator[str]:
    """Return the input of `git fast-import`."""
    files: _Files = {**read_sources(), **_BUILT, "NOTES.md": "# Notes\n"}
    yield _commit(0, "Engine and kernels", files)
    for number in range(1, commits):
        message = "Words"
        if number == culprit:
            files, message = _patched(files, hunks), "Advance positions where they are used"
        elif drawn.random() < 0.5:
            files = {**files, _ENGINE: f"{files[_ENGINE]}# Revision {number}.\n"}
        files = {**files, "NOTES.md": f"{files['NOTES.md']}{number}\n"}
        if number in broken:
            yield _commit(number, "Work in progress", _broken(files, unbuildable))
        else:
            yield _commit(number, message, files)


def _patched(files: _Files, hunks: tuple[Hunk, ...]) -> _Files:
    return {**files, **{path: apply(files[path], of_path)[0] for path, of_path in by_path(hunks).items()}}


def _broken(files: _Files, how: Unbuildable) -> _Files:
    if how == "build":
        return {**files, "build.toml": "[build\n"}
    return {**files, _ENGINE: f"{files[_ENGINE]}def (:\n"}


def _commit(number: int, message: str, files: _Files) -> str:
    """One commit with all its files; an author and a date that are always the same."""
    who = f"Example <example@example.invalid> {_START + 3600 * number} +0000"
    head = f"commit refs/heads/main\nauthor {who}\ncommitter {who}\n{_data(f'{message}, revision {number}')}"
    return "".join([head, "deleteall\n", *(f"M 100644 inline {path}\n{_data(text)}" for path, text in files.items())])


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _git(folder: Path, *arguments: str, given: str = "") -> str:
    """Run git without anybody's configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env=alone, input=given.encode(), check=True, capture_output=True)
    return done.stdout.decode().strip()


def main(folder: Path, seed: int = 0, fault: str = FAULT, unbuildable: Unbuildable = "no") -> None:
    """Write a repository of 64 commits with a known bug, an id of `draftproof faults list`, in one of them."""
    made = make(folder, seed, fault, unbuildable)
    setup = ["--setup", shlex.join(SETUP)] if unbuildable == "build" else []
    ends = ["--good", made.hashes[0], "--bad", "main"]
    print(f"{len(made.hashes)} commits, {len(made.unbuildable)} of them cannot be built. Now:")
    print(shlex.join(["draftproof", "explain", "--repo", str(made.folder), *ends, *setup, "CASE.json"]))
    print(f"must name {made.hashes[made.culprit]}")


if __name__ == "__main__":
    typer.run(main)
