"""Changes of source files, found by their text: whole lines that must be there exactly once, and what replaces them.

A fault has each change under the path of its file, the lines as in a diff: " " kept, "-" removed, "+" added. Empty
lines around a change separate it from the next. A unified diff is read, too; see `Hunk.line`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from draftproof.properties.lib.errors import DraftproofError

_HEADER = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SIGNS = (" ", "-", "+")
_SPACES = {" ": "space", "\t": "tab"}
ROOTS = ("engine/", "kernels/")


class PatchError(DraftproofError, ValueError):
    """A change that cannot be read; the message says what is wrong with it."""


class StalePatchError(DraftproofError, ValueError):
    """A change that does not fit the sources; the message names the file and says how often its lines are there."""


@dataclass(frozen=True)
class Hunk:
    """One change of one file. `lines` keep their first character: " " kept, "-" removed, "+" added.

    `line` is where a diff says that it begins, counted from 1; 0 in a fault. It decides only where `before` is there
    more than once.
    """

    path: str
    lines: tuple[str, ...]
    line: int = 0

    @property
    def before(self) -> tuple[str, ...]:
        return tuple(line[1:] for line in self.lines if line[0] != "+")

    @property
    def after(self) -> tuple[str, ...]:
        return tuple(line[1:] for line in self.lines if line[0] != "-")


@dataclass(frozen=True)
class Placed:
    """A hunk in its file: `before` begins at line `start` of the original, `after` at `new_start` of the result."""

    hunk: Hunk
    start: int
    new_start: int

    @cached_property
    def removed(self) -> Mapping[int, str]:
        """Line of the original -> its text, of every line that is removed."""
        return _signed(self.hunk.lines, "-", self.start)

    @cached_property
    def added(self) -> Mapping[int, str]:
        """Line of the result -> its text, of every line that is added."""
        return _signed(self.hunk.lines, "+", self.new_start)

    @property
    def name(self) -> str:
        """The path, and the first line of the original that changes or that something is added before."""
        kept = next(number for number, line in enumerate(self.hunk.lines) if line[0] != " ")
        return f"{self.hunk.path}:{self.start + kept}"


def _signed(lines: Iterable[str], sign: str, start: int) -> Mapping[int, str]:
    counted = [line for line in lines if line[0] in (" ", sign)]
    return {number: line[1:] for number, line in enumerate(counted, start=start) if line[0] == sign}


def parse(text: str) -> tuple[Hunk, ...]:
    """Return the changes of a fault or of a unified diff, in their order. Raises PatchError."""
    lines = text.splitlines()
    is_diff = any(line.startswith("@@") for line in lines)
    hunks = tuple(_of_diff(lines) if is_diff else _of_fault(lines))
    if not hunks:
        raise PatchError("no change: expected the path of a file and the lines that change, or a unified diff")
    for hunk in hunks:
        _check(hunk)
    return hunks


def _check(hunk: Hunk) -> None:
    if all(line[0] == " " for line in hunk.lines):
        raise PatchError(f"invalid change of {hunk.path}: it changes nothing: expected lines that begin with - or +")
    if not hunk.before:
        raise PatchError(
            f"invalid change of {hunk.path}: nothing says where {hunk.after[0].strip()!r} goes: expected a line of the"
            " file beside it, which a diff with -U0 does not have"
        )


def _path(path: str) -> str:
    if not path.startswith(ROOTS) or ".." in path.split("/") or not path.endswith(".py"):
        raise PatchError(f"invalid path {path!r}: expected a Python file under {' or '.join(ROOTS)}")
    return path


def _of_fault(lines: list[str]) -> Iterator[Hunk]:
    heads = [number for number, line in enumerate(lines) if line and not line.startswith(_SIGNS)]
    if stray := "".join(lines[: heads[0]] if heads else lines):
        raise PatchError(f"invalid line {stray[:60]!r}: expected the path of its file above it")
    for head, end in pairwise((*heads, len(lines))):
        body = "\n".join(lines[head + 1 : end]).strip("\n")
        yield Hunk(_path(lines[head].strip()), tuple(line or " " for line in body.split("\n")))


def _of_diff(lines: list[str]) -> Iterator[Hunk]:
    path, number = "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("+++ "):
            path = _path(line[4:].split("\t")[0].strip().removeprefix("b/"))
        elif line.startswith("@@"):
            hunk, number = _hunk(path, line, lines, number)
            yield hunk


def _hunk(path: str, header: str, lines: list[str], number: int) -> tuple[Hunk, int]:
    """Return the hunk below a header, which says by its counts where it ends, and the number of the line behind it."""
    match = _HEADER.match(header)
    if match is None or not path:
        raise PatchError(f"broken hunk header {header!r}")
    start, old_count, new_count = int(match[1]), int(match[2] or 1), int(match[4] or 1)
    body: list[str] = []
    old = new = 0
    while (old < old_count or new < new_count) and number < len(lines):
        line = lines[number] or " "
        number += 1
        if line[0] == "\\":
            continue
        if line[0] not in _SIGNS:
            raise PatchError(f"{path}: {header}: a line starts with {line[0]!r}: expected ' ', '+' or '-'")
        body.append(line)
        old += line[0] != "+"
        new += line[0] != "-"
    if (old, new) != (old_count, new_count):
        raise PatchError(f"{path}: {header}: the hunk has {old} old and {new} new lines")
    return Hunk(path, tuple(body), start), number


def apply(source: str, hunks: Iterable[Hunk]) -> tuple[str, tuple[Placed, ...]]:
    """Return the changed text of one file, and where its hunks are, from top to bottom. Raises StalePatchError."""
    lines = source.splitlines()
    result: list[str] = []
    placed: list[Placed] = []
    done = 0
    for start, hunk in sorted(((_find(hunk, lines), hunk) for hunk in hunks), key=lambda found: found[0]):
        if start < done:
            raise StalePatchError(f"{hunk.path}: two changes have line {start + 1} in common: expected one of both")
        result += lines[done:start]
        placed.append(Placed(hunk, start + 1, len(result) + 1))
        result += hunk.after
        done = start + len(hunk.before)
    return "\n".join((*result, *lines[done:], "")), tuple(placed)


def _find(hunk: Hunk, lines: list[str]) -> int:
    """Return how many lines are above the one place where `before` is."""
    before = list(hunk.before)
    ends = range(len(before), len(lines) + 1)
    places = [end - len(before) for end in ends if lines[end - len(before) : end] == before]
    if len(places) > 1 and hunk.line - 1 in places:
        return hunk.line - 1
    if len(places) != 1:
        those = f"{before[0].strip()!r}" if len(before) == 1 else f"the {len(before)} lines from {before[0].strip()!r}"
        near = "" if places else _but_for_space(before, lines)
        raise StalePatchError(f"{hunk.path}: {those} must be there once, and {near or _times(len(places))}")
    return places[0]


def _but_for_space(before: list[str], lines: list[str]) -> str:
    """Say which line of those that are `before` but for white space differs, and how; "" if there are none."""
    wanted, given = (["".join(line.split()) for line in some] for some in (before, lines))
    if not any(wanted):
        return ""
    ends = range(len(wanted), len(given) + 1)
    start = next((end - len(wanted) for end in ends if given[end - len(wanted) : end] == wanted), None)
    if start is None:
        return ""
    pairs = enumerate(zip(before, lines[start:], strict=False), start=start + 1)
    number, here, there = next((number, here, there) for number, (here, there) in pairs if here != there)
    if here.lstrip() == there.lstrip():
        return f"are there with other indentation: line {number} has {_indent(there)}, the change {_indent(here)}"
    return f"are there with other white space: line {number} is {there!r}, in the change {here!r}"


def _indent(line: str) -> str:
    """Say what a line begins with: its spaces and tabs, counted."""
    space = line[: len(line) - len(line.lstrip())]
    runs = [(sign, len(list(run))) for sign, run in groupby(space)]
    return " and ".join(f"{n} {_SPACES.get(sign, repr(sign))}{'s' * (n != 1)}" for sign, n in runs) or "none"


def _times(count: int) -> str:
    return f"are there {count} times" if count else "are not there"


def by_path(hunks: Iterable[Hunk]) -> dict[str, list[Hunk]]:
    """Return path -> its hunks, in the order in which the paths come."""
    found: dict[str, list[Hunk]] = {}
    for hunk in hunks:
        found.setdefault(hunk.path, []).append(hunk)
    return found
