"""What a script says where a package that it needs is not installed."""

from __future__ import annotations

import sys

_USAGE = 2


def lacking(error: ImportError) -> int:
    """Print in a sentence which package a script needs and this Python lacks; return the exit code of wrong usage."""
    name = (error.name or "").partition(".")[0]
    what = f"{name}, which is not installed here: pip install {name}" if name else f"another package ({error})"
    print(f"error: this script needs {what}", file=sys.stderr)
    return _USAGE
