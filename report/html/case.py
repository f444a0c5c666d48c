"""One failing case as an HTML file: where the two sides part, what it takes to fail, and how to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.properties.diagnosis.timeline import Timeline
from draftproof.properties.values.verdict import Divergence, Outcome
from draftproof.report.html.findings import Command, View
from draftproof.report.html.grid import grid
from draftproof.report.html.page import rendered
from draftproof.report.text import sentence


@dataclass(frozen=True)
class CasePage:
    """All that is shown; `left_out` is asked for by what it shares with the report of a campaign."""

    name: str
    verdict: Outcome
    says: str
    findings: tuple[View, ...]
    left_out: tuple[int, int] = (0, 0)


def case_page(
    name: str, says: str, first: Divergence, timeline: Timeline | None, facts: Mapping[str, str], replay: str
) -> str:
    """Return the file's text."""
    view = View(
        anchor="finding-1",
        number=1,
        outcome=Outcome.FAIL,
        title=first.contract,
        sentence=sentence(first),
        facts=tuple(facts.items()),
        merged=(),
        grid=grid(timeline) if timeline else None,
        commands=(Command("See it again", replay),),
        detail="",
        unread=(),
    )
    return rendered("case.html.j2", CasePage(name, Outcome.FAIL, says, (view,)))
