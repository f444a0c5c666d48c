"""Tables and progress. Progress is for terminals only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from draftproof.properties.values.verdict import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH = 120
_STYLES = {
    Outcome.PASS: "green",
    Outcome.SKIP: "dim",
    Outcome.INCONCLUSIVE: "yellow",
}


def console() -> Console:
    """Return the console for reports: as wide as the terminal, elsewhere wide enough for every line."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=WIDTH)


def line(text: str, style: str = "") -> None:
    """Print a line that is never broken, so that commands in it can be copied."""
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.text import Text

    console().print(Text(text, style=style), soft_wrap=True)


def outcome(verdict: Outcome | str) -> Text:
    """Return an outcome in its colour."""
    from rich.text import Text

    style = _STYLES.get(verdict, "bold red") if isinstance(verdict, Outcome) else ""
    return Text(str(verdict), style=style)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table whose first column is never broken."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not made.columns,
            overflow="fold",
        )
    return made


def columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first row as their heads; a long list is quicker to print so than as a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in [rows[0], ["─" * width for width in widths], *rows[1:]]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counts_table(counts: Mapping[str, int]) -> Table:
    """Return counts in three columns of name and number."""
    made = table("counted", "", " counted", " ", "  counted", "  ", right=("", " ", "  "))
    items = list(counts.items())
    rows = -(-len(items) // 3)
    for row in range(rows):
        cells: list[str] = []
        for column in range(3):
            at = row + column * rows
            cells += [items[at][0], str(items[at][1])] if at < len(items) else ["", ""]
        made.add_row(*cells)
    return made


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr while something long is done; the value is called for each part."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda *_: bar.advance(task)
