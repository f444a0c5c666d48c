"""The command that does the same again: as it is, or, where it is long, how to run the file that has it."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from draftproof.report.commands import command

_LONGEST = 400
"""Characters of a command that are still printed."""
_FOLDER = Path(".draftproof/again")


def again(*words: str | Path, **options: object) -> str:
    """Return what to run to have the same again: a command line, of at most _LONGEST characters.

    A longer one is written into a file in _FOLDER, and what is returned runs that file.
    """
    line = command(*words, **options)
    if len(line) <= _LONGEST:
        return line
    from draftproof.properties.lib.files import write_whole

    name = "-".join(word for word in words if isinstance(word, str))
    path = _FOLDER / f"{name}-{hashlib.sha256(line.encode()).hexdigest()[:8]}.sh"
    ours = shlex.join([sys.executable, "-P", "-m", "draftproof.cli"])
    try:
        write_whole(path, f"cd {shlex.quote(str(Path.cwd()))} &&\nexec {ours} {line.removeprefix('draftproof ')}\n")
    except OSError:
        return "the same command"
    return f"sh {path}"
