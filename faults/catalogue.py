"""The catalogue of faults: a file each, named by its id.

First its front matter, TOML between `+++` lines, then its changes; see draftproof.faults.patching.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from draftproof.faults.patching import Hunk, PatchError, StalePatchError, apply, by_path, parse
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_SETS, DraftSet

FENCE = "+++"
SOURCES = Path(__file__).resolve().parent.parent
"""The folder that holds engine/ and kernels/, in a checkout as in an installation."""
CATALOGUE = SOURCES / "faults" / "known"
SUFFIX = ".fault"
TINY = (
    "llama",
    "llama-fp8",
    "qwen3",
    "qwen3-next",
    "qwen3.5-moe",
    "glm4-moe",
    "deepseek-v3",
    "deepseek-lite",
    "mimo",
    "step3p5",
)
"""The targets that tiny_checkpoints.py writes."""
_CHOICES: Mapping[str, tuple[str, ...]] = {"draft": DRAFT_SETS, "model": ("", *TINY)}
_PLACE = re.compile(r"line (\d+), column (\d+)\)")

Part = Literal["engine", "eager", "triton"]


class UnknownFaultError(DraftproofError, ValueError):
    """No fault of that name; the message suggests the nearest."""


class Fault(Value, frozen=True, kw_only=True):
    """What a fault is. `contract` must notice it, `channel` is where; "" in a patch from elsewhere: any.

    `draft`: the draft of the scenarios that it meets, or "all" of them in turns; `model`: the tiny checkpoint that
    these are of ("": probes). `smoke`: whether it is tried in every CI run. `explained`: why it survives where it does.
    """

    id: str
    source: str = ""
    mechanism: str = ""
    contract: str = ""
    channel: str = ""
    draft: DraftSet = ALGORITHMS[0]
    model: str = ""
    smoke: bool = False
    explained: str = ""


class FaultFile(Value, frozen=True, kw_only=True):
    """A fault with its changes as they are written, and the file it came from."""

    fault: Fault
    text: str
    path: str

    def hunks(self) -> tuple[Hunk, ...]:
        """Return the changes. Raises PatchError."""
        return parse(self.text)

    @property
    def patches(self) -> Part:
        """What it changes: where that are kernels only, it is tried on those."""
        return part_of({hunk.path for hunk in self.hunks()})


def part_of(paths: Collection[str]) -> Part:
    """Return which implementation files are of: a fault of `triton` runs with the interpreter, or on CUDA."""
    for part in ("triton", "eager"):
        if all(path.startswith(f"kernels/{part}_") for path in paths):
            return part
    return "engine"


def read_fault(path: Path) -> FaultFile:
    """Return the fault of a file. Raises PatchError naming the file and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PatchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        head, changes = _split(text)
        fault = _fault(head, path.stem)
        parse(changes)
    except PatchError as error:
        raise PatchError(f"{path}: {error}") from None
    return FaultFile(fault=fault, text=changes, path=str(path))


def _fault(head: str, name: str) -> Fault:
    """Return what a front matter says of the fault in the file of that name. Raises PatchError."""
    # A plain diff says nothing of drafts, so that it is tried with each.
    raw = _table(head) if head else {"draft": "all"}
    fields = Fault.__struct_fields__
    for field, value in raw.items():
        if field not in fields:
            raise PatchError(f"invalid field {field!r}: expected {', '.join(fields)}{did_you_mean(field, fields)}")
        if field in _CHOICES and value not in _CHOICES[field]:
            expected = ", ".join(filter(None, _CHOICES[field])) + did_you_mean(str(value), _CHOICES[field])
        elif field == "smoke":
            expected = "" if isinstance(value, bool) else "true or false"
        else:
            expected = "" if isinstance(value, str) else "a text in quotes"
        if expected:
            raise PatchError(f"invalid {field} {value!r}: expected {expected}")
    return msgspec.convert({"id": name, **raw}, Fault)


def _table(head: str) -> dict[str, Any]:
    """Return the TOML of a front matter, whose first line is the second of its file. Raises PatchError."""
    try:
        return tomllib.loads(f"\n{head}")
    except tomllib.TOMLDecodeError as error:
        lines = [FENCE, *head.splitlines(), FENCE]
        why, _, at = str(error).rpartition(" (at ")
        place = _PLACE.match(at)
        number, column = (int(place[1]), f" in column {place[2]}") if place else (len(lines), "")
        why = f"{why[:1].lower()}{why[1:]}{column}"
        raise PatchError(f"invalid line {number} {lines[number - 1]!r}: expected TOML: {why}") from None


def _split(text: str) -> tuple[str, str]:
    """Return (front matter, changes); a plain diff has no front matter."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != FENCE:
        return "", text
    for end, line in enumerate(lines[1:], start=1):
        if line.strip() == FENCE:
            return "".join(lines[1:end]), "".join(lines[end + 1 :])
    raise PatchError(f"invalid line 1 {FENCE!r}: expected another line {FENCE} below it, which closes the front matter")


def catalogue(folder: Path = CATALOGUE) -> dict[str, FaultFile]:
    """Return every fault by id, sorted. Raises PatchError for a broken file or an id used twice."""
    faults: dict[str, FaultFile] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        file = read_fault(path)
        if file.fault.id in faults:
            raise PatchError(f"{path}: invalid id {file.fault.id!r}: {faults[file.fault.id].path} has it already")
        faults[file.fault.id] = file
    return dict(sorted(faults.items()))


def find(name: str, faults: dict[str, FaultFile]) -> FaultFile:
    """Return one fault by id. Raises UnknownFaultError."""
    if name not in faults:
        hint = did_you_mean(name, faults)
        raise UnknownFaultError(
            f"invalid fault {name!r}: expected one of {len(faults)} of `draftproof faults list`{hint}"
        )
    return faults[name]


def read_sources(paths: tuple[str, ...] = ("engine", "kernels"), root: Path = SOURCES) -> dict[str, str]:
    """Return path -> text of every Python file that a fault may touch."""
    files = sorted(file for folder in paths for file in (root / folder).rglob("*.py"))
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


class FaultSummary(Fault, frozen=True, kw_only=True):
    """One fault as `faults list` shows it; `stale` says why it does not apply, "" if it does."""

    patches: Part
    stale: str = ""


class FaultList(Value, frozen=True, kw_only=True):
    """What `faults list --json` writes."""

    faults: tuple[FaultSummary, ...]


def summary(file: FaultFile, sources: Mapping[str, str]) -> FaultSummary:
    """Return a fault as it is listed, and whether it applies to `sources`."""
    mechanism = " ".join(file.fault.mechanism.split())
    fields = {**msgspec.structs.asdict(file.fault), "mechanism": mechanism, "patches": file.patches}
    return FaultSummary(**fields, stale=_stale(file, sources))


def _stale(file: FaultFile, sources: Mapping[str, str]) -> str:
    try:
        for path, hunks in by_path(file.hunks()).items():
            apply(sources.get(path, ""), hunks)
    except StalePatchError as error:
        return str(error)
    return ""
