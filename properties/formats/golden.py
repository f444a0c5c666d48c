"""Golden lengths: expected acceptance lengths by model, mode and number of drafts, in the public YAML form.

The form is that of `golden_al_distribution` in SemiAnalysisAI/InferenceX, which vLLM, SGLang, TensorRT-LLM and ATOM
replay; an acceptance length counts the target's own token: 1 + accepted drafts / rounds with drafts.

    minimax-m3:
      thinking_on:
        1: 1.78
        2: 2.38
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from draftproof.properties.formats.round_log import MOST_DRAFTS
from draftproof.properties.lib.errors import DraftproofError

_DIGITS = 2
"""Places of a length, as the published ones have."""
_ASIDE = "_"
"""What begins so is about the file: `_metadata`."""
_IN_TEXT = re.compile(r' in "<\w+ string>", (line \d+, column \d+|position \d+)')
"""How YAML says where in a text something is wrong."""
_HEAD = """\
# Acceptance lengths (AL), in the form of golden_al_distribution of SemiAnalysisAI/InferenceX.
# AL = 1 + accepted drafts / rounds with drafts; key = num_speculative_tokens; value = golden AL
"""


class GoldenError(DraftproofError, ValueError):
    """A file of golden lengths cannot be used; the message names the file, the place and what was expected."""


class GoldenCell(NamedTuple):
    """One length: of a model, in a mode (thinking_on, thinking_off, ..), with so many drafts a round at most."""

    model: str
    mode: str
    steps: int
    length: float

    @property
    def place(self) -> str:
        """Where it is in a file."""
        return f"{self.model}.{self.mode}[{self.steps}]"


class GoldenLengths(NamedTuple):
    """A file of lengths: model -> mode -> drafts a round -> length; its first comments, and what is about the file."""

    source: str
    curves: Mapping[str, Mapping[str, Mapping[int, float]]]
    comments: tuple[str, ...] = ()
    about: Mapping[str, Any] = MappingProxyType({})

    def cell(self, model: str | None, mode: str | None, steps: int) -> GoldenCell:
        """Return a length; a model, and a mode, need only be named where there are several. Raises GoldenError."""
        which = _chosen(self.source, "model", model, self.curves)
        how = _chosen(self.source, f"mode of {which}", mode, self.curves[which])
        curve = self.curves[which][how]
        if steps not in curve:
            listed = ", ".join(map(str, sorted(curve)))
            raise GoldenError(f"{self.source}: no length of {which}.{how} with {steps} drafts: expected {listed}")
        return GoldenCell(which, how, steps, curve[steps])

    def with_cell(self, cell: GoldenCell) -> GoldenLengths:
        """Return the same with this length, in place of one that was there."""
        modes = self.curves.get(cell.model, {})
        curve = {**modes.get(cell.mode, {}), cell.steps: round(cell.length, _DIGITS)}
        return self._replace(curves={**self.curves, cell.model: {**modes, cell.mode: curve}})

    def text(self, note: str) -> str:
        """Return the file, with one more line about what was added."""
        lines = [*(self.comments or _HEAD.splitlines()), f"# {note}"]
        if self.about:
            lines.append(msgspec.yaml.encode(dict(self.about)).decode().rstrip())
        for model, modes in self.curves.items():
            lines.append(f"{_key(model)}:")
            for mode, curve in modes.items():
                lines += [f"  {_key(mode)}:", *(f"    {steps}: {length:g}" for steps, length in sorted(curve.items()))]
        return "\n".join(lines) + "\n"


def _chosen(source: str, what: str, name: str | None, known: Mapping[str, Any]) -> str:
    if name is None and len(known) == 1:
        return next(iter(known))
    if name not in known:
        given = "no" if name is None else f"invalid {name!r} as"
        # Of few names the nearest may mean the opposite, as thinking_on and thinking_off: all are listed instead.
        raise GoldenError(f"{source}: {given} {what}: expected {'one of ' * (len(known) > 1)}{', '.join(known)}")
    assert name is not None
    return name


def _key(name: str) -> str:
    """Return a key as YAML takes it for the same text."""
    return msgspec.yaml.encode(name).decode().strip().removesuffix("...").strip()


def read_golden(path: Path) -> GoldenLengths:
    """Return the lengths of a file. Raises GoldenError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise GoldenError(f"{path}: it cannot be read: {why}") from None
    try:
        found = msgspec.yaml.decode(text.encode())
    except msgspec.DecodeError as error:
        told = _IN_TEXT.sub(r" at \1;", " ".join(str(error).split())).rstrip(";")
        raise GoldenError(f"{path}: expected YAML: {told}") from None
    if not isinstance(found, dict):
        raise GoldenError(f"{path}: expected a mapping of model, mode and number of drafts to lengths")
    about = {name: value for name, value in found.items() if str(name).startswith(_ASIDE)}
    curves = {model: _modes(path, model, modes) for model, modes in found.items() if model not in about}
    if not curves:
        raise GoldenError(f"{path}: expected at least one model with its lengths")
    comments = tuple(line for line in text.splitlines() if line.startswith("#"))
    return GoldenLengths(str(path), curves, comments, about)


def _modes(path: Path, model: object, modes: object) -> dict[str, dict[int, float]]:
    """Return the curves of a model. Raises GoldenError with the place in the file, and what is there."""
    _require_name(path, "model", model)
    if not isinstance(modes, dict):
        raise GoldenError(f"{path}: invalid {model}, {modes!r}: expected its modes, as thinking_on, with their lengths")
    for mode in modes:
        _require_name(path, f"mode of {model}", mode)
    return {mode: _curve(path, f"{model}.{mode}", curve) for mode, curve in modes.items()}


def _curve(path: Path, place: str, curve: object) -> dict[int, float]:
    """Return the lengths of a mode. Raises GoldenError."""
    if not isinstance(curve, dict):
        raise GoldenError(f"{path}: invalid {place}, {curve!r}: expected lengths by their number of drafts, as 2: 2.38")
    for steps, length in curve.items():
        if type(steps) is not int or not 1 <= steps <= MOST_DRAFTS:
            raise GoldenError(
                f"{path}: invalid number of drafts {steps!r} of {place}: expected a whole number, 1 .. {MOST_DRAFTS}"
            )
        where = f"{path}: invalid {place}[{steps}]"
        if type(length) not in (int, float):
            raise GoldenError(f"{where}, {length!r}: expected an acceptance length, a number, as {steps}: 1.78")
        require_length(where, length, steps)
    return {steps: float(length) for steps, length in curve.items()}


def _require_name(path: Path, what: str, name: object) -> None:
    if not isinstance(name, str):
        raise GoldenError(f"{path}: invalid {what} {name!r}: expected text; put quotes around it")


def require_length(what: str, length: float, steps: int) -> None:
    """Raise GoldenError unless so many drafts can be accepted: 1 .. steps + 1, the target's token among them."""
    if not math.isfinite(length) or not 1 <= length <= steps + 1:
        raise GoldenError(f"{what}, {length:g}: expected 1 .. {steps + 1}, accepted drafts and the target's token")
