"""Dimension letters have one meaning each: the legends of all modules against docs/shapes.md."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from draftproof.properties.kernels.table import OPS

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("properties", "kernels", "reference", "engine", "harness", "faults", "fuzz", "report", "subjects", "tracer")
ROOMS += ("draftproof",)
ROW = re.compile(r"^\| `([A-Z])` \| .+ \| (.+) \|$", re.MULTILINE)
ENTRY = re.compile(r"`([A-Z][a-z]{0,2})`(?:, | and )?([^`]*)")
SHAPE = re.compile(r"\[([A-Z][A-Za-z0-9*+\-, .]*)\]")


@cache
def legend() -> dict[str, tuple[str, ...]]:
    """Return the words of which a legend has to use one, by letter."""
    table = (ROOT / "docs" / "shapes.md").read_text(encoding="utf-8")
    return {letter: tuple(words.split(", ")) for letter, words in ROW.findall(table)}


def contradictions(text: str) -> list[str]:
    """Return the letters of a docstring whose meaning isn't the one of docs/shapes.md."""
    wrong, pending = [], []
    for letter, meaning in ENTRY.findall(text):
        pending.append(letter)
        said = " ".join(meaning.split())
        # "`Nq` and `N` query and key-value heads": one meaning for several letters.
        if not said:
            continue
        wrong += [f"`{one}` {said}" for one in pending if not any(word in said for word in legend().get(one[0], ()))]
        pending = []
    return wrong + pending


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_the_table_has_every_letter_once():
    letters = [letter for letter, _ in ROW.findall((ROOT / "docs" / "shapes.md").read_text(encoding="utf-8"))]
    assert letters == sorted(set(letters))
    assert len(letters) > 20


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_uses_a_letter_otherwise(room: str):
    found = {}
    for path in (ROOT / room).rglob("*.py"):
        wrong = contradictions(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        if wrong:
            found[path.relative_to(ROOT).as_posix()] = wrong
    assert found == {}


def test_legends_are_read():
    texts = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in modules())
    assert sum(bool(ENTRY.search(text)) for text in texts) > 50


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`T` packed tokens, `D` hidden width.", []),
        ("`Nq` and `N` query and key-value heads.", []),
        ("`L` lanes of the target.", ["`L` lanes of the target."]),
        ("`W` verify width, `D` channels of the convolution,\n`H` key size.", ["`D` channels of the convolution,"]),
        ("`Y` groups", ["`Y` groups"]),
        ("`B`", ["B"]),
    ],
)
def test_a_letter_with_another_meaning_is_seen(text: str, wrong: list[str]):
    assert contradictions(text) == wrong


def test_letters_of_the_table_of_ops_are_known():
    used = {letter for op in OPS.values() for letters in op.letters.values() for letter in letters} - {"."}
    assert used <= legend().keys()
