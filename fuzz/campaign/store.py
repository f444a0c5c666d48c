"""What a campaign knows: an SQLite database, and nothing beside it.

Every step is one transaction. The journal is a WAL with synchronous=NORMAL: what a transaction wrote is with the kernel
when it returns, so a killed process loses none; only with the power could the last ones go, whole and from the end, and
their scenarios would then run again. A full disk ends the campaign; the same command resumes it.

The order in which answers come in does not matter: a bin belongs to the scenario with the lowest number that reached
it, whichever was answered first.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from draftproof.fuzz.campaign.schema import (
    DATABASE_VERSION,
    FINDING_COLUMNS,
    SCHEMA,
    CampaignFinding,
    QueuedScenario,
    SecondRun,
)
from draftproof.fuzz.campaign.settings import OTHER_VERSION, CampaignError, DiskError
from draftproof.fuzz.campaign.sums import COUNT, CampaignSums, add_sums, read_sums
from draftproof.harness.workers.messages import Answer
from draftproof.properties.values.scenario import Scenario

# Causes outside of this process: the disk, or another process that holds the file.
_OUTSIDE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_LOCKED")


class Store:
    """The database of one campaign.

    Raises CampaignError for a database that is damaged or of another version. Every method that writes raises
    DiskError if it cannot, and has changed nothing then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = _open(path)
            # Damaged rows are found now, not in the middle of a campaign.
            self.queued(), self.second_runs(), self.findings()
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            reason = " ".join(str(error).split())
            raise CampaignError(
                f"{path} cannot be used: {reason}; expected a whole database (move it away to begin again; the "
                "findings beside it stay readable)"
            ) from None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._roll_back()
            if getattr(error, "sqlite_errorname", "").startswith(_OUTSIDE):
                raise DiskError(self.path.name, str(error)) from None
            raise
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        # SQLite has rolled back itself where the disk was full.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def facts(self) -> dict[str, str]:
        """Return what is known of the campaign as a whole."""
        return dict(self._db.execute("SELECT key, value FROM campaign"))

    def keep_facts(self, **facts: object) -> None:
        with self._transaction() as db:
            _keep_facts(db, facts)

    @property
    def planned(self) -> int:
        """The number of the next scenario to be planned."""
        return int(self._db.execute("SELECT coalesce(max(number) + 1, 0) FROM scenarios").fetchone()[0])

    def queued(self) -> list[QueuedScenario]:
        asked = """SELECT number, coalesce(scenario, ''), hash, origin, draft
          FROM scenarios LEFT JOIN texts USING(number) WHERE state = 'queued' ORDER BY number"""
        return [QueuedScenario(number, _scenario(raw), *rest) for number, raw, *rest in self._db.execute(asked)]

    def second_runs(self) -> list[SecondRun]:
        """Return the second runs that are due."""
        asked = "SELECT number, sign, scenario FROM again ORDER BY number"
        return [SecondRun(number, sign, _scenario(raw)) for number, sign, raw in self._db.execute(asked)]

    def bins(self) -> list[tuple[str, int, int, float]]:
        """Return (name, hits, first scenario, seconds) of every bin that was reached."""
        return self._db.execute("SELECT name, hits, first, at FROM bins").fetchall()

    def count(self, table: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def findings(self, condition: str = "1", *values: object, most: int = -1) -> list[CampaignFinding]:
        """Return the findings that meet a condition, by the scenario that hit them first; `most`: no more (-1: all)."""
        asked = (
            f"SELECT {', '.join(FINDING_COLUMNS)} FROM findings WHERE {condition} ORDER BY first, rowid LIMIT {most}"
        )
        return [_finding(row) for row in self._db.execute(asked, values)]

    def finding(self, identity: str) -> CampaignFinding | None:
        return next(iter(self.findings("identity = ?", identity)), None)

    def scenario(self, number: int) -> Scenario | None:
        """Return a scenario that is queued, or with which a finding begins; others are let go of."""
        row = self._db.execute("SELECT scenario FROM texts WHERE number = ?", (number,)).fetchone()
        return _scenario(row[0]) if row else None

    def sums(self) -> CampaignSums:
        return read_sums(self._db)

    def counts(self) -> Mapping[str, int]:
        return Counter(dict(self._db.execute("SELECT name, value FROM counts")))

    def queue(self, block: int, waiting: Sequence[QueuedScenario]) -> None:
        """Keep scenarios to run, all of them or none; `block` is the number of the last block among them."""
        rows = [(one.number, one.hash, one.origin, one.draft) for one in waiting]
        texts = [(one.number, text(one.scenario)) for one in waiting]
        facts = self.facts()
        before, batch = facts.get("begin", 0), int(facts.get("batch", -1)) + 1
        with self._transaction() as db:
            db.executemany(_QUEUE, rows)
            db.executemany("INSERT INTO texts VALUES(?, ?)", texts)
            _keep_facts(db, {"block": block, "batch": batch, "before": before, "begin": waiting[0].number})

    def done(self, answer: Answer, at: float, *, sign: str = "", finding: CampaignFinding | None = None) -> list[str]:
        """Keep all that an answer says; return the names of bins that are new.

        `sign`: the scenario is to run again, to be compared with this; `finding` is what it hit. Raises KeyError if the
        scenario is not queued: it would count twice.
        """
        number = answer.number
        with self._transaction() as db:
            asked = """SELECT draft, scenario FROM scenarios JOIN texts USING(number)
              WHERE number = ? AND state = 'queued'"""
            row = db.execute(asked, (number,)).fetchone()
            if row is None:
                raise KeyError(number)
            draft, raw = row
            new = _reach(db, answer, at)
            identity = answer.identity.text if answer.identity else ""
            db.execute(_DONE, (answer.outcome.value, identity, answer.seconds, len(new), at, number))
            add_sums(db, answer, draft)
            if sign:
                db.execute("INSERT INTO again VALUES(?, ?, ?)", (number, sign, raw))
            if finding is not None:
                self._hit(finding, raw)
            db.execute(_RELEASE, (number,))
            _keep_facts(db, {"seconds": round(at, 3)})
        return new

    def _hit(self, finding: CampaignFinding, raw: str) -> None:
        """Keep a new finding, or one more hit of a known one, which keeps the scenario of its lowest number."""
        known = self.finding(finding.identity)
        row = finding
        if known is not None:
            row = replace(known, hits=known.hits + 1)
            if known.state == "new" and finding.first <= known.first:
                names = ("first", "divergence", "place", "detail", "requests", "rounds", "node")
                row = replace(row, **{name: getattr(finding, name) for name in names})
        self._db.execute(_KEEP_FINDING, astuple(row))
        if row.first == finding.first:
            self._db.execute("INSERT OR REPLACE INTO texts VALUES(?, ?)", (row.first, raw))
        if known is not None:
            self._db.execute(_RELEASE, (known.first,))

    def compared(self, number: int, finding: CampaignFinding | None) -> None:
        """Keep what a second run came to: as the first (None), or a finding. Raises KeyError if none is due."""
        with self._transaction() as db:
            row = db.execute("DELETE FROM again WHERE number = ? RETURNING scenario", (number,)).fetchall()
            if not row:
                raise KeyError(number)
            db.executemany(COUNT, [("stability_runs", 1), ("stability_same", int(finding is None))])
            if finding is not None:
                self._hit(finding, row[0][0])

    def keep(self, *findings: CampaignFinding) -> None:
        with self._transaction() as db:
            db.executemany(_KEEP_FINDING, map(astuple, findings))

    def finish_batch(self, numbers: range) -> None:
        """Once a batch is done: how many bins each of its scenarios brought, in whatever order they were answered."""
        with self._transaction() as db:
            db.execute(_SETTLE, (numbers.start, numbers.stop - 1))

    def add(self, table: str, *row: object) -> None:
        """Add a row to the progress or the troubles."""
        with self._transaction() as db:
            db.execute(f"INSERT OR REPLACE INTO {table} VALUES({', '.join('?' * len(row))})", row)


def text(scenario: Scenario) -> str:
    return msgspec.json.encode(scenario).decode()


def hash_of(scenario: Scenario) -> str:
    """Return a scenario's hash: the same scenario has the same, in any process."""
    return hashlib.sha256(text(scenario).encode()).hexdigest()[:16]


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != DATABASE_VERSION and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise CampaignError(
            f"invalid version {version} of {path}: expected {DATABASE_VERSION}, as this Draftproof writes it;"
            f" {OTHER_VERSION}"
        )
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.executescript(f"BEGIN IMMEDIATE;{SCHEMA}COMMIT;")
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    return db


def _scenario(raw: str) -> Scenario:
    return msgspec.json.decode(raw, type=Scenario)


def _finding(row: Sequence[Any]) -> CampaignFinding:
    return CampaignFinding(**dict(zip(FINDING_COLUMNS, row, strict=True)))


def _keep_facts(db: sqlite3.Connection, facts: Mapping[str, object]) -> None:
    rows = [(key, str(value)) for key, value in facts.items()]
    db.executemany("INSERT OR REPLACE INTO campaign VALUES(?, ?)", rows)


def _reach(db: sqlite3.Connection, answer: Answer, at: float) -> list[str]:
    """Give bins to the lowest number; return those that are new."""
    bins = msgspec.json.encode(sorted(answer.bins)).decode()
    asked = "SELECT name FROM bins WHERE name IN (SELECT value FROM json_each(?))"
    known = {name for (name,) in db.execute(asked, (bins,))}
    db.executemany(_BIN, [(name, answer.number, at) for name in answer.bins])
    return [name for name in answer.bins if name not in known]


_QUEUE = "INSERT INTO scenarios(number, hash, origin, draft, state) VALUES(?, ?, ?, ?, 'queued')"
_DONE = """UPDATE scenarios SET state = 'done', outcome = ?, identity = ?, seconds = ?, new_bins = ?, at = ?
 WHERE number = ? AND state = 'queued'"""
_RELEASE = """DELETE FROM texts WHERE number = ? AND NOT EXISTS (SELECT 1 FROM findings WHERE first = number)
 AND EXISTS (SELECT 1 FROM scenarios WHERE scenarios.number = texts.number AND state = 'done')"""
_SETTLE = """UPDATE scenarios SET new_bins = (SELECT count(*) FROM bins WHERE first = number)
 WHERE number BETWEEN ? AND ?"""
_BIN = """INSERT INTO bins VALUES(?, 1, ?, ?) ON CONFLICT(name) DO UPDATE SET hits = hits + 1,
 first = min(first, excluded.first)"""
_KEEP_FINDING = f"""INSERT INTO findings({", ".join(FINDING_COLUMNS)}) VALUES({", ".join("?" * len(FINDING_COLUMNS))})
 ON CONFLICT(identity) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in FINDING_COLUMNS)}"""
