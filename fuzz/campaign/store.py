"""What a campaign knows: in memory, and in SQLite after each step of it.

Every change is one transaction, made in memory at once and written right after. What cannot be written (a full disk)
is kept and tried again in its order. The journal is a WAL with synchronous=NORMAL: what a transaction wrote is with the
kernel when it returns, so a killed process loses none; only with the power could the last ones go, whole and from the
end, and their scenarios would then run again.

The order in which answers come in does not matter: a bin belongs to the scenario with the lowest number that reached
it, whichever was answered first.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from draftproof.fuzz.campaign.schema import FINDING, SCHEMA, Bin, Entry, Finding, Memory, Waiting, load, text
from draftproof.fuzz.campaign.settings import CampaignError
from draftproof.harness.workers.messages import Answer
from draftproof.properties.contracts.registry import BY_NAME
from draftproof.properties.values.scenario import Scenario

# What may pass: a disk that is full or away for a while, or another process that reads.
_MAY_PASS = ("full", "disk i/o error", "locked", "unable to open", "readonly", "busy")
Statement = tuple[str, Sequence[Sequence[Any]]]


class Store:
    """Memory and database of one campaign. Raises CampaignError for a database that is damaged."""

    def __init__(self, path: Path, trouble: Callable[[str], None] = lambda _what: None) -> None:
        self.path = path
        self._trouble = trouble
        self._waiting: list[list[Statement]] = []
        try:
            self._db = self._opened()
            self.memory: Memory = load(self._db)
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            said = " ".join(str(error).split())
            raise CampaignError(
                f"{path} cannot be used: {said}; expected a whole database (move it away to begin again; the findings "
                "and the corpus beside it stay readable)"
            ) from None

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(f"BEGIN IMMEDIATE;{SCHEMA}COMMIT;")
        said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise sqlite3.DatabaseError(said)
        return db

    def write(self, *statements: Statement) -> bool:
        """One transaction, after all that waits; whether it and they are in the database now."""
        self.later(*statements)
        return self.retry()

    def later(self, *statements: Statement) -> None:
        """A transaction for the next time that something is written."""
        self._waiting.append(list(statements))

    def retry(self) -> bool:
        """Write what waits, oldest first; whether nothing is left. Raises sqlite3.Error for what cannot pass."""
        while self._waiting:
            try:
                self._transaction(self._waiting[0])
            except sqlite3.OperationalError as error:
                if not any(word in str(error).lower() for word in _MAY_PASS):
                    raise
                self._trouble(f"{self.path.name} cannot be written: {error}; it is tried again later")
                return False
            del self._waiting[0]
        return True

    def _transaction(self, statements: Iterable[Statement]) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for sql, rows in statements:
                db.executemany(sql, rows)
            db.execute("COMMIT")
        except BaseException:
            # SQLite has rolled back itself where the disk was full.
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    @property
    def unwritten(self) -> int:
        """Transactions that wait."""
        return len(self._waiting)

    def close(self) -> None:
        self._db.close()

    def fact(self, **facts: object) -> Statement:
        """The statement that keeps facts of the campaign, which memory has at once."""
        self.memory.facts.update({key: str(value) for key, value in facts.items()})
        return "INSERT OR REPLACE INTO campaign VALUES(?, ?)", [(key, str(value)) for key, value in facts.items()]

    def queue(self, block: int, waiting: Sequence[Waiting]) -> bool:
        """Scenarios to run, all of them or none; `block` is the number of the last block among them."""
        memory = self.memory
        memory.queued.update({one.number: one for one in waiting})
        memory.planned += len(waiting)
        rows = [(one.number, one.hash, one.origin, one.draft, text(one.scenario)) for one in waiting]
        sql = "INSERT INTO scenarios(number, hash, origin, draft, state, scenario) VALUES(?, ?, ?, ?, 'queued', ?)"
        before, batch = memory.facts.get("begin", 0), int(memory.facts.get("batch", -1)) + 1
        return self.write((sql, rows), self.fact(block=block, batch=batch, before=before, begin=waiting[0].number))

    def done(self, answer: Answer, at: float, *, sign: str = "", finding: Finding | None = None) -> list[str]:
        """An answer to a queued scenario: everything that it says, at once. The names of bins that are new.

        `sign`: the scenario is to run again, to be compared with this; `finding` is what it hit. Raises KeyError if the
        scenario is not queued: it would count twice.
        """
        memory = self.memory
        waiting = memory.queued.pop(answer.number)
        new, statements = self._bins(answer, waiting, at)
        memory.outcomes[answer.outcome] += 1
        identity = answer.identity.text if answer.identity else ""
        row = (answer.outcome.value, identity, answer.seconds, len(new), at, answer.number)
        statements.append((_DONE, [row]))
        statements += self._tallies(answer, waiting.draft)
        if sign:
            memory.again[answer.number] = (sign, waiting.scenario)
            statements.append(("INSERT INTO again VALUES(?, ?, ?)", [(answer.number, sign, text(waiting.scenario))]))
        if finding is not None:
            statements += self.hit(finding, waiting.scenario)
        else:
            statements.append((_DROP, [(answer.number,)]))
        self.write(*statements, self.fact(seconds=round(at, 3)))
        return new

    def _bins(self, answer: Answer, waiting: Waiting, at: float) -> tuple[list[str], list[Statement]]:
        """Bins go to the lowest number; a scenario that loses its last one leaves the corpus."""
        memory, number = self.memory, answer.number
        new, won, losers = [], False, set()
        for name in answer.bins:
            known = memory.bins.get(name)
            if known is None:
                memory.bins[name] = Bin(1, number, at)
                new.append(name)
                continue
            known.hits += 1
            if number < known.first:
                losers.add(known.first)
                known.first, won = number, True
        rows = [(name, number, at) for name in answer.bins]
        statements: list[Statement] = [(_BIN, rows)] if rows else []
        if new or won:
            statements.append(self.enter(Entry(number, waiting.hash, frozenset(answer.bins), waiting.scenario)))
        firsts = {known.first for known in memory.bins.values()} if losers else set()
        statements += [self.leave(sorted(losers - firsts))] if losers - firsts else []
        return new, statements

    def enter(self, entry: Entry) -> Statement:
        self.memory.entries[entry.number] = entry
        row = (entry.number, entry.hash, msgspec.json.encode(sorted(entry.bins)).decode(), text(entry.scenario))
        return "INSERT OR REPLACE INTO entries VALUES(?, ?, ?, ?)", [row]

    def leave(self, numbers: Iterable[int]) -> Statement:
        gone = [number for number in numbers if self.memory.entries.pop(number, None)]
        return "DELETE FROM entries WHERE number = ?", [(number,) for number in gone]

    def _tallies(self, answer: Answer, draft: str) -> list[Statement]:
        memory = self.memory
        failed = frozenset(answer.failed)
        for name in answer.judged:
            judged, wrong = memory.contracts.get(name, (0, 0))
            memory.contracts[name] = (judged + 1, wrong + (name in failed))
        counts = {name: value for name, value in answer.counts.items() if value}
        memory.counts.update(counts)
        memory.draft_counts.update({(draft, name): value for name, value in counts.items()})
        reached = _reached(answer)
        memory.minimums.update({(contract, name): value for contract, name, value in reached})
        return [
            (_CONTRACT, [(name, int(name in failed)) for name in answer.judged]),
            (_COUNT, list(counts.items())),
            (_DRAFT_COUNT, [(draft, name, value) for name, value in counts.items()]),
            (_MINIMUM, reached),
        ]

    def counted(self, **counts: int) -> Statement:
        """Add to counts of the campaign itself."""
        self.memory.counts.update(counts)
        return _COUNT, list(counts.items())

    def hit(self, finding: Finding, scenario: Scenario) -> list[Statement]:
        """A failure: a new finding, or one more hit of a known one, which keeps the scenario of its lowest number."""
        memory = self.memory
        known = memory.findings.get(finding.identity)
        if known is None:
            memory.findings[finding.identity] = finding
            memory.kept[finding.first] = scenario
            return [self.keep(finding), (_KEEP, [(text(scenario), finding.first)])]
        known.hits += 1
        drop: Statement = (_DROP, [(finding.first,)])
        if known.state != "new" or finding.first > known.first:
            return [self.keep(known)] if self._needed(finding.first) else [self.keep(known), drop]
        before = known.first
        for name in ("first", "divergence", "place", "detail", "requests", "rounds"):
            setattr(known, name, getattr(finding, name))
        memory.kept[known.first] = scenario
        statements = [self.keep(known), (_KEEP, [(text(scenario), known.first)])]
        return statements if self._needed(before) else [*statements, (_DROP, [(before,)])]

    def _needed(self, number: int) -> bool:
        """Whether a finding begins with this scenario; it is let go of otherwise."""
        needed = any(finding.first == number for finding in self.memory.findings.values())
        if not needed:
            self.memory.kept.pop(number, None)
        return needed

    def keep(self, finding: Finding) -> Statement:
        return f"INSERT OR REPLACE INTO findings VALUES({', '.join('?' * len(FINDING))})", [finding.row]

    def compared(self, number: int, finding: Finding | None) -> bool:
        """What the second run of a scenario came to: as the first, or a finding. Raises KeyError if none is due."""
        _, scenario = self.memory.again.pop(number)
        statements: list[Statement] = [("DELETE FROM again WHERE number = ?", [(number,)])]
        statements.append(self.counted(stability_runs=1, stability_same=int(finding is None)))
        if finding is not None:
            statements += self.hit(finding, scenario)
        return self.write(*statements)

    def settle(self, numbers: Sequence[int]) -> Statement:
        """Once a block is done: how many bins each of its scenarios brought, in whatever order they were answered."""
        brought = Counter(known.first for known in self.memory.bins.values())
        return "UPDATE scenarios SET new_bins = ? WHERE number = ?", [(brought[number], number) for number in numbers]


_DONE = """UPDATE scenarios SET state = 'done', outcome = ?, identity = ?, seconds = ?, new_bins = ?, at = ?
 WHERE number = ? AND state = 'queued'"""
_KEEP = "UPDATE scenarios SET scenario = ? WHERE number = ?"
_DROP = "UPDATE scenarios SET scenario = NULL WHERE number = ?"
_BIN = """INSERT INTO bins VALUES(?, 1, ?, ?) ON CONFLICT(name) DO UPDATE SET hits = hits + 1,
 first = min(first, excluded.first)"""
_CONTRACT = """INSERT INTO contracts VALUES(?, 1, ?) ON CONFLICT(name) DO UPDATE SET judged = judged + 1,
 failed = failed + excluded.failed"""
_COUNT = "INSERT INTO counts VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = value + excluded.value"
_DRAFT_COUNT = """INSERT INTO draft_counts VALUES(?, ?, ?)
 ON CONFLICT(draft, name) DO UPDATE SET value = value + excluded.value"""
_MINIMUM = """INSERT INTO minimums VALUES(?, ?, ?)
 ON CONFLICT(contract, name) DO UPDATE SET reached = reached + excluded.reached"""


def _reached(answer: Answer) -> list[tuple[str, str, int]]:
    """What a scenario adds to the minimum of each contract that judged it."""
    found = []
    for contract in answer.judged:
        asked: Mapping[str, int] = BY_NAME[contract].minimum if contract in BY_NAME else {}
        found += [(contract, name, answer.counts.get(name, 0)) for name in asked]
    return found
