"""A patched copy of the sources: what a fault's process imports in place of the engine and the kernels."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.faults.catalogue import FaultFile
from draftproof.faults.instrument import instrument
from draftproof.faults.patching import Hunk, PatchError, Placed, StalePatchError, apply, by_path
from draftproof.faults.programs import parsed, parsed_once, same

_READ_ONLY = 0o444


@dataclass(frozen=True)
class Patched:
    """Sources with patches and counters.

    `texts` is path -> text, `hunks` names each hunk, in the order of its counter, and `own` is path -> the lines of the
    text that the hunks wrote.
    """

    texts: Mapping[str, str]
    hunks: tuple[str, ...] = ()
    own: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Copy:
    """A folder with engine/ and kernels/; `hunks` and `own` as of Patched."""

    folder: str
    hunks: tuple[str, ...]
    own: Mapping[str, tuple[int, ...]]


def patched(sources: Mapping[str, str], hunks: tuple[Hunk, ...]) -> Patched:
    """Return the sources with these hunks.

    Raises StalePatchError, also where the program is as it was, and PatchError if the result is no Python.
    """
    texts = dict(sources)
    placed: dict[str, tuple[Placed, ...]] = {}
    for path, of_path in by_path(hunks).items():
        if path not in sources:
            raise StalePatchError(f"{path}: there is no such file")
        texts[path], placed[path] = apply(sources[path], of_path)
    idle = _idle(sources, texts, placed)
    names = tuple(at.name for of_path in placed.values() for at in of_path)
    if len(idle) == len(names):
        change, new = ("changes", "its new lines") if len(names) == 1 else ("change", "their new lines")
        but = "but for comments and docstrings"
        raise StalePatchError(f"{', '.join(names)} {change} nothing: {new} are the old ones {but}")
    texts, own = instrument(texts, placed, sources, idle)
    return Patched(texts, names, own)


def _idle(
    sources: Mapping[str, str], texts: Mapping[str, str], placed: Mapping[str, tuple[Placed, ...]]
) -> tuple[Placed, ...]:
    """Return the hunks that leave their file the program that it was. Raises PatchError for what is no Python."""
    idle: list[Placed] = []
    for path, of_path in placed.items():
        old = parsed_once(path, sources[path])
        if same(old, parsed(path, texts[path])):
            idle += of_path
        elif len(of_path) > 1:
            idle += [at for at in of_path if _is_idle(at, sources[path], old)]
    return tuple(idle)


def _is_idle(at: Placed, source: str, old: ast.Module) -> bool:
    """Return whether a hunk by itself changes nothing; one that takes others to be Python changes something."""
    try:
        return same(old, parsed(at.hunk.path, apply(source, [at.hunk])[0]))
    except PatchError:
        return False


def write_fault(folder: Path, sources: Mapping[str, str], file: FaultFile, clean: Copy | None = None) -> Copy:
    """Write the sources with a fault, as `write_copy` does. Raises StalePatchError, and PatchError naming its file."""
    try:
        return write_copy(folder, sources, file.hunks(), clean)
    except PatchError as error:
        raise PatchError(f"{file.path}: {error}") from None


def write_copy(
    folder: Path, sources: Mapping[str, str], hunks: tuple[Hunk, ...] = (), clean: Copy | None = None
) -> Copy:
    """Write the sources, patched, under `folder`. Raises what `patched` raises.

    `clean`: a copy beside it of the sources without patches; it shares the files that no hunk changes, which nobody may
    write to from then on: what a fault does to them would be done to all. (Root may all the same.)
    """
    made = patched(sources, hunks) if hunks else Patched(sources)
    for directory in dict.fromkeys((folder / path).parent for path in made.texts):
        directory.mkdir(parents=True, exist_ok=True)
    for path, text in made.texts.items():
        # What is there may be shared with other copies.
        (folder / path).unlink(missing_ok=True)
        if clean and text == sources[path]:
            shared = os.path.join(clean.folder, path)
            os.chmod(shared, _READ_ONLY)
            os.link(shared, os.path.join(folder, path))
        else:
            (folder / path).write_text(text, encoding="utf-8")
    return Copy(str(folder), made.hunks, made.own)
