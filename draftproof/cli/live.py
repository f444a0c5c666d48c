"""The state of a running campaign: on a terminal a live screen, elsewhere a line every half minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from draftproof.cli import screen
from draftproof.properties.lib.durations import show_duration

if TYPE_CHECKING:
    from rich.table import Table

    from draftproof.fuzz.campaign.standing import CampaignStatus

_LONGEST_BIN = 72
Watch = Callable[["CampaignStatus"], None]


@contextmanager
def watching() -> Iterator[Watch]:
    """Yield a function that shows the state of a campaign."""
    if not sys.stderr.isatty():
        yield _line_now_and_then()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(table(status))


def _line_now_and_then() -> Watch:
    """Return what prints a line on stderr every half minute, the first at once."""
    tell = screen.now_and_then(first=True)
    return lambda status: tell(line(status))


def line(status: CampaignStatus) -> str:
    """Return the status in one line."""
    parts = (
        f"{show_duration(status.at)} {status.doing}",
        f"{status.scenarios} scenarios ({status.rate:.1f}/s)",
        f"bins {status.hit}/{status.possible}",
        f"{status.findings} findings",
        f"{status.crashes} crashes",
        f"{status.hangs} hangs",
        f"stability {_stability(status)}",
        f"{status.troubles} troubles",
        f"{status.replaced} workers replaced",
        f"{show_duration(status.left)} left",
    )
    return ", ".join(parts)


def table(status: CampaignStatus) -> Table:
    """Return the status as a screen."""
    from rich.text import Text

    made = screen.table("campaign", status.doing)
    for name, text, style in _rows(status):
        made.add_row(name, Text(text, style=style))
    return made


def _rows(status: CampaignStatus) -> Iterator[tuple[str, str, str]]:
    bad = "bold red"
    share = 100 * status.hit / status.possible if status.possible else 0.0
    yield "time", f"{show_duration(status.at)}, {show_duration(status.left)} left", ""
    yield "scenarios", f"{status.scenarios}, {status.rate:.1f} a second", ""
    yield "coverage", f"{status.hit} of {status.possible} bins ({share:.1f} %)", ""
    if status.last_new:
        yield "last new", f"{show_duration(status.since)} ago: {_short(status.last_new)}", ""
    yield "findings", str(status.findings), bad if status.findings else "green"
    yield "crashes, hangs", f"{status.crashes}, {status.hangs}", bad if status.crashes + status.hangs else ""
    yield "stability", _stability(status), bad if status.stability < 1 else ""
    troubles = f"{status.troubles}, of them errors of our own {status.errors}"
    yield "troubles", troubles, "yellow" if status.troubles else ""
    yield "workers", f"{status.workers}, replaced {status.replaced}", ""


def _stability(status: CampaignStatus) -> str:
    return f"{100 * status.stability:.4g} % of {status.stability_runs}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_BIN else f"{name[: _LONGEST_BIN - 3]}..."
