"""The tables of a campaign's database, and their rows in memory."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from draftproof.harness.identity import Identity
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

SCHEMA = """
CREATE TABLE IF NOT EXISTS campaign(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS scenarios(number INTEGER PRIMARY KEY, hash TEXT, origin TEXT, draft TEXT, state TEXT,
  outcome TEXT, identity TEXT, seconds REAL, new_bins INTEGER, at REAL, scenario TEXT);
CREATE TABLE IF NOT EXISTS again(number INTEGER PRIMARY KEY, sign TEXT, scenario TEXT);
CREATE TABLE IF NOT EXISTS bins(name TEXT PRIMARY KEY, hits INTEGER, first INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS entries(number INTEGER PRIMARY KEY, hash TEXT, bins TEXT, scenario TEXT);
CREATE TABLE IF NOT EXISTS findings(identity TEXT PRIMARY KEY, slug TEXT, outcome TEXT, contract TEXT, channel TEXT,
  phase TEXT, relation TEXT, state TEXT, hits INTEGER, first INTEGER, at REAL, divergence TEXT, place TEXT,
  detail TEXT, runs TEXT, merged TEXT, requests INTEGER, rounds INTEGER);
CREATE TABLE IF NOT EXISTS contracts(name TEXT PRIMARY KEY, judged INTEGER, failed INTEGER);
CREATE TABLE IF NOT EXISTS minimums(contract TEXT, name TEXT, reached INTEGER, PRIMARY KEY(contract, name));
CREATE TABLE IF NOT EXISTS counts(name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS draft_counts(draft TEXT, name TEXT, value INTEGER, PRIMARY KEY(draft, name));
CREATE TABLE IF NOT EXISTS progress(at REAL PRIMARY KEY, scenarios INTEGER, bins INTEGER, findings INTEGER,
  crashes INTEGER, rate REAL, stability REAL);
CREATE TABLE IF NOT EXISTS troubles(at REAL, what TEXT);
CREATE INDEX IF NOT EXISTS queued ON scenarios(number) WHERE state = 'queued';
"""
FINDING = (
    *("identity", "slug", "outcome", "contract", "channel", "phase", "relation", "state", "hits", "first", "at"),
    *("divergence", "place", "detail", "runs", "merged", "requests", "rounds"),
)


@dataclass
class Waiting:
    """A scenario that was queued and is not done."""

    number: int
    scenario: Scenario
    hash: str
    origin: str
    draft: str


@dataclass
class Bin:
    hits: int
    first: int
    at: float


@dataclass
class Entry:
    """A scenario of the corpus; `bins` is all that it covers."""

    number: int
    hash: str
    bins: frozenset[str]
    scenario: Scenario


@dataclass
class Finding:
    """A row of the table of findings; states are new, shrunk, confirmed, unstable, flaky and merged."""

    identity: str
    slug: str
    outcome: str
    contract: str
    channel: str
    phase: str
    relation: str
    first: int
    at: float
    state: str = "new"
    hits: int = 1
    divergence: str = ""
    place: str = ""
    detail: str = ""
    runs: str = ""
    merged: str = ""
    requests: int = 0
    rounds: int = 0

    @property
    def as_identity(self) -> Identity:
        return Identity(contract=self.contract, channel=self.channel, phase=self.phase, relation=self.relation)

    @property
    def row(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FINDING)


@dataclass
class Memory:
    """All that is known; what the database holds, if nothing waits to be written."""

    facts: dict[str, str] = field(default_factory=dict)
    queued: dict[int, Waiting] = field(default_factory=dict)
    again: dict[int, tuple[str, Scenario]] = field(default_factory=dict)
    bins: dict[str, Bin] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    contracts: dict[str, tuple[int, int]] = field(default_factory=dict)
    minimums: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    draft_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    kept: dict[int, Scenario] = field(default_factory=dict)
    planned: int = 0

    @property
    def done(self) -> int:
        return self.outcomes.total()


def text(scenario: Scenario) -> str:
    return msgspec.json.encode(scenario).decode()


def load(db: sqlite3.Connection) -> Memory:
    """All that the tables hold. Raises sqlite3.Error, and msgspec.MsgspecError for rows that are damaged."""
    memory = Memory(facts=dict(db.execute("SELECT key, value FROM campaign")))
    for number, hash_, origin, draft, raw in db.execute(
        "SELECT number, hash, origin, draft, scenario FROM scenarios WHERE state = 'queued' ORDER BY number"
    ):
        memory.queued[number] = Waiting(number, msgspec.json.decode(raw, type=Scenario), hash_, origin, draft)
    for number, sign, raw in db.execute("SELECT number, sign, scenario FROM again ORDER BY number"):
        memory.again[number] = (sign, msgspec.json.decode(raw, type=Scenario))
    memory.bins = {row[0]: Bin(*row[1:]) for row in db.execute("SELECT name, hits, first, at FROM bins")}
    for number, hash_, bins, raw in db.execute("SELECT * FROM entries ORDER BY number"):
        covered = frozenset(msgspec.json.decode(bins, type=list[str]))
        memory.entries[number] = Entry(number, hash_, covered, msgspec.json.decode(raw, type=Scenario))
    for row in db.execute(f"SELECT {', '.join(FINDING)} FROM findings ORDER BY first"):
        memory.findings[row[0]] = Finding(**dict(zip(FINDING, row, strict=True)))
    memory.contracts = {row[0]: row[1:] for row in db.execute("SELECT name, judged, failed FROM contracts")}
    memory.minimums.update({row[:2]: row[2] for row in db.execute("SELECT contract, name, reached FROM minimums")})
    memory.counts.update(dict(db.execute("SELECT name, value FROM counts")))
    memory.draft_counts.update({row[:2]: row[2] for row in db.execute("SELECT draft, name, value FROM draft_counts")})
    done = "SELECT outcome, count(*) FROM scenarios WHERE state = 'done' GROUP BY outcome"
    memory.outcomes.update({Outcome(name): count for name, count in db.execute(done)})
    firsts = {finding.first for finding in memory.findings.values()}
    for number, raw in db.execute("SELECT number, scenario FROM scenarios WHERE state = 'done' AND scenario NOT NULL"):
        if number in firsts:
            memory.kept[number] = msgspec.json.decode(raw, type=Scenario)
    memory.planned = db.execute("SELECT coalesce(max(number) + 1, 0) FROM scenarios").fetchone()[0]
    return memory
