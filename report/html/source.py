"""What a run directory says, read without changing it: rows of its tables and the files of its findings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from draftproof.fuzz.campaign.schema import DATABASE_VERSION
from draftproof.fuzz.campaign.settings import CampaignError, Settings, read
from draftproof.fuzz.campaign.sums import CampaignSums, read_sums
from draftproof.properties.diagnosis.timeline import Timeline
from draftproof.properties.values.verdict import Divergence

Row = Mapping[str, Any]
LONGEST_DETAIL = 20_000
"""Characters of a traceback or of stacks that a report keeps."""


@dataclass(frozen=True)
class StoredFinding:
    """A finding: its row, and its files. `cases` are the case files that are there, the smallest first.

    `divergence` and `timeline` are None where there are none; `unread` says which files could not be read, and why.
    """

    row: Row
    divergence: Divergence | None
    timeline: Timeline | None
    detail: str
    cases: Mapping[str, Path]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class RunSource:
    """A run as its store has it: rows of its tables, and its sums. `facts` are texts by name.

    `workers` is how many there were recently, None if that is not recorded.
    """

    path: Path
    settings: Settings
    workers: int | None
    facts: Mapping[str, str]
    sums: CampaignSums
    bins: tuple[Row, ...]
    progress: tuple[Row, ...]
    troubles: tuple[Row, ...]
    findings: tuple[StoredFinding, ...]


def read_run(path: Path) -> RunSource:
    """Read a run directory, also of a campaign that still runs. Raises CampaignError for any other directory."""
    database = path / "results.sqlite"
    if not database.is_file():
        raise CampaignError(f"invalid RUN '{path}': expected a campaign's directory (it has no results.sqlite)")
    settings = read(path / "campaign.json")
    try:
        with _opened(database) as store:
            _require_version(database, store)
            return _source(path, settings, store)
    except CampaignError:
        raise
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        raise CampaignError(f"{database} cannot be read: {error}") from None


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    where = f"file:{quote(str(database.resolve()))}?mode=ro"
    with closing(sqlite3.connect(where, uri=True, timeout=10)) as store:
        store.row_factory = sqlite3.Row
        # What a broken or foreign writer left in a text is shown as far as it can be.
        store.text_factory = lambda raw: raw.decode("utf-8", "replace")
        store.execute("BEGIN")
        yield store


def _require_version(database: Path, store: sqlite3.Connection) -> None:
    (version,) = store.execute("PRAGMA user_version").fetchone()
    if version != DATABASE_VERSION:
        raise CampaignError(
            f"invalid version {version} of {database}: expected {DATABASE_VERSION}, as this Draftproof reads it; make"
            " the report with the Draftproof that ran the campaign"
        )


def _source(path: Path, settings: Settings, store: sqlite3.Connection) -> RunSource:
    facts = {str(row["key"]): str(row["value"]) for row in _rows(store, "campaign")}
    return RunSource(
        path=path,
        settings=settings,
        workers=int(facts["workers"]) if facts.get("workers", "").isdigit() else None,
        facts=facts,
        sums=read_sums(store),
        bins=_rows(store, "bins"),
        progress=_rows(store, "progress ORDER BY at"),
        troubles=_rows(store, "troubles ORDER BY at"),
        findings=tuple(_found(path, row) for row in _rows(store, "findings ORDER BY coalesce(at, 0)")),
    )


def _rows(store: sqlite3.Connection, table: str) -> tuple[Row, ...]:
    # The name is one of ours: a table's name cannot be a parameter.
    return tuple(dict(row) for row in store.execute(f"SELECT * FROM {table}"))


def _found(path: Path, row: Row) -> StoredFinding:
    unread: list[str] = []
    slug = str(row.get("slug") or "")
    # A slug is a folder's name: one that leads elsewhere is not followed.
    named = slug not in ("", ".", "..") and Path(slug).name == slug
    folder = path / "findings" / slug
    if not named:
        unread.append(f"invalid slug {slug!r}: expected the name of a folder")
    names = ("shrunk.json", "case.json") if named else ()
    drawn = _text(folder / "timeline.json", unread) if named else ""
    detail = _text(folder / "detail.txt", unread) if named else ""
    return StoredFinding(
        row=row,
        divergence=_decoded(str(row.get("divergence") or ""), Divergence, "divergence", unread),
        timeline=_decoded(drawn, Timeline, "timeline.json", unread),
        detail=_cut(str(row.get("detail") or "") or detail),
        cases={name: folder / name for name in names if (folder / name).is_file()},
        unread=tuple(unread),
    )


def _text(path: Path, unread: list[str]) -> str:
    """Return a file's text; "" if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        unread.append(f"{path.name} cannot be read: {error.strerror}")
        return ""


def _decoded(text: str, kind: Any, name: str, unread: list[str]) -> Any:
    """Return a value from JSON; None if there is none or it is broken, and then `unread` says so."""
    if not text.strip() or text.strip() == "null":
        return None
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        unread.append(f"{name} cannot be read: {error}")
        return None


def _cut(text: str) -> str:
    if len(text) <= LONGEST_DETAIL:
        return text
    half = LONGEST_DETAIL // 2
    return f"{text[:half]}\n[{len(text) - LONGEST_DETAIL} characters left out]\n{text[-half:]}"
