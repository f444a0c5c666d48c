"""Sums over the scenarios of a campaign: how often contracts were judged, and what was exercised."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from draftproof.harness.workers.messages import Answer
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.judge import TIES


class Reached(NamedTuple):
    """How often a count came up, and how many scenarios could not have it."""

    value: int = 0
    beyond: int = 0


class CampaignSums(NamedTuple):
    """Sums over all scenarios that are done.

    `contracts`: (scenarios judged, of them failed); `minimums`: by contract and count; `draft_counts`: by draft and
    count; each with how many of its scenarios could not reach the count (model, draft or subject have nothing of the
    kind). `channels` are the channels that the subject reported, `left_out` those that it did not report in some
    scenario that has them, `nodes` the nodes of a cluster, with how many scenarios each ran.
    """

    outcomes: Mapping[str, int]
    contracts: Mapping[str, tuple[int, int]]
    minimums: Mapping[tuple[str, str], Reached]
    counts: Mapping[str, int]
    draft_counts: Mapping[tuple[str, str], Reached]
    channels: frozenset[str]
    left_out: frozenset[str]
    nodes: Mapping[str, int]

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())


def read_sums(db: sqlite3.Connection) -> CampaignSums:
    """Return the sums that a campaign's database keeps."""
    done = "SELECT outcome, count(*) FROM scenarios WHERE state = 'done' GROUP BY outcome"
    return CampaignSums(
        outcomes=Counter(dict(db.execute(done))),
        contracts={name: (judged, failed) for name, judged, failed in db.execute("SELECT * FROM contracts")},
        minimums={(of, name): Reached(*rest) for of, name, *rest in db.execute("SELECT * FROM minimums")},
        counts=Counter(dict(db.execute("SELECT name, value FROM counts"))),
        draft_counts={(of, name): Reached(*rest) for of, name, *rest in db.execute("SELECT * FROM draft_counts")},
        channels=frozenset(name for (name,) in db.execute("SELECT name FROM channels")),
        left_out=frozenset(name for (name,) in db.execute("SELECT name FROM left_out")),
        nodes=dict(db.execute("SELECT name, scenarios FROM nodes ORDER BY name")),
    )


def add_sums(db: sqlite3.Connection, answer: Answer, draft: str) -> None:
    """Add what an answer says to the sums, within a transaction."""
    failed = frozenset(answer.failed)
    counts = [(name, value) for name, value in answer.counts.items() if value]
    if answer.node:
        db.execute(_NODE, (answer.node,))
    db.executemany(_CONTRACT, [(name, int(name in failed)) for name in answer.judged])
    db.executemany(COUNT, counts)
    db.executemany("INSERT OR IGNORE INTO channels VALUES(?)", [(name,) for name in answer.channels])
    db.executemany("INSERT OR IGNORE INTO left_out VALUES(?)", [(name,) for name in answer.left_out])
    beyond = frozenset(answer.beyond)
    names = sorted({*(name for name, _ in counts), *beyond})
    db.executemany(_DRAFT_COUNT, [(draft, name, answer.counts.get(name, 0), int(name in beyond)) for name in names])
    known = [
        (name, *dict.fromkeys((*CONTRACTS_BY_NAME[name].minimum, *TIES)))
        for name in answer.judged
        if name in CONTRACTS_BY_NAME
    ]
    rows = [(of, name, answer.counts.get(name, 0), int(name in beyond)) for of, *asked in known for name in asked]
    db.executemany(_MINIMUM, rows)


_CONTRACT = """INSERT INTO contracts VALUES(?, 1, ?) ON CONFLICT(name) DO UPDATE SET judged = judged + 1,
 failed = failed + excluded.failed"""
COUNT = "INSERT INTO counts VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = value + excluded.value"
_NODE = "INSERT INTO nodes VALUES(?, 1) ON CONFLICT(name) DO UPDATE SET scenarios = scenarios + 1"
_DRAFT_COUNT = """INSERT INTO draft_counts VALUES(?, ?, ?, ?) ON CONFLICT(draft, name) DO UPDATE SET
 value = value + excluded.value, beyond = beyond + excluded.beyond"""
_MINIMUM = """INSERT INTO minimums VALUES(?, ?, ?, ?) ON CONFLICT(contract, name) DO UPDATE SET
 reached = reached + excluded.reached, beyond = beyond + excluded.beyond"""
