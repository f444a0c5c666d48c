"""Scenarios of tests are files of tests/named/, or made by hand: only tests of what is generated draw by a seed.

Whoever raises the version of the strategies then has these tests to look at, and no other.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.structure import ROOT, parsed

DRAWERS = {
    *("draftproof.generate", "draftproof.scenarios", "draftproof.checkpoint_scenarios"),
    "draftproof.harness.checkpoint_scenarios.checkpoint_scenarios",
    "draftproof.fuzz.campaign.plan.CampaignPlan",
    "draftproof.properties.choose.SeededChoose",
    *(f"draftproof.properties.strategies.{module}" for module in ("covering", "drawn", "scenarios")),
}
"""What draws scenarios by a seed, or by Hypothesis: names, and modules of which every name does."""

MAY_DRAW = {
    "tests/fuzz/test_plan.py": "the blocks of a campaign are lists",
    "tests/kernels/test_lists.py": "lists of calls of kernels",
    "tests/properties/lists.py": "the generator: lists that its tests share",
    "tests/properties/test_draft_strategies.py": "the generator: drafts in every form",
    "tests/properties/test_quantities.py": "the generator: boundaries",
    "tests/properties/test_strategies.py": "the generator: lists, features, and what Hypothesis draws",
    "tests/test_draws.py": "what would be seen",
    "tests/test_imports.py": "an import that is refused",
    "tests/test_plugin.py": "which scenarios a session has, shares of workers, `given` of a test of ones own",
    "tests/test_workflows.py": "a test of a user, as docs/own-ci.md has it",
}
"""Files of tests that draw, with the reason."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported, in functions and in programs that strings have, too, and attributes of `draftproof`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "draftproof":
            yield f"draftproof.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "draftproof" in node.value:
            # Programs are often indented, or their beginning is elsewhere: each line that is one is read.
            for line in map(str.strip, node.value.splitlines()):
                if line.startswith(("import ", "from ")):
                    yield from _of_line(line)


def _of_line(line: str) -> Iterator[str]:
    try:
        tree = parsed(line)
    except SyntaxError:
        return
    yield from imported(tree)


def draws(source: str) -> list[str]:
    """Return what of DRAWERS a test takes."""
    if not any(name.rpartition(".")[2] in source for name in DRAWERS):
        return []
    return sorted(name for name in set(imported(parsed(source))) if {name, name.rpartition(".")[0]} & DRAWERS)


def test_only_tests_of_the_generator_draw_by_a_seed() -> None:
    """Of others the scenarios are `named(..)` (tests/named/)."""
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("*.py")}
    drawing = {name for name, path in files.items() if draws(path.read_text(encoding="utf-8"))}
    assert drawing == MAY_DRAW.keys()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from draftproof import generate\nS = generate(3, 8)[7]", "draftproof.generate"),
        (
            "import draftproof\n\ndef test_it():\n    draftproof.checkpoint_scenarios(p)",
            "draftproof.checkpoint_scenarios",
        ),
        (
            "from draftproof.properties.strategies.scenarios import listed as anew",
            "draftproof.properties.strategies.scenarios.listed",
        ),
        (
            "def f():\n    from draftproof.properties.choose import Choose, SeededChoose",
            "draftproof.properties.choose.SeededChoose",
        ),
        ("PROGRAM = '''\n    import sys\n    from draftproof import generate\n'''", "draftproof.generate"),
        ("from draftproof.properties.strategies import drawn", "draftproof.properties.strategies.drawn"),
    ],
)
def test_a_file_that_draws_would_be_seen(source: str, name: str) -> None:
    assert draws(source) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "from tests.named import named\nS = named('eagle_padded')",
        "model.generate(torch.tensor([prompt]))\nlisted(3)",
        "from draftproof.properties.choose import Choose",
        "TEXT = 'from here on draftproof.generate is not called'",
    ],
)
def test_what_draws_nothing_is_left_alone(source: str) -> None:
    assert draws(source) == []
