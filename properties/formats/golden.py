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
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from draftproof.properties.formats.round_log import MOST_DRAFTS
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.names import did_you_mean

Curve = dict[Annotated[int, Meta(ge=1, le=MOST_DRAFTS)], float]
_DIGITS = 2
"""Places of a length, as the published ones have."""
_ASIDE = "_"
"""What begins so is about the file: `_metadata`."""
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
        hint = did_you_mean(name or "", known)
        raise GoldenError(f"{source}: {given} {what}: expected one of {', '.join(known)}{hint}")
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
        raise GoldenError(f"{path}: expected YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise GoldenError(f"{path}: expected a mapping of model, mode and number of drafts to lengths")
    about = {name: value for name, value in found.items() if str(name).startswith(_ASIDE)}
    try:
        curves = msgspec.convert(
            {name: value for name, value in found.items() if name not in about}, dict[str, dict[str, Curve]]
        )
    except msgspec.ValidationError as error:
        raise GoldenError(f"{path}: invalid lengths: {error}; expected model, mode, number of drafts: length") from None
    for model, modes in curves.items():
        for mode, curve in modes.items():
            for steps, length in curve.items():
                require_length(f"{path}: invalid {model}.{mode}[{steps}]", length, steps)
    if not curves:
        raise GoldenError(f"{path}: expected at least one model with its lengths")
    comments = tuple(line for line in text.splitlines() if line.startswith("#"))
    return GoldenLengths(str(path), curves, comments, about)


def require_length(what: str, length: float, steps: int) -> None:
    """Raise GoldenError unless so many drafts can be accepted: 1 .. steps + 1, the target's token among them."""
    if not math.isfinite(length) or not 1 <= length <= steps + 1:
        raise GoldenError(f"{what}, {length:g}: expected 1 .. {steps + 1}, accepted drafts and the target's token")
