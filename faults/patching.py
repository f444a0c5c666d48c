"""Unified diffs: read, applied to the letter, re-anchored.

Line numbers count from 1. A hunk applies only where it says, and only if every line it removes or keeps is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from draftproof.errors import DraftproofError

_HEADER = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
ROOTS = ("engine/", "kernels/")


class PatchError(DraftproofError, ValueError):
    """A patch that cannot be read; the message says what is wrong with it."""


class StalePatchError(DraftproofError, ValueError):
    """A patch that does not fit the sources; the message names the hunk."""


@dataclass(frozen=True)
class Hunk:
    """One change of one file. `lines` keep their first character: " " kept, "-" removed, "+" added."""

    path: str
    start: int
    lines: tuple[str, ...]

    @property
    def old(self) -> tuple[str, ...]:
        return tuple(line[1:] for line in self.lines if line[0] != "+")

    @property
    def new(self) -> tuple[str, ...]:
        return tuple(line[1:] for line in self.lines if line[0] != "-")


@dataclass(frozen=True)
class Placed:
    """A hunk in the patched file, where it begins at line `new_start`.

    `old_line` is the first removed line of the original, `new_line` the first added line of the result; 0 if there is
    none. Comments and blank lines do not count.
    """

    hunk: Hunk
    new_start: int
    old_line: int
    new_line: int


def parse(diff: str) -> tuple[Hunk, ...]:
    """Return the hunks of a unified diff, in its order. Raises PatchError."""
    lines = diff.splitlines()
    hunks: list[Hunk] = []
    path = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("+++ "):
            path = _path(line)
        elif line.startswith("@@"):
            hunk, number = _hunk(path, line, lines, number)
            hunks.append(hunk)
    if not hunks:
        raise PatchError("the diff has no hunk")
    return tuple(hunks)


def _path(line: str) -> str:
    path = line[4:].split("\t")[0].strip().removeprefix("b/")
    if not path.startswith(ROOTS) or ".." in path.split("/") or not path.endswith(".py"):
        raise PatchError(f"invalid path {path!r}: expected a Python file under {' or '.join(ROOTS)}")
    return path


def _hunk(path: str, header: str, lines: list[str], number: int) -> tuple[Hunk, int]:
    match = _HEADER.match(header)
    if match is None or not path:
        raise PatchError(f"broken hunk header {header!r}")
    start, old_count, new_count = int(match[1]), int(match[2] or 1), int(match[4] or 1)
    body: list[str] = []
    old = new = 0
    while (old < old_count or new < new_count) and number < len(lines):
        line = lines[number] or " "
        number += 1
        if line[0] not in " +-\\":
            raise PatchError(f"{path}: {header}: a line starts with {line[0]!r}: expected ' ', '+' or '-'")
        if line[0] == "\\":
            continue
        body.append(line)
        old += line[0] != "+"
        new += line[0] != "-"
    if (old, new) != (old_count, new_count):
        raise PatchError(f"{path}: {header}: the hunk has {old} old and {new} new lines")
    if all(line[0] == " " for line in body):
        raise PatchError(f"{path}: {header}: the hunk changes nothing")
    # With no old line at all, the header names the line after which the new ones go.
    return Hunk(path, start + (old_count == 0), tuple(body)), number


def apply(source: str, hunks: Iterable[Hunk]) -> tuple[str, tuple[Placed, ...]]:
    """Return the patched text of one file, and where its hunks are in it. Raises StalePatchError."""
    lines = source.splitlines()
    result: list[str] = []
    placed: list[Placed] = []
    done = 0
    for hunk in sorted(hunks, key=lambda hunk: hunk.start):
        begin = hunk.start - 1
        if begin < done or tuple(lines[begin : begin + len(hunk.old)]) != hunk.old:
            raise StalePatchError(f"{hunk.path}:{hunk.start}: the lines of the hunk are not there")
        result += lines[done:begin]
        placed.append(_place(hunk, len(result)))
        result += hunk.new
        done = begin + len(hunk.old)
    return "\n".join((*result, *lines[done:], "")), tuple(placed)


def _place(hunk: Hunk, before: int) -> Placed:
    old = new = 0
    first = {"-": 0, "+": 0}
    for line in hunk.lines:
        code = line[1:].strip()
        if line[0] in first and not first[line[0]] and code and not code.startswith("#"):
            first[line[0]] = hunk.start + old if line[0] == "-" else before + new + 1
        old += line[0] != "+"
        new += line[0] != "-"
    return Placed(hunk, before + 1, first["-"], first["+"])


def refresh(hunks: Iterable[Hunk], sources: Mapping[str, str]) -> tuple[Hunk, ...]:
    """Return the hunks with line numbers at which they apply.

    Raises StalePatchError where the old lines are gone or not unique.
    """
    return tuple(_anchor(hunk, sources.get(hunk.path, "").splitlines()) for hunk in hunks)


def _anchor(hunk: Hunk, lines: list[str]) -> Hunk:
    size = len(hunk.old)
    places = [i + 1 for i in range(len(lines) - size + 1) if tuple(lines[i : i + size]) == hunk.old]
    if hunk.start in places:
        return hunk
    if len(places) != 1:
        raise StalePatchError(f"{hunk.path}:{hunk.start}: its old lines are there {len(places)} times, once is needed")
    return replace(hunk, start=places[0])


def render(hunks: Iterable[Hunk]) -> str:
    """Return the hunks as a unified diff with the paths a/... and b/..."""
    text: list[str] = []
    path, shift = "", 0
    for hunk in hunks:
        if hunk.path != path:
            path, shift = hunk.path, 0
            text += [f"--- a/{path}", f"+++ b/{path}"]
        old, new = len(hunk.old), len(hunk.new)
        start = hunk.start - (old == 0)
        text.append(f"@@ -{start},{old} +{hunk.start + shift - (new == 0)},{new} @@")
        text += hunk.lines
        shift += new - old
    return "\n".join((*text, ""))
