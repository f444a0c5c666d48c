"""A run directory as a campaign leaves it, made by hand: what a report is tested with."""

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from draftproof.faults.baseline import Baseline
from draftproof.faults.matrix import FaultReport, FaultResult, MadeWith, spread, totals
from draftproof.faults.trial import FaultOutcome
from draftproof.fuzz.campaign.schema import FINDING_COLUMNS, SCHEMA
from draftproof.fuzz.campaign.settings import Settings
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.bins import universe
from draftproof.properties.diagnosis.timeline import Timeline, timeline
from draftproof.properties.formats.case import encode
from draftproof.properties.judge import judge
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.verdict import Outcome
from tests.properties.evidence import evidence

EVIL = """<script>alert(1)</script><img src=x onerror="alert(2)">&amp;'"`{{ 7*7 }}{% raw %} javascript:alert(3)"""
"""What must stand in a report as it is, and do nothing."""
Rows = Iterable[tuple[Any, ...]]


def late(observation: Observation) -> Observation:
    """Wrong from some round on."""
    if observation.channel != "draft.step.positions" or observation.key.round < 2:
        return observation
    return observation._replace(value=observation.value + 1)  # type: ignore[operator]


@lru_cache
def drawn() -> Timeline:
    """The timeline of a finding, of a subject that is wrong from round 2 on."""
    of = evidence()
    seen = tuple(late(one) for one in of.subject.observations if one.key.request != 2 or one.key.round < 2)
    of = replace(of, subject=Trace("late", of.subject.channels, seen))
    first = next(
        found for found in judge(of).results.values() if found is not None and found.channel == "draft.step.positions"
    )
    return timeline(of, first)


def finding(**fields: Any) -> tuple[Any, ...]:
    """A row of the table of findings."""
    first = drawn().first
    row = {
        "slug": "draft-positions-0a",
        "identity": "draft.positions | draft.step.positions | draft | off by ahead",
        "outcome": "FAIL",
        "contract": "draft.positions",
        "channel": "draft.step.positions",
        "phase": "draft",
        "relation": "off by ahead",
        "state": "confirmed",
        "hits": 412,
        "first": 17,
        "at": 3.5,
        "divergence": msgspec.json.encode(first).decode(),
        "place": "",
        "detail": "",
        "runs": "3/3",
        "merged": "",
        "requests": 2,
        "rounds": 3,
        "node": "",
        **fields,
    }
    return tuple(row[name] for name in FINDING_COLUMNS)


CRASH = finding(
    slug="crash-illegal-0b",
    identity="crash | AcceleratorError | verify | ",
    outcome="CRASH",
    contract="crash",
    channel="AcceleratorError",
    phase="verify",
    relation="",
    state="new",
    hits=3,
    first=230,
    at=61.0,
    divergence="",
    place="base, engine step 7, verify",
    detail="Traceback (most recent call last):\n" + '  File "engine/runner.py", line 88, in launch\n' * 9,
    runs="",
)
MERGED = finding(
    slug="draft-tokens-0c",
    identity="draft.tokens | draft.step.ids | draft | different",
    contract="draft.tokens",
    state="merged",
    merged="draft.positions | draft.step.positions | draft | off by ahead",
    hits=31,
    at=4.0,
)
FINDINGS = (finding(), MERGED, CRASH)


def make(
    path: Path,
    findings: Rows = FINDINGS,
    settings: Settings | None = None,
    *,
    seconds: float = 600.0,
    share: float = 0.93,
    bins: Rows | None = None,
    facts: dict[str, str] | None = None,
) -> Path:
    """Write a run directory with these findings; `share` of all bins were hit. The case file of the first is there."""
    settings = settings or Settings(seed=5, device="cuda")
    path.mkdir(parents=True, exist_ok=True)
    (path / "campaign.json").write_text(encode(settings) + "\n")
    findings = tuple(findings)
    for row in findings:
        _folder(path, dict(zip(FINDING_COLUMNS, row, strict=True)))
    tables = _tables(settings, seconds, share)
    tables["findings"] = findings
    tables["campaign"] = list({**dict(tables["campaign"]), **(facts or {})}.items())
    if bins is not None:
        tables["bins"] = bins
    with closing(sqlite3.connect(path / "results.sqlite")) as store:
        store.executescript(SCHEMA)
        for table, rows in tables.items():
            for row in rows:
                store.execute(f"INSERT INTO {table} VALUES({', '.join('?' * len(row))})", row)
        store.commit()
    return path


def _folder(path: Path, row: dict[str, Any]) -> None:
    if row["state"] == "merged" or "/" in row["slug"]:
        return
    folder = path / "findings" / row["slug"]
    folder.mkdir(parents=True)
    for name in ("case.json", "shrunk.json") if row["state"] == "confirmed" else ("case.json",):
        (folder / name).write_text("{}")
    if row["divergence"]:
        (folder / "timeline.json").write_text(msgspec.json.encode(drawn()).decode())


def _tables(settings: Settings, seconds: float, share: float) -> dict[str, Rows]:
    dice = random.Random(1)
    known = universe(settings.drafts)
    hit = [name for name in known if dice.random() < share]
    times = sorted(seconds * dice.random() ** 3 for _ in hit)
    judged = [one for one in ALL if one.name.split(".")[0] != "variant" or dice.random() < 0.7]
    return {
        "campaign": [
            ("workers", "2"),
            ("started", "1795000000.0"),
            ("seconds", str(seconds)),
            ("verdict", "CRASH"),
            ("reason", "time"),
        ],
        "scenarios": [
            (number, "", "", "eagle", "done", "FAIL" if number % 40 == 0 else "PASS", "", 0.1, 0, 0.1 * number)
            for number in range(2000)
        ],
        "bins": [(name, int(10 ** (4 * dice.random())), 1, round(at, 3)) for name, at in zip(hit, times, strict=True)],
        "contracts": [(one.name, 2000, 450 if one.name == "draft.positions" else 0) for one in judged],
        "minimums": [(one.name, name, 70 * (name != "padded_replays"), 0) for one in judged for name in one.minimum],
        "counts": [("stability_runs", 60), ("stability_same", 60), ("rounds", 9000)],
        "draft_counts": [("eagle", "scenarios", 400, 0)],
        "progress": [(float(at), at * 3, 900, 1, 0, 3 + dice.random(), 1.0) for at in range(5, int(seconds) + 1, 5)],
        "troubles": [(12.5, "results.sqlite cannot be written: database or disk is full; it is tried again later")],
    }


def matrix(device: str = "cpu") -> FaultReport:
    """A detection matrix with faults of several outcomes."""
    rows = tuple(_fault(number) for number in range(24))
    return FaultReport(
        verdict=Outcome.FAIL,
        seeds=(0, 1, 2, 3, 4),
        examples=30,
        device=device,
        faults=rows,
        totals=totals(rows),
        versions=(MadeWith(package="torch", version="2.13.0"),),
    )


def _fault(number: int) -> FaultResult:
    outcome = {3: FaultOutcome.SURVIVED, 5: FaultOutcome.DETECTED_BY_OTHER, 8: FaultOutcome.CRASHED}.get(number)
    found = None if number == 3 else number % 7 + 1
    baseline = Baseline(
        output=number % 3 == 0, acceptance=number % 4 == 0, mean=1.2, expected=1.5, scenarios=50, changed=4
    )
    return FaultResult(
        id=f"draft-positions-advanced-early-{number}",
        outcome=outcome or FaultOutcome.DETECTED,
        contract="draft.positions",
        channel="draft.step.positions",
        draft="eagle",
        examples_to_detect=(found,) * 5,
        clean_twin=Outcome.PASS,
        median=found,
        examples=spread((found,) * 4 + (found and found + 9,)),
        time=spread([None if found is None else found * 0.13] * 5),
        baseline=None if number == 7 else baseline,
        explained="it needs a page of one position, which no scenario of this draft has" if number == 3 else "",
    )
