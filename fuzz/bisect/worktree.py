"""Git, run on a repository without leaving a trace in it: a worktree of its own, and no hooks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError

# Set where git runs a hook or an alias: they would point every command of ours at that repository.
_ELSEWHERE = """
    GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR
    GIT_NAMESPACE GIT_PREFIX
"""
_OPTIONS = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


class GitError(DraftproofError, RuntimeError):
    """A git command that must not fail did; the message has the command and what it said."""


class Revision(Value, frozen=True, kw_only=True):
    """A commit: its whole hash, the first line of its message, and the author's date (ISO 8601)."""

    hash: str
    subject: str
    date: str


def environment() -> dict[str, str]:
    """Return the environment of commands in a worktree: no other repository, no translated messages, no prompts.

    No byte code is written: two revisions can have the same size and the same time of change.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE.split()}
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder; its exit status is for the caller to look at. Raises GitError if there is no git."""
    command = ["git", "-C", str(folder), *_OPTIONS, *arguments]
    try:
        return subprocess.run(command, env=environment(), capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise GitError(f"git cannot be run: {error.strerror}") from None


def git(folder: Path, *arguments: str) -> str:
    """Return what a git command printed. Raises GitError."""
    done = run_git(folder, *arguments)
    if done.returncode:
        raise GitError(f"git {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit(folder: Path, name: str) -> Revision:
    """Return a commit by its name. Raises GitError."""
    hash_, date, subject = git(folder, "show", "--no-patch", "--format=%H%n%aI%n%s", name).split("\n", 2)
    return Revision(hash=hash_, subject=subject, date=date)


def clean(worktree: Path) -> None:
    """Bring a worktree back to its commit: what a build left would be in the way of the next one."""
    git(worktree, "reset", "--quiet", "--hard")
    git(worktree, "clean", "-ffdxq")


@contextmanager
def worktree(repository: Path, path: Path, at: str) -> Iterator[Path]:
    """Make a worktree at a commit, detached; it is gone at the end, and with it the state of a bisection in it."""
    git(repository, "worktree", "add", "--quiet", "--detach", str(path), at)
    try:
        yield path
    finally:
        removed = run_git(repository, "worktree", "remove", "--force", "--force", str(path))
        if removed.returncode:
            raise GitError(f"the worktree {path} cannot be removed: {removed.stderr.strip()}")
