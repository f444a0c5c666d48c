"""A release of this project: its workflow, its changelog, the versions that it says to run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from draftproof.properties.strategies.version import STRATEGIES_VERSION
from tests import fresh
from tests.release import HEADING, version, wrong

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_newest_section_is_of_this_version_and_of_these_scenarios():
    newest = HEADING.split(CHANGELOG)[1:3]
    assert newest[0] == "Unreleased" or newest[0].startswith(f"{version()} (")
    assert f"strategies have version {STRATEGIES_VERSION}" in newest[1]
    assert len(re.findall(r"^## ", CHANGELOG, re.MULTILINE)) == len(HEADING.findall(CHANGELOG))


DATED = "# Changelog\n\n## {}\n\n- More.\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "said"),
    [
        ("v1.2.3", DATED.format("1.2.3 (2026-11-29)"), []),
        ("v1.2.3", DATED.format("Unreleased\n\n## 1.2.3 (2026-11-29)"), []),
        ("1.2.3", DATED.format("1.2.3 (2026-11-29)"), ["invalid tag '1.2.3': expected v1.2.3"]),
        ("v1.2.4", DATED.format("1.2.3 (2026-11-29)"), ["invalid tag 'v1.2.4': expected v1.2.3"]),
        ("v1.2.3", DATED.format("1.2.3"), ["invalid CHANGELOG.md: expected a section '## 1.2.3 (YYYY-MM-DD)'"]),
        ("v1.2.3", DATED.format("Unreleased"), ["expected a section", "expected nothing under Unreleased"]),
    ],
)
def test_a_release_without_its_tag_or_its_entry_is_not_built(tag, changelog, said):
    found = wrong(tag, "1.2.3", changelog)
    assert len(found) == len(said)
    assert all(part in one for part, one in zip(said, found, strict=True))


def test_what_is_published_is_what_was_tried_and_nobody_else_may_publish():
    assert JOBS["publish"]["needs"] == "fresh"
    assert JOBS["fresh"]["needs"] == "build"
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in JOBS.items() if "permissions" in job] == ["publish"]
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert JOBS["publish"]["environment"] == "pypi"
    assert not any("run" in step for step in JOBS["publish"]["steps"])
    assert [job for job in JOBS.values() if "timeout-minutes" not in job] == []


def test_actions_are_pinned_and_scripts_get_values_by_their_environment():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        assert set(step.get("env", {})) == set(re.findall(r"\$([A-Z]+)", step.get("run", "")))


def test_its_pythons_are_those_that_the_project_names():
    pythons = JOBS["fresh"]["strategy"]["matrix"]["python"]
    named = [found[1] for one in PROJECT["classifiers"] if (found := re.fullmatch(r".*Python :: (3\.\d+)", one))]
    assert pythons == named
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_what_it_runs_is_there():
    ran = "\n".join(step["run"] for step in STEPS if "run" in step)
    assert re.findall(r"python -m (tests\.\w+)", ran) == ["tests.release", "tests.fresh"]
    assert "--torch-index" in ran
    assert [one.words[0] for one in fresh.commands(None)][:3] == ["--version", "doctor", "demo"]


def test_every_dependency_has_a_lowest_version():
    assert [one for one in fresh.lowest() if not re.match(r"[\w-]+==\d+(\.\d+)*(;.*)?$", one)] == []
