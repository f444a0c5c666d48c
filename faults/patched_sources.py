"""A patched copy of the sources: what a fault's process imports in place of the engine and the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.faults.instrument import instrument
from draftproof.faults.patching import Hunk, PatchError, Placed, StalePatchError, apply


@dataclass(frozen=True)
class Copy:
    """A folder with engine/ and kernels/. `hunks` names each hunk, in the order of its counter."""

    folder: str
    hunks: tuple[str, ...]


def patched(sources: dict[str, str], hunks: tuple[Hunk, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (path -> text with patches and counters, name of each hunk).

    Raises StalePatchError, or PatchError if the result is no Python.
    """
    by_path: dict[str, list[Hunk]] = {}
    for hunk in hunks:
        by_path.setdefault(hunk.path, []).append(hunk)
    result = dict(sources)
    placed: dict[str, tuple[Placed, ...]] = {}
    for path, of_path in by_path.items():
        if path not in sources:
            raise StalePatchError(f"{path}: there is no such file")
        result[path], placed[path] = apply(sources[path], of_path)
    try:
        result = instrument(result, placed, sources)
    except SyntaxError as error:
        raise PatchError(f"the patched source is not Python: {error}") from None
    return result, tuple(f"{path}:{at.hunk.start}" for path, of_path in placed.items() for at in of_path)


def write_copy(folder: Path, sources: dict[str, str], hunks: tuple[Hunk, ...] = ()) -> Copy:
    """Write the sources, patched, under `folder`. Raises what `patched` raises."""
    files, names = patched(sources, hunks) if hunks else (sources, ())
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return Copy(str(folder), names)
