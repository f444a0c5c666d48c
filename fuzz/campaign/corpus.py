"""The corpus: scenarios that brought something new, as files that are copies of what the database holds.

The database is the truth. A file that is missing or is not its entry is written again; one that no entry stands for is
left alone. Both are reported.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping
from pathlib import Path

from draftproof.fuzz.campaign.rundir import remove, save
from draftproof.fuzz.campaign.store import Store, text
from draftproof.properties.values.case import encode
from draftproof.properties.values.scenario import Scenario


def name_of(scenario: Scenario) -> str:
    """Return a scenario's hash: the same scenario has the same, in any process."""
    return hashlib.sha256(text(scenario).encode()).hexdigest()[:16]


def cover(entries: Mapping[int, frozenset[str]]) -> frozenset[int]:
    """Return a few of the entries that together cover all that all do.

    Greedily the one with most that is missing, of equal ones the one with the lowest number. A function of the entries
    only.
    """
    missing = frozenset().union(*entries.values())
    # Gains only shrink, so that one that still is the best after it was counted again is the best of all.
    heap = [(-len(bins), number) for number, bins in entries.items()]
    heapq.heapify(heap)
    chosen: set[int] = set()
    while missing and heap:
        _, number = heapq.heappop(heap)
        gain = len(entries[number] & missing)
        if not gain:
            continue
        if heap and (-gain, number) > heap[0]:
            heapq.heappush(heap, (-gain, number))
            continue
        chosen.add(number)
        missing -= entries[number]
    return frozenset(chosen)


class Corpus:
    """The files of the corpus of a store."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._written: set[str] = set()

    def check(self) -> list[str]:
        """Compare the files with the database; return what is wrong with them, which `sync` mends."""
        wrong = []
        known = {entry.hash: entry for entry in self._store.entries()}
        for path in sorted(self._folder.glob("*.json")) if self._folder.is_dir() else ():
            entry = known.get(path.stem)
            if entry is None:
                wrong.append(f"corpus/{path.name} is of no entry of this campaign; it is left alone")
            elif not _holds(path, entry.scenario):
                wrong.append(f"corpus/{path.name} is damaged; it is written again")
            else:
                self._written.add(path.stem)
        return wrong

    @property
    def scenarios(self) -> list[Scenario]:
        """The corpus in the order of its numbers."""
        return [entry.scenario for entry in self._store.entries()]

    def minimise(self) -> None:
        """Let go of the entries that the others cover."""
        entries = {entry.number: entry.bins for entry in self._store.entries()}
        self._store.leave(sorted(entries.keys() - cover(entries)))

    def sync(self) -> None:
        """Write the files of new entries, and remove those of entries that are gone. Raises DiskError."""
        wanted = {entry.hash: entry.scenario for entry in self._store.entries()}
        for name in sorted(wanted.keys() - self._written):
            save(self._folder / f"{name}.json", encode(wanted[name]) + "\n")
        for name in self._written - wanted.keys():
            remove(self._folder / f"{name}.json")
        self._written = set(wanted)


def _holds(path: Path, scenario: Scenario) -> bool:
    try:
        return path.read_text(encoding="utf-8") == encode(scenario) + "\n"
    except (OSError, UnicodeDecodeError):
        return False
