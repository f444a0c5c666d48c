"""Campaigns with stand-ins for workers, and what their run directories hold."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from draftproof.fuzz.campaign.drive import Campaign, CampaignEnd
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.schema import CampaignFinding
from draftproof.fuzz.campaign.settings import CampaignLimits, RequestedSettings, Until
from draftproof.harness.workers.messages import Answer, Order
from tests.harness.doubles import POSSIBLE, Plain, Pool, failing, passing

EXACT = ("bins", "contracts", "minimums", "counts", "draft_counts", "again")
"""Tables that are the same however a campaign came to its end, times left out."""


def campaign(
    folder: Path,
    pool: Pool | None = None,
    *,
    examples: int | None = 40,
    until: Until | None = None,
    seconds: float = 60,
    possible: tuple[str, ...] = POSSIBLE,
    plan: Plain | None = None,
    versions: str = "",
) -> CampaignEnd:
    """One call."""
    pool = pool or Pool()
    with RunDir(folder) as directory:
        settings = directory.begin(RequestedSettings(seed=3, drafts=("eagle",)), {})
        limits = CampaignLimits(seconds, until, examples)
        planner = plan or Plain(3)
        return Campaign(directory, settings, limits, pool, planner, possible=possible, width=2, versions=versions).go()


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "results.sqlite")) as db:
        return db.execute(query).fetchall()


def known(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What must not depend on kills, workers and the order of answers."""
    tables = {table: sorted(rows(folder, f"SELECT * FROM {table}"), key=repr) for table in EXACT if table != "bins"}
    tables["bins"] = sorted(rows(folder, "SELECT name, hits, first FROM bins"))
    columns = "number, hash, origin, draft, state, outcome, identity, new_bins"
    tables["scenarios"] = rows(folder, f"SELECT {columns} FROM scenarios ORDER BY number")
    tables["findings"] = sorted(rows(folder, "SELECT identity, slug, state, hits, first, runs, merged FROM findings"))
    return tables


def wrong_pages(order: Order) -> Answer:
    """A bug that needs a page size of at least 3."""
    return failing(order) if order.scenario.memory.page_size >= 3 else passing(order)


def only(end: CampaignEnd) -> CampaignFinding:
    (found,) = (one for one in end.findings if not one.merged)
    return found
