"""A patched copy of the sources: what a fault's process imports in place of the engine and the kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.faults.instrument import instrument
from draftproof.faults.patching import Hunk, PatchError, Placed, StalePatchError, apply, by_path


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
    """Return the sources with these hunks. Raises StalePatchError, or PatchError if the result is no Python."""
    texts = dict(sources)
    placed: dict[str, tuple[Placed, ...]] = {}
    for path, of_path in by_path(hunks).items():
        if path not in sources:
            raise StalePatchError(f"{path}: there is no such file")
        texts[path], placed[path] = apply(sources[path], of_path)
    try:
        texts, own = instrument(texts, placed, sources)
    except SyntaxError as error:
        raise PatchError(f"the patched source is not Python: {error}") from None
    return Patched(texts, tuple(at.name for of_path in placed.values() for at in of_path), own)


def write_copy(
    folder: Path, sources: Mapping[str, str], hunks: tuple[Hunk, ...] = (), clean: Copy | None = None
) -> Copy:
    """Write the sources, patched, under `folder`. Raises what `patched` raises.

    `clean`: a copy beside it of the sources without patches; it shares the files that no hunk changes.
    """
    made = patched(sources, hunks) if hunks else Patched(sources)
    for directory in dict.fromkeys((folder / path).parent for path in made.texts):
        directory.mkdir(parents=True, exist_ok=True)
    for path, text in made.texts.items():
        if clean and text == sources[path]:
            os.link(os.path.join(clean.folder, path), os.path.join(folder, path))
        else:
            (folder / path).write_text(text, encoding="utf-8")
    return Copy(str(folder), made.hunks, made.own)
