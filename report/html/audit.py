"""An audit as one HTML file: rates by draft position, expected with their intervals and observed, and explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftproof.properties.formats.audit import AuditReport, Explanation, PositionRate
from draftproof.properties.values.verdict import Outcome
from draftproof.report.html.chart import Tick
from draftproof.report.html.page import rendered
from draftproof.report.numbers import share
from draftproof.report.text import show_versions


@dataclass(frozen=True)
class Bar:
    """A draft position: its interval from `low` to `high`, what is expected, observed and explained, as heights."""

    name: str
    left: float
    middle: float
    right: float
    low: float
    high: float
    expected: float
    observed: float | None
    explained: float | None


@dataclass(frozen=True)
class RateChart:
    """The plot: heights run from `bottom` (never accepted) to `top` (always)."""

    width: ClassVar[int] = 720
    height: ClassVar[int] = 240
    start: ClassVar[int] = 52
    end: ClassVar[int] = 708
    top: ClassVar[int] = 10
    bottom: ClassVar[int] = 206
    bars: tuple[Bar, ...]
    up: tuple[Tick, ...]


@dataclass(frozen=True)
class ExplanationRow:
    """A mistake: drafts accepted a round, its likelihood, the rounds of a log that go as it says and not as defined."""

    name: str
    accepted: str
    likelihood: str
    explains: str
    is_out: bool


@dataclass(frozen=True)
class AuditPage:
    """All that is shown."""

    name: str
    verdict: str
    says: str
    facts: tuple[tuple[str, str], ...]
    chart: RateChart
    positions: tuple[tuple[str, ...], ...]
    explained_by: str
    explanations: tuple[ExplanationRow, ...]


def audit_page(name: str, report: AuditReport) -> str:
    """Return the page of an audit; `name` says of what."""
    first = _first(report)
    return rendered(
        "audit.html.j2",
        AuditPage(
            name=name,
            verdict="EXPECTED" if report.verdict is None else report.verdict.value,
            says=report.says,
            facts=_facts(report),
            chart=_chart(report.positions, first),
            positions=tuple(_numbers(one) for one in report.positions),
            explained_by="" if first is None else first.name,
            explanations=tuple(_row(one) for one in report.explanations),
        ),
    )


def _first(report: AuditReport) -> Explanation | None:
    """Return the mistake that is drawn beside what was observed: the likeliest, where the draft is not as defined."""
    found = report.explanations[:1] if report.verdict is not None else ()
    is_other = found and (report.verdict is Outcome.FAIL if found[0].explains is None else found[0].explains > 0)
    return found[0] if is_other and not found[0].ruled_out else None


def _facts(report: AuditReport) -> tuple[tuple[str, str], ...]:
    """Return what was compared, in words."""
    found = {
        "engine": report.subject,
        "its settings": ", ".join(f"{name}={value}" for name, value in report.settings.items()),
        "its versions": show_versions(report.versions),
        "accepted a round, expected": f"{report.expected:.2f}",
        "observed": "" if report.observed is None else f"{report.observed:.2f}",
        "prompts": str(report.prompts),
        "rounds observed": "" if report.observed_rounds is None else f"{report.observed_rounds:,}",
        "rounds as they should be": ""
        if report.same_rounds is None
        else share(report.same_rounds, report.observed_rounds or 0),
        "shortfall that would be noticed": "" if report.noticeable is None else f"{report.noticeable:.2f}",
        "a right engine fails in": f"at most {share(report.false_alarms, 1)} of audits",
        "tokens not the target's": str(report.other_texts or ""),
    }
    return tuple((name, text) for name, text in found.items() if text)


def _chart(positions: Sequence[PositionRate], first: Explanation | None) -> RateChart:
    width = (RateChart.end - RateChart.start) / max(1, len(positions))
    bars = []
    for place, one in enumerate(positions):
        middle = RateChart.start + width * (place + 0.5)
        bars.append(
            Bar(
                name=str(one.position),
                left=round(middle - width * 0.3, 1),
                middle=round(middle, 1),
                right=round(middle + width * 0.3, 1),
                low=_up(one.low),
                high=_up(one.high),
                expected=_up(one.expected),
                observed=None if one.observed is None else _up(one.observed),
                explained=None if first is None else _up(first.positions[place]),
            )
        )
    return RateChart(tuple(bars), tuple(Tick(_up(rate / 4), f"{25 * rate} %") for rate in range(5)))


def _up(rate: float) -> float:
    return round(RateChart.bottom - (RateChart.bottom - RateChart.top) * rate, 1)


def _numbers(one: PositionRate) -> tuple[str, ...]:
    observed = "" if one.observed is None else f"{one.observed:.3f}"
    p = "" if one.p is None else f"{one.p:.2g}"
    return (str(one.position), f"{one.expected:.3f}", f"{one.low:.3f} to {one.high:.3f}", observed, p)


def _row(one: Explanation) -> ExplanationRow:
    likelihood = "" if one.likelihood is None else f"{one.likelihood:.3f}"
    explains = "" if one.explains is None else str(one.explains)
    return ExplanationRow(one.name, f"{one.expected:.2f}", likelihood, explains, one.ruled_out)
