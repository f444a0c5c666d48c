"""Workers that are forked from the process of the tests: what is imported there need not be imported again."""

from __future__ import annotations

import sys
from pathlib import Path

from draftproof.harness.workers.start import fork
from draftproof.harness.workers.worker import main


def _serve(folder: Path, index: int) -> int:
    """With the streams of a process that pytest does not watch."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    return main(folder, index)


FORKED = fork(_serve)
