"""The report put together: one HTML file without any reference to another."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from draftproof.faults.matrix import FaultReport
from draftproof.fuzz.campaign.verdicts import verdicts
from draftproof.properties.coverage.bins import name_of
from draftproof.properties.coverage.covered import level_of
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.durations import show_duration
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome, worst
from draftproof.report.commands import command
from draftproof.report.html import matrix
from draftproof.report.html.chart import Chart, chart, steps
from draftproof.report.html.findings import View, views
from draftproof.report.html.heat import Coverage, covered
from draftproof.report.html.source import RunSource
from draftproof.report.numbers import count, date, plural, share

MOST_FINDINGS, MOST_TROUBLES = 100, 200
"""A page shows no more, and says how many there are: it opens at once however long a campaign was."""
_PACKAGE = "draftproof.report.html"


class ContractRow(Value, frozen=True, kw_only=True):
    """One contract: scenarios that it judged, how many failed, the minimums that were not reached, and why else."""

    name: str
    verdict: Outcome
    judged: int
    failed: int
    missing: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class CampaignPage:
    """All that is shown. `facts` say what ran, `verdicts` counts contracts by verdict.

    `left_out` are findings and troubles that are not shown.
    """

    name: str
    verdict: Outcome
    says: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[View, ...]
    contracts: tuple[ContractRow, ...]
    verdicts: Mapping[str, int]
    lanes: tuple[FaultReport, ...]
    coverage: Coverage
    chart: Chart | None
    rates: Chart | None
    troubles: tuple[tuple[str, str], ...]
    left_out: tuple[int, int] = (0, 0)


def report(source: RunSource, matrices: Sequence[FaultReport] = ()) -> CampaignPage:
    """Return the report of a run directory and detection matrices."""
    contracts = _judged(source)
    findings = views(source)
    coverage = covered(source.bins, source.settings.drafts, _never(source))
    verdict = _verdict(source, contracts)
    last = _seconds(source)
    times = [float(row["at"]) for row in source.bins if row["name"] in coverage.covered]
    shown = [found.row for found in source.findings if found.row["at"]][:MOST_FINDINGS]
    events = [(float(row["at"]), str(row["contract"])) for row in shown]
    troubles = source.troubles[:MOST_TROUBLES]
    rates = [(float(row["at"]), float(row["rate"])) for row in source.progress if row["rate"] is not None]
    return CampaignPage(
        name=source.path.resolve().name,
        verdict=verdict,
        says=_says(verdict, source, findings, contracts),
        facts=tuple((name, text) for name, text in _facts(source, coverage).items() if text),
        findings=findings[:MOST_FINDINGS],
        contracts=contracts,
        verdicts=Counter(one.verdict.value for one in contracts),
        lanes=tuple(matrices),
        coverage=coverage,
        chart=chart(steps(times), until=last, limit=coverage.possible, events=events),
        rates=chart(rates, until=last, stepped=False),
        troubles=tuple((show_duration(float(row["at"] or 0.0)), str(row["what"])) for row in troubles),
        left_out=(len(findings[MOST_FINDINGS:]), len(source.troubles) - len(troubles)),
    )


def _never(source: RunSource) -> frozenset[str]:
    """Return the bins that every judged scenario calls out of reach for the model, the draft or the subject."""
    counts = source.sums.draft_counts
    judged = {draft: one.value for (draft, name), one in counts.items() if name == "scenarios"}
    never = (of for of, one in counts.items() if 0 < judged.get(of[0], 0) <= one.beyond)
    return frozenset(name_of(*of) for of in never)


def _judged(source: RunSource) -> tuple[ContractRow, ...]:
    """Return the verdicts as the campaign itself gives them, worst first."""
    found = [
        ContractRow(
            name=one.name,
            verdict=one.verdict,
            judged=one.scenarios,
            failed=source.sums.contracts.get(one.name, (0, 0))[1],
            missing=one.missing,
            reason=one.reason,
        )
        for one in verdicts(source.sums, source.settings)
    ]
    return tuple(sorted(found, key=lambda one: list(Outcome).index(one.verdict)))


def _seconds(source: RunSource) -> float:
    said = _float(source.facts.get("seconds", ""))
    last = [float(row["at"]) for row in source.progress[-1:]]
    return max([said or 0.0, *last])


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _verdict(source: RunSource, contracts: Sequence[ContractRow]) -> Outcome:
    """Return the campaign's verdict; while it still runs, the verdict so far."""
    said = source.facts.get("verdict", "")
    if said in Outcome.__members__:
        return Outcome(said)
    outcomes = [Outcome(name) for name in source.sums.outcomes if name in Outcome.__members__]
    found = [Outcome(str(one.row["outcome"])) for one in source.findings if one.row["outcome"] in Outcome.__members__]
    return worst([*outcomes, *found, *(one.verdict for one in contracts if one.judged)])


def _says(verdict: Outcome, source: RunSource, findings: Sequence[View], contracts: Sequence[ContractRow]) -> str:
    """Return one sentence for a reader who reads nothing else."""
    done = source.sums.done
    ran = f"{plural(done, 'scenario')} in {show_duration(_seconds(source))}"
    if findings:
        kinds = Counter(view.outcome for view in findings)
        named = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        return f"{plural(len(findings), 'finding')} ({named}) in {ran}."
    if verdict is Outcome.INCONCLUSIVE:
        short = sum(one.verdict is Outcome.INCONCLUSIVE for one in contracts)
        return f"Nothing failed in {ran}; {plural(short, 'contract')} met too little to say more."
    return f"Nothing failed in {ran}."


def _facts(source: RunSource, coverage: Coverage) -> Mapping[str, str]:
    settings, done, seconds = source.settings, source.sums.done, _seconds(source)
    reported, left_out = source.sums.channels, source.sums.left_out
    started = _float(source.facts.get("started", ""))
    runs, same = (source.sums.counts.get(f"stability_{name}", 0) for name in ("runs", "same"))
    return {
        "Subject": _subject(settings.subject),
        "Versions": source.facts.get("versions", ""),
        "Level": level_of(reported, left_out) if settings.subject.name and reported else "",
        "Shown in some scenarios only": ", ".join(sorted(reported & left_out)),
        "Model": settings.model,
        "Draft model": settings.draft_model,
        "Fault": settings.fault or "none",
        "Device": settings.device,
        "Drafts": ", ".join(settings.drafts),
        "Seed": str(settings.seed),
        "Strategies": f"version {settings.strategies}",
        "Started": date(started) if started else "",
        "Ran for": show_duration(seconds) + (f", ended by {why}" if (why := source.facts.get("reason", "")) else ""),
        "Workers": str(source.workers or ""),
        "Nodes": "; ".join(f"{name} ({plural(ran, 'scenario')})" for name, ran in source.sums.nodes.items()),
        "Scenarios": f"{count(done)} ({_kinds(source.sums.outcomes)})" if done else "0",
        "Rate": f"{count(done / seconds)} a second" if seconds else "",
        "Coverage": f"{share(coverage.hit, coverage.possible)} of {plural(coverage.possible, 'bin')}",
        "Stability": f"{share(same, runs)} of {plural(runs, 'second run')}" if runs else "",
        "Troubles": count(len(source.troubles)),
    }


def _subject(choice: SubjectChoice) -> str:
    """Return the subject with what it was made with, as options say it."""
    others = command(**{**choice.options, "subject": ""}).removeprefix("draftproof")
    return f"{choice.name}{others}" or "the engine"


def _kinds(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count(number)} {name}" for name, number in sorted(outcomes.items(), key=lambda one: -one[1]))


def render(shown: CampaignPage) -> str:
    """Return the file's text."""
    return rendered("page.html.j2", shown)


def rendered(template: str, shown: object) -> str:
    """Return a page. Everything in `shown` is escaped; only our own style sheet and script are not."""
    style, script = _own("report.css"), _own("report.js")
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    page = _environment().get_template(template)
    return page.render(report=shown, policy=policy, style=Markup(style), script=Markup(script))


def _own(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_own),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"count": count, "share": share}
    made.globals["matrix"] = matrix
    return made


class WrittenFinding(Value, frozen=True, kw_only=True):
    """One finding of an HTML report."""

    title: str
    outcome: str
    sentence: str
    commands: tuple[str, ...]


class WrittenReport(Value, frozen=True, kw_only=True):
    """The contents of an HTML report for programs. `holes` are bins that were not hit, out of `possible`."""

    verdict: Outcome
    file: str
    bytes: int
    facts: dict[str, str]
    findings: tuple[WrittenFinding, ...]
    contracts: tuple[ContractRow, ...]
    hit: int
    possible: int
    holes: tuple[str, ...]


def written(shown: CampaignPage, path: Path, size: int) -> WrittenReport:
    """Return what `report --json` writes of a report of `size` bytes in the file `path`."""
    findings = tuple(
        WrittenFinding(
            title=view.title,
            outcome=view.outcome,
            sentence=view.sentence,
            commands=tuple(command.line for command in view.commands),
        )
        for view in shown.findings
    )
    coverage = shown.coverage
    return WrittenReport(
        verdict=shown.verdict,
        file=str(path),
        bytes=size,
        facts=dict(shown.facts),
        findings=findings,
        contracts=shown.contracts,
        hit=coverage.hit,
        possible=coverage.possible,
        holes=tuple(name_of(draft, fact) for draft, facts in coverage.holes for fact in facts),
    )
