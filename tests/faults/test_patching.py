"""Diffs apply to the letter or are stale; counters sit where the changed code runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from draftproof.faults.catalogue import read_fault, refreshed
from draftproof.faults.instrument import COUNTER, instrument
from draftproof.faults.patching import PatchError, StalePatchError, apply, parse, refresh, render
from draftproof.faults.run import run_faults

PATH = "engine/walk.py"
SOURCE = '''"""A module."""


def walk(x):
    """Double."""
    if x < 0:
        x = -x
    elif x > 9:
        x = 9
    y = x * 2
    return y
'''


def diff(start: int, *lines: str) -> str:
    old = sum(line[0] != "+" for line in lines)
    new = sum(line[0] != "-" for line in lines)
    return "\n".join((f"--- a/{PATH}", f"+++ b/{PATH}", f"@@ -{start},{old} +{start},{new} @@", *lines, ""))


TRIPLE = diff(9, "         x = 9", "-    y = x * 2", "+    y = x * 3", "     return y")


def counted(text: str, source: str = SOURCE) -> tuple[list[str], dict[str, Any], list[int]]:
    """The instrumented lines, the namespace they make, and the hits that running them appends to."""
    patched, placed = apply(source, parse(text))
    files = instrument({PATH: patched}, {PATH: placed}, {PATH: source})
    hits: list[int] = []
    with TemporaryDirectory() as folder:
        file = Path(folder, "walk.py")
        file.write_text(files[PATH])
        space = runpy.run_path(str(file), init_globals={COUNTER: hits.append})
    return files[PATH].splitlines(), space, hits


def test_a_hunk_applies_where_it_says():
    patched, _ = apply(SOURCE, parse(TRIPLE))
    assert patched == SOURCE.replace("x * 2", "x * 3")


@pytest.mark.parametrize("moved", ["\n" + SOURCE, SOURCE.replace("x = 9", "x = 8")])
def test_moved_or_changed_lines_are_stale(moved):
    with pytest.raises(StalePatchError, match=r"engine/walk\.py:9"):
        apply(moved, parse(TRIPLE))


def test_refresh_finds_moved_lines_and_refuses_ambiguous_ones():
    moved = "import os\n\n" + SOURCE
    again = refresh(parse(TRIPLE), {PATH: moved})
    assert again[0].start == 11
    assert apply(moved, again)[0] == moved.replace("x * 2", "x * 3")
    assert parse(render(again)) == again
    with pytest.raises(StalePatchError, match="2 times"):
        refresh(parse(TRIPLE), {PATH: "\n" + SOURCE + "\n" + SOURCE})


def test_refreshed_keeps_the_front_matter(tmp_path: Path):
    path = tmp_path / "triple.patch"
    path.write_text('+++\nid = "triple"\nmechanism = "x"\n+++\n' + TRIPLE)
    assert refreshed(read_fault(path), {PATH: SOURCE}) is None
    text = refreshed(read_fault(path), {PATH: "\n" + SOURCE})
    assert text is not None
    assert text.startswith('+++\nid = "triple"\nmechanism = "x"\n+++\n--- a/engine/walk.py\n')
    assert "@@ -10,3 +10,3 @@" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no hunk"),
        (TRIPLE.replace("engine/", "properties/"), "expected a Python file under"),
        (TRIPLE.replace("engine/walk", "engine/../x"), "expected a Python file under"),
        (TRIPLE.replace("-9,3", "-9,5"), "the hunk has"),
        (diff(4, " def walk(x):"), "changes nothing"),
    ],
)
def test_broken_patches_say_what_is_wrong(text, message):
    with pytest.raises(PatchError, match=message):
        parse(text)


def test_front_matter_errors_name_the_field(tmp_path: Path):
    path = tmp_path / "bad.patch"
    path.write_text('+++\nid = "bad"\nchanel = "x"\n+++\n' + TRIPLE)
    with pytest.raises(PatchError, match=r"invalid field 'chanel': expected id, .*channel"):
        read_fault(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'contract = "draft.position"',
            r"invalid contract 'draft\.position': expected .*; did you mean draft\.positions\?",
        ),
        ('channel = "verify.posit"', r"invalid channel 'verify\.posit': expected"),
    ],
)
def test_a_fault_names_a_contract_and_a_channel_that_there_are(line: str, message: str, tmp_path: Path):
    path = tmp_path / "bad.patch"
    path.write_text(f'+++\nid = "bad"\n{line}\n+++\n' + TRIPLE)
    with pytest.raises(PatchError, match=message):
        run_faults([read_fault(path)], (0,), 1)


@pytest.mark.parametrize("draft", ["ngram", "all"])
def test_front_matter_names_the_draft_whose_scenarios_a_fault_meets(draft: str, tmp_path: Path):
    path = tmp_path / "some.patch"
    path.write_text(f'+++\nid = "some"\ndraft = "{draft}"\n+++\n' + TRIPLE)
    assert read_fault(path).fault.draft == draft
    path.write_text('+++\nid = "some"\n+++\n' + TRIPLE)
    assert read_fault(path).fault.draft == "eagle"


@pytest.mark.parametrize("draft", ['"medusa"', "3", '["mtp"]'])
def test_an_unknown_draft_is_refused_with_those_that_are_known(draft: str, tmp_path: Path):
    path = tmp_path / "bad.patch"
    path.write_text(f'+++\nid = "bad"\ndraft = {draft}\n+++\n' + TRIPLE)
    with pytest.raises(
        PatchError, match=r"invalid draft .*: expected eagle, mtp, dflash, ngram, standalone, eagle3, all"
    ):
        read_fault(path)


def test_the_counter_runs_with_a_changed_statement():
    lines, space, hits = counted(TRIPLE)
    assert lines[9].strip() == f"{COUNTER}(0)"
    assert space["walk"](2) == 6
    assert hits == [0]


def test_the_counter_of_a_branch_runs_only_with_the_branch():
    _, space, hits = counted(diff(6, "     if x < 0:", "-        x = -x", "+        x = 0", "     elif x > 9:"))
    space["walk"](4)
    assert hits == []
    assert space["walk"](-4) == 0
    assert hits == [0]


def test_the_counter_of_a_changed_elif_stands_before_the_if():
    _, space, hits = counted(diff(7, "         x = -x", "-    elif x > 9:", "+    elif x > 8:", "         x = 9"))
    assert space["walk"](9) == 18
    assert hits == [0]


def test_the_counter_of_a_changed_signature_runs_in_the_body():
    _, space, hits = counted(diff(4, "-def walk(x):", "+def walk(x=3):", '     """Double."""'))
    assert hits == []
    assert space["walk"]() == 6
    assert hits == [0]


def test_the_counter_of_a_deletion_runs_beside_it():
    removed = diff(8, "     elif x > 9:", "-        x = 9", "+        pass", "     y = x * 2")
    _, space, hits = counted(removed)
    assert space["walk"](12) == 24
    assert hits == [0]
    tail = SOURCE.replace("    return y\n", "    z = y\n    y = 1\n\n\ndef other():\n    return walk(1)\n")
    _, space, hits = counted(diff(11, "     z = y", "-    y = 1", " "), tail)
    assert hits == []
    space["other"]()
    assert hits == [0]


def test_a_deleted_argument_counts_in_its_statement():
    source = "def call(f):\n    return f(\n        1,\n        2,\n    )\n"
    _, space, hits = counted(diff(3, "         1,", "-        2,", "     )"), source)
    assert space["call"](lambda *args: args) == (1,)
    assert hits == [0]


def test_a_triton_function_is_counted_where_it_is_launched():
    source = (
        "import triton\n\n\n@triton.jit\ndef inner(x):\n    return x + 1\n\n\n@triton.jit\ndef outer(x):\n"
        "    inner(x)\n\n\ndef launch(x):\n    grid = (1,)\n    outer[grid](x)\n\n\ndef unrelated():\n    return 1\n"
    )
    text = diff(5, " def inner(x):", "-    return x + 1", "+    return x + 2", " ")
    patched, placed = apply(source, parse(text))
    files = instrument({PATH: patched}, {PATH: placed}, {PATH: source})
    where = [i for i, line in enumerate(files[PATH].splitlines()) if COUNTER in line]
    assert where == [15]
    assert files[PATH].splitlines()[16].strip() == "outer[grid](x)"
