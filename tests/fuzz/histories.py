"""Repositories to bisect: commits made by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, states: Sequence[str], name: str = "said") -> list[str]:
    """A repository with one commit for each content of a file; their hashes, oldest first."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    stream = "".join(made(number, {name: state, "number": str(number)}) for number, state in enumerate(states))
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream.encode(), check=True)
    git(folder, "reset", "--quiet", "--hard", "main")
    return git(folder, "rev-list", "--reverse", "main").split()


def made(number: int, files: dict[str, str]) -> str:
    """A commit as `git fast-import` reads it."""
    head = f"commit refs/heads/main\ncommitter Test <test@example.invalid> {1_700_000_000 + number} +0000\n"
    texts = (f"M 100644 inline {name}\n{data(text)}" for name, text in files.items())
    return "".join([head, data(f"Number {number}"), *texts])


def data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"
