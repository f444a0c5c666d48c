"""The command line. `main` is what the `draftproof` command runs."""

from __future__ import annotations

from draftproof.cli.app import main

__all__ = ["main"]
