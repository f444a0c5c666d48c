"""Command lines of `draftproof` for a reader to copy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftproof.fuzz.campaign.settings import Settings


def command(*words: object, **options: object) -> str:
    """Return a command line: words, then options.

    An option that is None, False or "" is left out, one that is True has no value, and a tuple or list repeats it.
    """
    parts = ["draftproof", *map(str, words)]
    for name, given in options.items():
        flag = f"--{name.replace('_', '-')}"
        for value in given if isinstance(given, (list, tuple)) else (given,):
            if value is True:
                parts.append(flag)
            elif value is not None and value is not False and value != "":
                parts += [flag, str(value)]
    return shlex.join(parts)


def subject_options(settings: Settings, run: Path) -> dict[str, object]:
    """Return the options that select the subject of the campaign in `run` in other commands."""
    patch = str(run / "fault.patch") if settings.patch else ""
    device = settings.device if settings.device != "cpu" else ""
    fault = "" if patch else settings.fault
    return {"device": device, "patch": patch, "fault": fault, **settings.subject.options}
