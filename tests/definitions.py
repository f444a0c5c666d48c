"""The definitions of docs/semantics/, as the pages have them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from draftproof.report.definitions import CHAPTERS

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^#+ (S-[A-Z]+-\d+)$", re.MULTILINE)


@cache
def pages() -> dict[str, str]:
    """Return path -> text of every chapter."""
    return {one.path: (ROOT / one.path).read_text(encoding="utf-8") for one in CHAPTERS}


@cache
def defined() -> tuple[str, ...]:
    """Return every definition, in the order in which they are read."""
    return tuple(number for text in pages().values() for number in HEADING.findall(text))
