"""Workers that are forked from the process of the tests: what is imported there need not be imported again."""

import os
import sys
from pathlib import Path

from draftproof.harness.workers.start import fork
from draftproof.harness.workers.worker import main


def _serve(folder: Path, index: int) -> int:
    """With the streams of a process that pytest does not watch, and no other file: a subject may write into all."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    return main(folder, index)


FORKED = fork(_serve)
