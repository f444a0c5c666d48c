"""`draftproof bisect`: from a failing case to the parts, or to the commit, that it takes."""

from __future__ import annotations

import typer

from draftproof.cli.history import history
from draftproof.cli.parts import parts

app = typer.Typer(help="From a failing case to the parts of the engine, or the commit, it takes.", no_args_is_help=True)
app.command("parts")(parts)
app.command("history")(history)
