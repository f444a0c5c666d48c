"""Tables of a campaign's database, and their rows."""

from __future__ import annotations

from typing import NamedTuple

from draftproof.harness.identity import Identity
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario

DATABASE_VERSION = 7
"""Of the tables and of what is in them; a database keeps it as its user_version.

`texts` has the scenarios that are queued, and those with which findings begin: a row that is let go of leaves its pages
to the next ones, as a column of `scenarios` that is emptied would not.
"""
SCHEMA = f"""
PRAGMA user_version = {DATABASE_VERSION};
CREATE TABLE IF NOT EXISTS campaign(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS scenarios(number INTEGER PRIMARY KEY, hash TEXT, origin TEXT, draft TEXT, state TEXT,
  outcome TEXT, identity TEXT, seconds REAL, new_bins INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS texts(number INTEGER PRIMARY KEY, scenario TEXT);
CREATE TABLE IF NOT EXISTS again(number INTEGER PRIMARY KEY, sign TEXT, scenario TEXT);
CREATE TABLE IF NOT EXISTS bins(name TEXT PRIMARY KEY, hits INTEGER, first INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS findings(identity TEXT PRIMARY KEY, slug TEXT, outcome TEXT, contract TEXT, channel TEXT,
  phase TEXT, relation TEXT, state TEXT, hits INTEGER, first INTEGER, at REAL, divergence TEXT, place TEXT,
  detail TEXT, runs TEXT, merged TEXT, requests INTEGER, rounds INTEGER,
  node TEXT);
CREATE TABLE IF NOT EXISTS contracts(name TEXT PRIMARY KEY, judged INTEGER, failed INTEGER);
CREATE TABLE IF NOT EXISTS minimums(contract TEXT, name TEXT, reached INTEGER, beyond INTEGER,
  PRIMARY KEY(contract, name));
CREATE TABLE IF NOT EXISTS counts(name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS draft_counts(draft TEXT, name TEXT, value INTEGER, beyond INTEGER,
  PRIMARY KEY(draft, name));
CREATE TABLE IF NOT EXISTS channels(name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS left_out(name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS nodes(name TEXT PRIMARY KEY, scenarios INTEGER);
CREATE TABLE IF NOT EXISTS progress(at REAL PRIMARY KEY, scenarios INTEGER, bins INTEGER, findings INTEGER,
  crashes INTEGER, rate REAL, stability REAL);
CREATE TABLE IF NOT EXISTS troubles(at REAL, what TEXT);
CREATE INDEX IF NOT EXISTS queued ON scenarios(number) WHERE state = 'queued';
"""


class QueuedScenario(NamedTuple):
    """A scenario that is planned and not done."""

    number: int
    scenario: Scenario
    hash: str
    origin: str
    draft: str


class SecondRun(NamedTuple):
    """A scenario that is to run again; `sign` is what its first run showed."""

    number: int
    sign: str
    scenario: Scenario


class CampaignFinding(Value, frozen=True, kw_only=True):
    """A row of the table of findings; its fields are the columns in their order.

    `node` is where its first hit ran, in a cluster. States are new, shrunk, confirmed, unstable, flaky and merged.
    """

    identity: str
    slug: str
    outcome: str
    contract: str
    channel: str
    phase: str
    relation: str
    state: str = "new"
    hits: int = 1
    first: int
    at: float
    divergence: str = ""
    place: str = ""
    detail: str = ""
    runs: str = ""
    merged: str = ""
    requests: int = 0
    rounds: int = 0
    node: str = ""

    @property
    def as_identity(self) -> Identity:
        return Identity(contract=self.contract, channel=self.channel, phase=self.phase, relation=self.relation)


FINDING_COLUMNS = CampaignFinding.__struct_fields__
