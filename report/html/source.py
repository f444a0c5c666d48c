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

from draftproof.fuzz.campaign.settings import CampaignError, Settings, read
from draftproof.properties.diagnosis.timeline import Timeline
from draftproof.properties.values.verdict import Divergence

Row = Mapping[str, Any]
_TABLES = ("contracts", "minimums", "counts", "draft_counts", "bins", "progress", "troubles", "findings")
LONGEST = 20_000
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
    """A run as its store tells it: rows of its tables. `facts` are texts by name, `outcomes` counts finished scenarios.

    `workers` is how many there were of late, None if nobody says.
    """

    path: Path
    settings: Settings
    workers: int | None
    facts: Mapping[str, str]
    outcomes: Mapping[str, int]
    contracts: tuple[Row, ...]
    minimums: tuple[Row, ...]
    counts: tuple[Row, ...]
    draft_counts: tuple[Row, ...]
    bins: tuple[Row, ...]
    progress: tuple[Row, ...]
    troubles: tuple[Row, ...]
    findings: tuple[StoredFinding, ...]


def read_run(path: Path) -> RunSource:
    """Read a run directory, that of a campaign which still runs, too. Raises CampaignError if it is none."""
    database = path / "results.sqlite"
    if not database.is_file():
        raise CampaignError(f"invalid RUN '{path}': expected a campaign's directory (it has no results.sqlite)")
    settings = read(path / "campaign.json")
    try:
        with _opened(database) as store:
            return _source(path, settings, store)
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


def _source(path: Path, settings: Settings, store: sqlite3.Connection) -> RunSource:
    rows = {name: _rows(store, name) for name in _TABLES}
    facts = {str(row["key"]): str(row["value"]) for row in _rows(store, "campaign")}
    return RunSource(
        path=path,
        settings=settings,
        workers=int(facts["workers"]) if facts.get("workers", "").isdigit() else None,
        facts=facts,
        outcomes=_outcomes(store),
        contracts=rows["contracts"],
        minimums=rows["minimums"],
        counts=rows["counts"],
        draft_counts=rows["draft_counts"],
        bins=rows["bins"],
        progress=tuple(sorted(rows["progress"], key=lambda row: row["at"])),
        troubles=tuple(sorted(rows["troubles"], key=lambda row: row["at"])),
        findings=tuple(_found(path, row) for row in sorted(rows["findings"], key=lambda row: row["at"] or 0.0)),
    )


def _rows(store: sqlite3.Connection, table: str) -> tuple[Row, ...]:
    # The name is one of ours: a table's name cannot be a parameter.
    return tuple(dict(row) for row in store.execute(f"SELECT * FROM {table}"))


def _outcomes(store: sqlite3.Connection) -> dict[str, int]:
    asked = "SELECT outcome AS name, COUNT(*) AS count FROM scenarios WHERE state = 'done' GROUP BY outcome"
    return {str(row["name"]): int(row["count"]) for row in store.execute(asked)}


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
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[{len(text) - LONGEST} characters left out]\n{text[-half:]}"
