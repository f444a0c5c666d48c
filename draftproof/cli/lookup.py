"""Options of a draft that looks tokens up: how long a suffix, and which of several matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import inputs
from draftproof.properties.values.drafts import Algorithm, proposing

if TYPE_CHECKING:
    from draftproof.properties.values.drafts import Ngram

MaxN = Annotated[
    int | None, typer.Option("--max-n", help="With --draft ngram: the longest suffix (default: 3).", min=1, max=16)
]
MinN = Annotated[
    int | None, typer.Option("--min-n", help="With --draft ngram: the shortest suffix (default: 1).", min=1, max=16)
]
Match = Annotated[
    str | None, typer.Option("--match", help="With --draft ngram: the earliest match (the default), or the latest.")
]


def lookup(name: Algorithm | None, max_n: int | None, min_n: int | None, match: str | None) -> Ngram | None:
    """Return the draft that the options name, None if it is of another kind. Raises InputError."""
    from draftproof.properties.values.drafts import Ngram

    if name in proposing("lookup"):
        longest, shortest = max_n or 3, min_n or 1
        if shortest > longest:
            raise inputs.InputError(f"invalid --min-n {shortest}: expected at most --max-n, {longest}")
        which = inputs.choose(match or "earliest", ("earliest", "latest"), "--match")
        return Ngram(max_n=longest, min_n=shortest, match="earliest" if which == "earliest" else "latest")
    for option, given in (("--max-n", max_n), ("--min-n", min_n), ("--match", match)):
        if given is not None:
            lookups = ", ".join(proposing("lookup"))
            raise inputs.InputError(f"invalid {option} {given}: expected only together with --draft {lookups}")
    return None
