"""The state of a running campaign: on a terminal a live screen, elsewhere a line every half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from draftproof.cli import screen
from draftproof.properties.values.durations import show_duration

if TYPE_CHECKING:
    from rich.table import Table

    from draftproof.fuzz.campaign.events import Facts

EVERY = 30.0
"""Seconds between two lines where there is no terminal."""
_LONGEST_BIN = 72
Watch = Callable[["Facts"], None]


@contextmanager
def watching() -> Iterator[Watch]:
    """Yield a function that shows the state of a campaign."""
    if not sys.stderr.isatty():
        yield _Lines().tell
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda facts: live.update(table(facts))


class _Lines:
    """A plain line on stderr every half minute, the first at once."""

    def __init__(self) -> None:
        self._told = -EVERY

    def tell(self, facts: Facts) -> None:
        now = time.monotonic()
        if now - self._told >= EVERY:
            self._told = now
            print(line(facts), file=sys.stderr, flush=True)


def line(facts: Facts) -> str:
    """Return the facts in one line."""
    parts = (
        f"{show_duration(facts.at)} {facts.doing}",
        f"{facts.scenarios} scenarios ({facts.rate:.1f}/s)",
        f"bins {facts.hit}/{facts.possible}",
        f"{facts.findings} findings",
        f"{facts.crashes} crashes",
        f"{facts.hangs} hangs",
        f"stability {_stability(facts)}",
        f"{facts.troubles} troubles",
        f"{facts.replaced} workers replaced",
        f"{show_duration(facts.left)} left",
    )
    return ", ".join(parts)


def table(facts: Facts) -> Table:
    """Return the facts as a screen."""
    from rich.text import Text

    made = screen.table("campaign", facts.doing)
    for name, text, style in _rows(facts):
        made.add_row(name, Text(text, style=style))
    return made


def _rows(facts: Facts) -> Iterator[tuple[str, str, str]]:
    bad = "bold red"
    share = 100 * facts.hit / facts.possible if facts.possible else 0.0
    yield "time", f"{show_duration(facts.at)}, {show_duration(facts.left)} left", ""
    yield "scenarios", f"{facts.scenarios}, {facts.rate:.1f} a second, corpus of {facts.corpus}", ""
    yield "coverage", f"{facts.hit} of {facts.possible} bins ({share:.1f} %)", ""
    if facts.last_new:
        yield "last new", f"{show_duration(facts.since)} ago: {_short(facts.last_new)}", ""
    yield "findings", str(facts.findings), bad if facts.findings else "green"
    yield "crashes, hangs", f"{facts.crashes}, {facts.hangs}", bad if facts.crashes + facts.hangs else ""
    yield "stability", _stability(facts), bad if facts.stability < 1 else ""
    yield "troubles", f"{facts.troubles}, of them errors of our own {facts.errors}", "yellow" if facts.troubles else ""
    yield "workers", f"{facts.workers}, replaced {facts.replaced}", ""
    if facts.unwritten:
        yield "not written yet", str(facts.unwritten), bad


def _stability(facts: Facts) -> str:
    return f"{100 * facts.stability:.4g} % of {facts.stability_runs}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_BIN else f"{name[: _LONGEST_BIN - 3]}..."
