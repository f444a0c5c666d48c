"""A pytest session in a process of its own: its exit code is what it says at its end, whatever a subject does."""

from __future__ import annotations

import os
import sys
import threading

import pytest

_OPTIONS: tuple[str, ...] = ("profile", "device", "subject", "seed", "examples", "time", "case")
_OPTIONS += ("python", "url", "set", "model", "draft", "draft-model", "mtp")
"""Options of the plugin, without --draftproof-."""
_APART = pytest.StashKey[bool]()
_sessions: list[pytest.Session] = []
"""Those that run in this process, one within a test of the other."""


def has_options(config: pytest.Config) -> bool:
    """Return whether any option of ours is given."""
    return any(config.getoption(f"--draftproof-{name}") is not None for name in _OPTIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the session in a forked process, if an option of ours is given.

    Not with pytest-xdist, which tells itself how its workers end, and not within a test of another session.
    """
    spread = config.getoption("numprocesses", None) or config.getoption("dist", "no") != "no"
    is_inner = hasattr(config, "workerinput") or bool(_sessions) or config.stash.get(_APART, False)
    is_main = threading.current_thread() is threading.main_thread()
    if spread or is_inner or not is_main or not hasattr(os, "fork") or not has_options(config):
        return None
    from draftproof.process import run_apart

    config.stash[_APART] = True
    return run_apart(lambda: _run_session(config))


def _run_session(config: pytest.Config) -> int:
    try:
        return int(config.hook.pytest_cmdline_main(config=config) or 0)
    except pytest.UsageError as error:
        print("".join(f"ERROR: {line}\n" for line in error.args), file=sys.stderr)
        return pytest.ExitCode.USAGE_ERROR


def pytest_sessionstart(session: pytest.Session) -> None:
    _sessions.append(session)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    _sessions.pop()
