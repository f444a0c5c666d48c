"""Tables and progress. Progress is for terminals only."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from draftproof.properties.values.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH = 120
_STYLES = {Outcome.PASS: "green", Outcome.SKIP: "dim", Outcome.ABSENT: "dim", Outcome.INCONCLUSIVE: "yellow"}


def _console() -> Console:
    """Return the console for reports: as wide as the terminal, elsewhere wide enough for every line."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=WIDTH)


def line(text: str, style: str = "") -> None:
    """Print a line that is never broken, so that commands in it can be copied."""
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.text import Text

    _console().print(Text(text, style=style), soft_wrap=True)


def show(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], right: Sequence[str] = ()) -> None:
    """Print a table; `right` names the columns of numbers."""
    made = table(*columns, right=right)
    for row in rows:
        made.add_row(*row)
    _console().print(made)


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return a table whose first column is never broken."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        justify: Literal["right", "left"] = "right" if column in right else "left"
        made.add_column(column, justify=justify, no_wrap=not made.columns, overflow="fold")
    return made


def show_verdicts(verdicts: Iterable[Verdict]) -> None:
    """Print a row for each contract: its verdict in colour, and why it is no plain pass."""
    from rich.text import Text

    rows = (
        (one.name, Text(one.verdict, style=_STYLES.get(one.verdict, "bold red")), str(one.scenarios), _remark(one))
        for one in verdicts
    )
    show(("contract", "verdict", "scenarios", ""), rows, right=("scenarios",))


def _remark(verdict: Verdict) -> str:
    if verdict.verdict is Outcome.INCONCLUSIVE:
        return f"not enough was exercised: {', '.join(verdict.missing)}"
    return f"first in {verdict.divergence.channel}" if verdict.divergence else verdict.reason


def columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first row as their heads; a long list is quicker to print so than as a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in [rows[0], ["─" * width for width in widths], *rows[1:]]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_counts(counts: Mapping[str, int]) -> None:
    """Print counts in three columns of name and number."""
    cells = [(name, str(count)) for name, count in counts.items()]
    height = -(-len(cells) // 3)
    thirds = (cells[start : start + height] for start in range(0, 3 * height, height or 1))
    rows = (tuple(itertools.chain(*row)) for row in itertools.zip_longest(*thirds, fillvalue=("", "")))
    show(("counted", "", " counted", " ", "  counted", "  "), rows, right=("", " ", "  "))


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
