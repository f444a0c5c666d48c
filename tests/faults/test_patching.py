"""Changes are found by their text or are stale; counters sit where the changed code runs."""

import ast
import importlib
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from triton.runtime.jit import KernelInterface

from draftproof import kernels
from draftproof.faults.catalogue import CATALOGUE, SUFFIX, catalogue, part_of, read_fault, read_sources, summary
from draftproof.faults.instrument import _Source
from draftproof.faults.patched_sources import patched, write_fault
from draftproof.faults.patching import PatchError, StalePatchError, apply, parse
from draftproof.harness.hunk_counters import COUNTER

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


def change(*lines: str, path: str = PATH) -> str:
    return "\n".join((path, *lines, ""))


def diff(start: int, *lines: str) -> str:
    old = sum(line[0] != "+" for line in lines)
    new = sum(line[0] != "-" for line in lines)
    return "\n".join((f"--- a/{PATH}", f"+++ b/{PATH}", f"@@ -{start},{old} +{start},{new} @@", *lines, ""))


TRIPLE = change("-    y = x * 2", "+    y = x * 3")


def counted(text: str, source: str = SOURCE) -> tuple[list[str], dict[str, Any], list[int]]:
    """The instrumented lines, the namespace they make, and the hits that running them appends to."""
    files = patched({PATH: source}, parse(text)).texts
    hits: list[int] = []
    with TemporaryDirectory() as folder:
        file = Path(folder, "walk.py")
        file.write_text(files[PATH])
        space = runpy.run_path(str(file), init_globals={COUNTER: hits.append})
    return files[PATH].splitlines(), space, hits


@pytest.mark.parametrize("source", [SOURCE, f"\n{SOURCE}", f"import os\n\n{SOURCE}\n\nz = 2\n"])
def test_a_change_applies_wherever_its_lines_are(source: str):
    assert apply(source, parse(TRIPLE))[0] == source.replace("x * 2", "x * 3")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (SOURCE.replace("x * 2", "x * 4"), r"^engine/walk\.py: 'y = x \* 2' must be there once, and are not there$"),
        (SOURCE + SOURCE, r"^engine/walk\.py: 'y = x \* 2' must be there once, and are there 2 times$"),
    ],
)
def test_lines_that_are_not_there_once_are_stale(source: str, told: str):
    with pytest.raises(StalePatchError, match=told):
        apply(source, parse(TRIPLE))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("-  y = x * 2", "+  y = 3"), "indentation: line 10 has 4 spaces, the change 2 spaces"),
        (("-y = x * 2", "+y = 3"), "indentation: line 10 has 4 spaces, the change none"),
        (("-\t y = x * 2", "+\ty = 3"), "indentation: line 10 has 4 spaces, the change 1 tab and 1 space"),
        (("     if x < 0:", "-    x = -x"), "indentation: line 7 has 8 spaces, the change 4 spaces"),
        (("-    y = x*2 ",), "white space: line 10 is '    y = x * 2', in the change '    y = x*2 '"),
    ],
)
def test_lines_that_are_there_but_for_white_space_say_so(lines: tuple[str, ...], told: str):
    with pytest.raises(StalePatchError) as raised:
        apply(SOURCE, parse(change(*lines)))
    assert str(raised.value).endswith(f" must be there once, and are there with other {told}")


def test_several_changes_are_one_below_the_other_in_whatever_order():
    text = (
        change("-    return y", "+    return -y") + "\n" + change(" def walk(x):", '-    """Double."""', "+    x += 1")
    )
    changed, placed = apply(SOURCE, parse(text))
    assert changed == SOURCE.replace('    """Double."""', "    x += 1").replace("return y", "return -y")
    assert [(at.name, dict(at.removed), dict(at.added)) for at in placed] == [
        (f"{PATH}:5", {5: '    """Double."""'}, {5: "    x += 1"}),
        (f"{PATH}:11", {11: "    return y"}, {11: "    return -y"}),
    ]


def test_changes_of_the_same_lines_are_refused():
    text = change(" def walk(x):", '-    """Double."""') + change('-    """Double."""', "+    pass")
    with pytest.raises(StalePatchError, match=r"engine/walk\.py: two changes have line 5 in common"):
        apply(SOURCE, parse(text))


def test_empty_lines_separate_changes_and_are_lines_within_them():
    (hunk,) = parse(f"\n{PATH}\n\n-a\n\n+\n+b\n\n\n")
    assert (hunk.before, hunk.after) == (("a", ""), ("", "", "b"))


def test_quotes_and_indentation_are_kept_as_they_are():
    (hunk,) = parse(change("-    x = '\"\\n\"'", '+\ty = """{\'a\'}"""', "++++", "+@@"))
    assert hunk.before == ("    x = '\"\\n\"'",)
    assert hunk.after == ('\ty = """{\'a\'}"""', "+++", "@@")


LARGE = ("     if x < 0:", "-        x = -x", "+        x = 0", "     elif x > 9:")


@pytest.mark.parametrize("line", [1, 6, 60])
def test_a_diff_is_found_by_its_text(line: int):
    assert apply(SOURCE, parse(diff(line, *LARGE)))[0] == SOURCE.replace("-x", "0")


def test_the_line_of_a_diff_decides_between_places_and_only_then():
    twice = SOURCE + SOURCE
    first, second = (apply(twice, parse(diff(line, *LARGE)))[0] for line in (6, 17))
    assert (first, second) == (SOURCE.replace("-x", "0") + SOURCE, SOURCE + SOURCE.replace("-x", "0"))
    with pytest.raises(
        StalePatchError, match=r"the 3 lines from 'if x < 0:' must be there once, and are there 2 times"
    ):
        apply(twice, parse(diff(7, *LARGE)))


def test_a_diff_of_git_is_read():
    text = (
        f"diff --git a/{PATH} b/{PATH}\nindex 83db48f..bf269f4 100644\n--- a/{PATH}\n+++ b/{PATH}\n"
        "@@ -10,2 +10,2 @@ def walk(x):\n-    y = x * 2\n-    return y\n+    y = x * 3\n+    return y\n"
        "\\ No newline at end of file\n"
    )
    assert apply(SOURCE, parse(text))[0] == SOURCE.replace("x * 2", "x * 3")


def test_an_insertion_says_beside_which_line():
    beside = change("         x = 9", "+        x = 10")
    assert apply(SOURCE, parse(beside))[0] == SOURCE.replace("x = 9\n", "x = 9\n        x = 10\n")
    for text in (diff(3, "+z = 1"), change("+z = 1")):
        with pytest.raises(
            PatchError, match=r"nothing says where 'z = 1' goes: expected a line of the file beside it, .* with -U0"
        ):
            parse(text)


def test_no_fault_goes_stale_when_lines_above_it_move():
    moved = {path: f"\n{text}" for path, text in read_sources().items()}
    assert [file.fault.id for file in catalogue().values() if summary(file, moved).stale] == []


def test_faults_keep_no_line_numbers_and_no_name_of_their_own():
    for path in CATALOGUE.glob(f"*{SUFFIX}"):
        text = path.read_text()
        assert "\n@@" not in text, path
        assert "\nid = " not in text, path
        assert not any(hunk.line for hunk in read_fault(path).hunks()), path


def test_whatever_is_in_the_folder_of_faults_is_one():
    assert {path.suffix for path in CATALOGUE.iterdir() if path.is_file()} == {SUFFIX}


@pytest.mark.parametrize(
    ("paths", "part"),
    [
        ({"engine/engine.py"}, "engine"),
        ({"kernels/eager_moe.py"}, "eager"),
        ({"kernels/triton_moe.py", "kernels/triton_common.py"}, "triton"),
        ({"kernels/triton_moe.py", "engine/engine.py"}, "engine"),
        ({"kernels/registry.py"}, "engine"),
    ],
)
def test_paths_say_what_a_fault_changes(paths: set[str], part: str):
    assert part_of(paths) == part


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no change: expected the path of a file"),
        ("-x = 1\n+x = 2\n", r"invalid line '-x = 1\+x = 2': expected the path of its file above it"),
        (TRIPLE.replace("engine/", "properties/"), "expected a Python file under"),
        (TRIPLE.replace("engine/walk", "engine/../x"), "expected a Python file under"),
        (f"{PATH}\n", r"invalid change of engine/walk\.py: it changes nothing"),
        (change(" def walk(x):"), "it changes nothing"),
        (diff(6, *LARGE).replace("-6,3", "-6,5"), "the hunk has"),
        (diff(4, " def walk(x):"), "changes nothing"),
    ],
)
def test_broken_patches_say_what_is_wrong(text, message):
    with pytest.raises(PatchError, match=message):
        parse(text)


@pytest.mark.parametrize("draft", ["ngram", "all"])
def test_front_matter_names_the_draft_whose_scenarios_a_fault_meets(draft: str, tmp_path: Path):
    path = tmp_path / "some.patch"
    path.write_text(f'+++\nid = "some"\ndraft = "{draft}"\n+++\n' + TRIPLE)
    assert read_fault(path).fault.draft == draft
    path.write_text('+++\nid = "some"\n+++\n' + TRIPLE)
    assert read_fault(path).fault.draft == "eagle"


def test_a_plain_diff_meets_all_drafts(tmp_path: Path):
    path = tmp_path / "mine.diff"
    path.write_text(catalogue()["stop-tail-kept"].text)
    assert read_fault(path).fault.draft == "all"


def test_the_counter_runs_with_a_changed_statement():
    lines, space, hits = counted(TRIPLE)
    assert lines[9].strip() == f"{COUNTER}(0)"
    assert space["walk"](2) == 6
    assert hits == [0]


def test_the_counter_of_a_branch_runs_only_with_the_branch():
    _, space, hits = counted(change("-        x = -x", "+        x = 0"))
    space["walk"](4)
    assert hits == []
    assert space["walk"](-4) == 0
    assert hits == [0]


def test_the_counter_of_a_changed_elif_stands_before_the_if():
    _, space, hits = counted(change("-    elif x > 9:", "+    elif x > 8:"))
    assert space["walk"](9) == 18
    assert hits == [0]


def test_the_counter_of_a_changed_signature_runs_in_the_body():
    _, space, hits = counted(change("-def walk(x):", "+def walk(x=3):"))
    assert hits == []
    assert space["walk"]() == 6
    assert hits == [0]


def test_the_counter_of_a_deletion_runs_beside_it():
    removed = change("-        x = 9", "+        pass")
    _, space, hits = counted(removed)
    assert space["walk"](12) == 24
    assert hits == [0]
    tail = SOURCE.replace("    return y\n", "    z = y\n    y = 1\n\n\ndef other():\n    return walk(1)\n")
    _, space, hits = counted(change("-    y = 1"), tail)
    assert hits == []
    space["other"]()
    assert hits == [0]


def test_a_deleted_argument_counts_in_its_statement():
    source = "def call(f):\n    return f(\n        1,\n        2,\n    )\n"
    _, space, hits = counted(change("-        2,"), source)
    assert space["call"](lambda *args: args) == (1,)
    assert hits == [0]


COMMENTED = f"{SOURCE}    # Why.\n"
STALE_LINES = "changes nothing: its new lines are the old ones but for comments and docstrings"


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (("-    # Why.",), 12),
        (("-    # Why.", "+    # Wherefore."), 12),
        (("     # Why.", "+    # And how."), 13),
        (("-    y = x * 2", "+    y = x * 2"), 10),
        (("-    y = x * 2", "+    y = (x*2)  # twice"), 10),
        (('-    """Double."""', '+    """Twice."""'), 5),
        (('-"""A module."""', '+"""One."""'), 1),
        (("     y = x * 2", '+    """Doubled."""'), 11),
    ],
)
def test_a_change_that_leaves_the_program_as_it_was_is_stale(lines: tuple[str, ...], number: int):
    with pytest.raises(StalePatchError, match=rf"^engine/walk\.py:{number} {STALE_LINES}$"):
        patched({PATH: COMMENTED}, parse(change(*lines)))


def test_every_change_is_named_where_none_changes_anything():
    text = change("-    # Why.") + change("-    return y", "+    return y", path="engine/run.py")
    with pytest.raises(
        StalePatchError, match=r"^engine/walk\.py:12, engine/run\.py:11 change nothing: their new lines"
    ):
        patched({PATH: COMMENTED, "engine/run.py": SOURCE}, parse(text))


@pytest.mark.parametrize("lines", [("-    # Why.", "+    # Wherefore."), ("-        x = 9", "+        x = 9")])
def test_beside_others_a_change_of_nothing_has_no_counter(lines: tuple[str, ...]):
    """So that it is told that it never had an effect."""
    made = patched({PATH: COMMENTED}, parse(TRIPLE + change(*lines)))
    counters = [line.strip() for line in made.texts[PATH].splitlines() if COUNTER in line]
    assert len(counters) == 1
    assert "return y" not in counters
    assert len(made.hunks) == 2


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("+    y = x *", r"engine/walk\.py, line 10: the patched source is not Python: invalid syntax in 'y = x \*'"),
        (
            "+  y = x",
            r"engine/walk\.py, line 10: the patched source is not Python: unindent does not match .* in 'y = x'",
        ),
        (
            "+    y = '\0'",
            r"engine/walk\.py.*: the patched source is not Python: source code string cannot contain null",
        ),
    ],
)
def test_a_source_that_is_not_python_is_named_with_its_line_and_the_fault(line: str, named: str, tmp_path: Path):
    path = tmp_path / "bad.fault"
    path.write_text(change("-    y = x * 2", line))
    with pytest.raises(PatchError, match=rf"^{path}: {named}"):
        write_fault(tmp_path / "copy", {PATH: SOURCE}, read_fault(path))


def test_a_triton_function_is_counted_where_it_is_launched():
    source = (
        "import triton\n\n\n@triton.jit\ndef inner(x):\n    return x + 1\n\n\n@triton.jit\ndef outer(x):\n"
        "    inner(x)\n\n\ndef launch(x):\n    grid = (1,)\n    outer[grid](x)\n\n\ndef unrelated():\n    return 1\n"
    )
    lines = patched({PATH: source}, parse(change("-    return x + 1", "+    return x + 2"))).texts[PATH].splitlines()
    where = [i for i, line in enumerate(lines) if COUNTER in line]
    assert where == [15]
    assert lines[16].strip() == "outer[grid](x)"


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(kernels.__file__).parent.glob("triton_*.py")))
def test_every_triton_function_of_ours_is_known_as_one(name: str):
    module = importlib.import_module(f"draftproof.kernels.{name}")
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    defined = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    compiled = {one for one in defined if isinstance(getattr(module, one), KernelInterface)}
    assert {one for one, _ in _Source(source).jits} == compiled


def test_the_lines_that_a_fault_wrote_are_numbered_with_the_counters():
    text = change("         x = 9", "+        x = 10") + change("-    return y", "+    z = y", "+    return z")
    made = patched({PATH: SOURCE}, parse(text))
    lines = made.texts[PATH].splitlines()
    assert [lines[number - 1].strip() for number in made.own[PATH]] == ["x = 10", "z = y", "return z"]
    assert sum(COUNTER in line for line in lines) == 2


def test_a_call_begins_where_its_wrong_argument_is_told():
    source = "def call(f):\n    return f(\n        1,\n        2,\n    )\n"
    made = patched({PATH: source}, parse(change("-        2,", "+        gone=2,")))
    lines = made.texts[PATH].splitlines()
    assert [lines[number - 1].strip() for number in made.own[PATH]] == ["return f(", "gone=2,"]
