"""`draftproof init`: a subject to fill in, for an engine of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.report.subject_file import SUBJECT_LEVELS, module_of, subject_file

Engine = Annotated[str, typer.Option("--engine", help="The name of the engine.", metavar="NAME")]
DraftName = Annotated[str, typer.Option("--draft", help=f"The draft that it has: {', '.join(ALGORITHMS)}.")]
Level = Annotated[str, typer.Option("--level", help=f"What it can be made to tell: {', '.join(SUBJECT_LEVELS)}.")]


def init(engine: Engine, draft: DraftName, level: Level = "drafts") -> None:
    """Write a subject to fill in, NAME_subject.py, into this folder."""
    of, told = inputs.choose(draft, ALGORITHMS, "--draft"), inputs.choose(level, SUBJECT_LEVELS, "--level")
    module = module_of(engine)
    if not module or module[0].isdigit() or '"' in engine or "\\" in engine:
        raise inputs.InputError(f"invalid --engine {engine!r}: expected a name that begins with a letter")
    path = Path(f"{module}_subject.py")
    if path.exists():
        raise inputs.InputError(f"invalid --engine {engine!r}: expected another name, as {path} exists")
    inputs.write_text("--engine", path, subject_file(engine, of, told))
    screen.line(f"wrote {path}: fill in `rounds`; what it says of itself is how to check it")
