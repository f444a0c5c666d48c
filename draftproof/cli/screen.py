"""Tables on stdout, and progress on stderr: a bar on a terminal, elsewhere a line every half minute."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from draftproof.properties.values.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDTH = 120
_EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal."""
_STYLES = {Outcome.PASS: "green", Outcome.SKIP: "dim", Outcome.ABSENT: "dim", Outcome.INCONCLUSIVE: "yellow"}


def _console() -> Console:
    """Return the console for reports: as wide as the terminal, elsewhere wide enough for every line."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDTH)


def line(text: str, style: str = "") -> None:
    """Print a line that is never broken, so that commands in it can be copied."""
    if not style or not sys.stdout.isatty():
        # Whoever reads a pipe wants it now, too.
        print(text, flush=True)
        return
    from rich.text import Text

    _console().print(Text(text, style=style), soft_wrap=True)


def show(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], right: Sequence[str] = ()) -> None:
    """Print a table, and nothing where it has no rows; `right` names the columns of numbers."""
    made = table(*columns, right=right)
    for row in rows:
        made.add_row(*row)
    if made.row_count:
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


def show_assumed(assumes: str, verdict: Outcome) -> None:
    """Say of a FAIL what to look at before anything else, if its subject takes something for granted."""
    if assumes and verdict is Outcome.FAIL:
        line(f"Before anything else see whether {assumes}.")


def show_verdicts(verdicts: Iterable[Verdict], met: str = "scenarios") -> None:
    """Print a row for each contract: its verdict in colour, how much it met, and why it is no plain pass."""
    from rich.text import Text

    rows = (
        (one.name, Text(one.verdict, style=_STYLES.get(one.verdict, "bold red")), _met(one), _remark(one))
        for one in verdicts
    )
    show(("contract", "verdict", met, ""), rows, right=(met,))


def _met(verdict: Verdict) -> str:
    """Return how many scenarios a contract met; that of a kernel meets calls of it by itself."""
    from draftproof.properties.kernels.table import KERNEL_PREFIX
    from draftproof.report.numbers import plural

    return plural(verdict.scenarios, "call") if verdict.name.startswith(KERNEL_PREFIX) else str(verdict.scenarios)


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


def note(text: str) -> None:
    """Print a line on stderr now."""
    print(text, file=sys.stderr, flush=True)


def now_and_then(*, first: bool = False) -> Callable[[str], None]:
    """Return what prints a line on stderr, at most one every half minute; the `first` at once if that is said."""
    last = time.monotonic() - _EVERY * first

    def tell(text: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _EVERY:
            last = now
            note(text)

    return tell


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show on stderr how far something long is; the value is called for each part."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda *_: bar.advance(task)


def _lines(what: str, total: int) -> Callable[..., None]:
    tell, done, began = now_and_then(), itertools.count(1), time.monotonic()
    return lambda *_: tell(f"{what}: {next(done)} of {total}, {time.monotonic() - began:.0f} s")


@contextmanager
def ticking(what: str) -> Iterator[Callable[[str], None]]:
    """Print on stderr every half minute what is being done, until it is; the value says it anew.

    This takes a thread: use it where nothing forks meanwhile.
    """
    doing, done, began = [what], threading.Event(), time.monotonic()

    def tick() -> None:
        while not done.wait(_EVERY):
            note(f"{doing[0]}, {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield lambda text: doing.__setitem__(0, text)
    finally:
        done.set()
        thread.join()
