"""A draft is known by its row of KINDS: nobody else knows an algorithm by its name."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from draftproof.properties.coverage.facts import FACT_NAMES
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS, DRAFT_KINDS_BY_NAME, SPECS
from tests.structure import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("properties", "reference", "kernels", "engine", "harness", "faults", "fuzz", "report", "draftproof")
# Its own files, and the readers and writers of checkpoints, one function an algorithm.
OWN = ("properties/values/drafts.py", "engine/drafts/", "reference/drafts/", "reference/audit/mistakes.py")
READERS = (
    "properties/formats/checkpoint_config/eagle3.py",
    "engine/subject/checkpoints.py",
    "reference/audit/fast_pair.py",
    "reference/audit/pair.py",
    "reference/checkpoints.py",
    "faults/checkpoints.py",
    "faults/tiny_checkpoints.py",
)
# There it is the name of an option, or of a part of a release.
PLUGIN = (
    "fuzz/releases/packages.py",
    "draftproof/plugin.py",
    "draftproof/pytest_apart.py",
    "draftproof/pytest_options.py",
)
# There it is the name of a page of docs/semantics/.
CHAPTERS = ("report/definitions.py",)


def named(source: str) -> list[str]:
    """Return the algorithms that are named in quotes."""
    nodes = ast.walk(parsed(source)) if any(name in source for name in ALGORITHMS) else ()
    return [node.value for node in nodes if isinstance(node, ast.Constant) and node.value in ALGORITHMS]


def test_only_its_own_files_know_an_algorithm_by_name() -> None:
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    assert len(files) > 200
    others = [
        file for file in files if not file.relative_to(ROOT).as_posix().startswith((*OWN, *READERS, *PLUGIN, *CHAPTERS))
    ]
    assert {str(file): found for file in others if (found := named(file.read_text(encoding="utf-8")))} == {}
    assert named("if draft == 'mtp': pass") == ["mtp"]


@pytest.mark.parametrize("kind", DRAFT_KINDS, ids=ALGORITHMS)
def test_a_kind_reports_what_it_declares(kind) -> None:
    stages = {name.rpartition(".")[0] for name in kind.tapped}
    assert ("draft.step" in stages) == (kind.proposes == "steps")
    assert ("draft.block" in stages) == (kind.proposes == "block")
    assert ("extend" in stages) == kind.extends
    assert ("extend.proposal" in kind.tapped) == kind.proposes_at_extend
    assert kind.tapped <= CHANNELS.keys()
    assert {channel.name for channel in kind.channels} <= kind.tapped
    assert set(kind.minimum) <= set(FACT_NAMES)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_sides_have_a_probe_of_every_draft(name: str) -> None:
    assert SPECS[name].__struct_config__.tag == DRAFT_KINDS_BY_NAME[name].name == name
    for side in ("engine", "reference"):
        assert callable(import_module(f"draftproof.{side}.drafts.{name}").probe)
